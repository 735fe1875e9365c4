// Counts of byte values: atomics in shared memory, then in global memory.
extern "C" __global__ void histogram(const unsigned char *data, unsigned *counts, int n)
{
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i] != 0)
            atomicAdd(&counts[i], local[i]);
}
