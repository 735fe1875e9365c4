// Layer normalisation of rows whose width is a multiple of four, by vectors of four.
extern "C" __global__ void layernorm(const float4 *x, const float4 *gain, const float4 *bias,
                                     float4 *y, int quads, float epsilon)
{
    const float4 *row = x + (size_t)blockIdx.x * quads;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < quads; i += 32) {
        float4 v = __ldg(&row[i]);
        sum += v.x + v.y + v.z + v.w;
        squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
        squares += __shfl_down_sync(0xffffffffu, squares, step);
    }
    sum = __shfl_sync(0xffffffffu, sum, 0);
    squares = __shfl_sync(0xffffffffu, squares, 0);
    float count = 4.0f * quads, mean = sum / count;
    float scale = rsqrtf(squares / count - mean * mean + epsilon);
    for (int i = threadIdx.x; i < quads; i += 32) {
        float4 v = row[i], g = gain[i], b = bias[i];
        v.x = (v.x - mean) * scale * g.x + b.x;
        v.y = (v.y - mean) * scale * g.y + b.y;
        v.z = (v.z - mean) * scale * g.z + b.z;
        v.w = (v.w - mean) * scale * g.w + b.w;
        y[(size_t)blockIdx.x * quads + i] = v;
    }
}
