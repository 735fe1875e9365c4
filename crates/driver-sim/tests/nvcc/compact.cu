// Keeps the positive elements: one atomic for each warp instead of one for each lane.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void compact(const int *x, int *kept, int *count, int *groups, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        int base = 0;
        if (active.thread_rank() == 0)
            base = atomicAdd(count, (int)active.size());
        kept[active.shfl(base, 0) + active.thread_rank()] = x[i];
    }
    unsigned same = __match_any_sync(0xffffffffu, i < n ? x[i] & 3 : -1);
    unsigned most = __reduce_max_sync(0xffffffffu, (unsigned)__popc(same));
    if (i < n)
        groups[i] = __ffs(same) * 100 + most;
}
