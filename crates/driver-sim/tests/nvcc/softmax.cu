// Softmax of rows, one block for each, with dynamic shared memory.
#include <math_constants.h>

extern __shared__ float scratch[];

template <bool MAXIMUM> __device__ float block_reduce(float value)
{
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (unsigned step = blockDim.x / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) {
            float other = scratch[threadIdx.x + step];
            float mine = scratch[threadIdx.x];
            scratch[threadIdx.x] = MAXIMUM ? fmaxf(mine, other) : mine + other;
        }
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();
    return result;
}

extern "C" __global__ void softmax(const float *x, float *y, int width)
{
    x += (size_t)blockIdx.x * width;
    y += (size_t)blockIdx.x * width;
    float greatest = -CUDART_INF_F;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        greatest = fmaxf(greatest, x[i]);
    greatest = block_reduce<true>(greatest);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float term = expf(x[i] - greatest);
        y[i] = term;
        sum += term;
    }
    sum = block_reduce<false>(sum);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[i] /= sum;
}
