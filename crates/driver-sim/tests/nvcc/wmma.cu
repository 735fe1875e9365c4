// One 16 by 16 tile of C = A B on tensor cores, f16 with f32 sums; k is a multiple of 16.
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void wmma_tile(const half *a, const half *b, float *c, int k)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int start = 0; start < k; start += 16) {
        wmma::load_matrix_sync(left, a + start, k);
        wmma::load_matrix_sync(right, b + start, k);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
