// Device functions that stay functions: values, structs and pointers passed and returned.
struct Pair { double sum; int count; };

__noinline__ __device__ int collatz(unsigned n)
{
    int steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        ++steps;
    }
    return steps;
}

__noinline__ __device__ Pair extend(Pair pair, double value)
{
    pair.sum += value;
    pair.count += 1;
    return pair;
}

__noinline__ __device__ void exchange(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

extern "C" __global__ void calls(const int *x, double *sums, int *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Pair pair = {0.5, 0};
    for (int j = 0; j <= i % 4; ++j)
        pair = extend(pair, (double)x[i] / (j + 1));
    int low = x[i], high = collatz((unsigned)x[i]);
    if (low > high)
        exchange(&low, &high);
    sums[i] = pair.sum / pair.count;
    steps[i] = high * 1000 + low;
}
