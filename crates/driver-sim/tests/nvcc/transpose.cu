// A transpose through a padded tile, with blocks of 32 by 8 threads.
extern "C" __global__ void transpose(const int *from, int *to, int width, int height)
{
    __shared__ int tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (x < width && y + i < height)
            tile[threadIdx.y + i][threadIdx.x] = from[(y + i) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (x < height && y + i < width)
            to[(y + i) * height + x] = tile[threadIdx.x][threadIdx.y + i];
}
