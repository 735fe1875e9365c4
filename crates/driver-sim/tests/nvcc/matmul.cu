// C = A B in tiles of shared memory; A is m by k, B is k by n, all row-major.
#define TILE 16

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int inner = start + threadIdx.x, outer = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && inner < k ? a[row * k + inner] : 0.0f;
        right[threadIdx.y][threadIdx.x] = outer < k && column < n ? b[outer * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i)
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}
