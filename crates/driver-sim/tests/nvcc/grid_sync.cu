// Divides numbers by their sum in one launch: all blocks wait for the partial sums of all blocks. A launch that is
// not cooperative has no grid to wait for, and stores -1.
#include <cooperative_groups.h>

extern "C" __global__ void normalize(unsigned *x, unsigned *partial, int n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (!grid.is_valid()) {
        if (at < n)
            x[at] = 0xffffffffu;
        return;
    }
    if (threadIdx.x == 0)
        partial[blockIdx.x] = 0;
    __syncthreads();
    if (at < n)
        atomicAdd(&partial[blockIdx.x], x[at]);
    grid.sync();
    unsigned sum = 0;
    for (unsigned block = 0; block < gridDim.x; block++)
        sum += partial[block];
    grid.sync();
    if (at < n)
        x[at] = sum / x[at];
}
