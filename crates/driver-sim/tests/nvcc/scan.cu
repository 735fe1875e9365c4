// The inclusive prefix sum of one block of up to 1024 threads.
extern "C" __global__ void scan(const long long *x, long long *y, int n)
{
    __shared__ long long totals[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    long long value = threadIdx.x < n ? x[threadIdx.x] : 0;
    for (int step = 1; step < 32; step *= 2) {
        long long other = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step)
            value += other;
    }
    if (lane == 31)
        totals[warp] = value;
    __syncthreads();
    if (warp == 0) {
        long long total = lane < blockDim.x / 32 ? totals[lane] : 0;
        for (int step = 1; step < 32; step *= 2) {
            long long other = __shfl_up_sync(0xffffffffu, total, step);
            if (lane >= step)
                total += other;
        }
        totals[lane] = total;
    }
    __syncthreads();
    if (warp > 0)
        value += totals[warp - 1];
    if (threadIdx.x < n)
        y[threadIdx.x] = value;
}
