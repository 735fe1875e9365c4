// Kernels for tests of the executor, compiled with nvcc -arch=sm_90 -ptx of CUDA 13.0 into matrix.ptx.
#include <mma.h>
#include <cuda_pipeline.h>
#include <cuda_fp16.h>
using namespace nvcuda;
extern "C" __global__ void wmma_gemm(const half* a, const half* b, float* c, int n, int k) {
  int warpM = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  int warpN = blockIdx.y;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + warpM * 16 * k + i, k);
    wmma::load_matrix_sync(fb, b + warpN * 16 * k + i, k);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  for (int t = 0; t < acc.num_elements; t++) acc.x[t] *= 2.0f;
  wmma::store_matrix_sync(c + warpM * 16 * n + warpN * 16, acc, n, wmma::mem_row_major);
}
extern "C" __global__ void staged(const float* x, float* y, int n) {
  __shared__ float tile[2][128];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[0][t], x + t, 4);
  __pipeline_commit();
  for (int i = 0; i < n; i++) {
    if (i + 1 < n) __pipeline_memcpy_async(&tile[(i + 1) & 1][t], x + (i + 1) * 128 + t, 4);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    y[i * 128 + t] = tile[i & 1][127 - t];
    __syncthreads();
  }
}
extern "C" __global__ void mma_ptx(const unsigned* a, float* c) {
  __shared__ __align__(16) unsigned tile[256];
  tile[threadIdx.x] = a[threadIdx.x]; tile[threadIdx.x + 32] = a[threadIdx.x + 32];
  __syncthreads();
  unsigned r0, r1, r2, r3; float d0=0,d1=0,d2=0,d3=0;
  unsigned s = (unsigned)__cvta_generic_to_shared(tile + (threadIdx.x % 16) * 4);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r0),"=r"(r1),"=r"(r2),"=r"(r3) : "r"(s));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%4,%6}, {%0,%1,%2,%3};" : "+f"(d0),"+f"(d1),"+f"(d2),"+f"(d3) : "r"(r0),"r"(r1),"r"(r2),"r"(r3));
  c[threadIdx.x*4]=d0; c[threadIdx.x*4+1]=d1; c[threadIdx.x*4+2]=d2; c[threadIdx.x*4+3]=d3;
}
