// The dot product in double precision: the rest of each addition is kept, then an atomic addition.
extern "C" __global__ void dot_double(const double *x, const double *y, double *result, int n)
{
    double sum = 0.0, rest = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double term = fma(x[i], y[i], -rest), next = sum + term;
        rest = (next - sum) - term;
        sum = next;
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, sum);
}
