// The tanh approximation of GELU on bf16 with f32 inside, two values at a time.
#include <cuda_bf16.h>

__device__ float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

extern "C" __global__ void bf16_gelu(const __nv_bfloat162 *x, __nv_bfloat162 *y, int pairs)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs)
        return;
    float2 v = __bfloat1622float2(x[i]);
    y[i] = __floats2bfloat162_rn(gelu(v.x), gelu(v.y));
}
