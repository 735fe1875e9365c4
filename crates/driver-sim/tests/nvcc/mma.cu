// The same by mma.sync and ldmatrix, written as the CUDA guide for the registers of a lane says.
#include <cuda_fp16.h>

extern "C" __global__ void mma_tile(const half *a, const half *b, float *c, int k)
{
    __shared__ __align__(16) half left[16 * 16], right[8 * 16];
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int lane = threadIdx.x;
    for (int start = 0; start < k; start += 16) {
        for (int i = lane; i < 256; i += 32)
            left[i] = a[(i / 16) * k + start + i % 16];
        for (int i = lane; i < 128; i += 32)
            right[i] = b[(i / 16) * k + start + i % 16];
        __syncwarp();
        unsigned ra[4], rb[2];
        unsigned at = (unsigned)__cvta_generic_to_shared(&left[(lane % 16) * 16 + lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at));
        at = (unsigned)__cvta_generic_to_shared(&right[(lane % 8) * 16 + lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(rb[0]), "=r"(rb[1]) : "r"(at));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
        __syncwarp();
    }
    int row = lane / 4, column = lane % 4 * 2;
    c[row * 8 + column] = sum[0];
    c[row * 8 + column + 1] = sum[1];
    c[(row + 8) * 8 + column] = sum[2];
    c[(row + 8) * 8 + column + 1] = sum[3];
}
