// Captured all-gathers and reduce-scatters of two ranks: by kernels, of registered memory, and by copy engines; alone,
// and beside a kernel that holds all multiprocessors for 20 ms.
//
// W=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])'); ln -s $W/lib/libnccl.so.2 libnccl.so
// nvcc -arch=sm_90 -O1 -I$W/include collectives.cu -o collectives -L. -lnccl -Xlinker -rpath=$W/lib && ./collectives
#include <nccl.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#define C(x) do { cudaError_t er = (x); if (er) { printf("rank %d line %d cuda %s\n", rank, __LINE__, cudaGetErrorString(er)); exit(1); } } while (0)
#define N(x) do { ncclResult_t e = (x); if (e && e != ncclInProgress) { printf("rank %d line %d nccl %s %s\n", rank, __LINE__, ncclGetErrorString(e), ncclGetLastError(NULL)); exit(1); } } while (0)
__global__ void hog(long long cycles) { extern __shared__ char s[]; long long t = clock64(); while (clock64() - t < cycles) {} if (cycles < 0) s[0] = 1; }
__global__ void fill(float *p, size_t n, float v) { for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = v + (i & 1023); }
static int rank;
struct Shared { ncclUniqueId id[4]; volatile int ready; };
static double timed(cudaGraphExec_t g, cudaStream_t s, int reps) {
  cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b); double best = 1e9;
  for (int i = 0; i < reps; i++) { cudaEventRecord(a, s); cudaGraphLaunch(g, s); cudaEventRecord(b, s); C(cudaStreamSynchronize(s)); float ms; cudaEventElapsedTime(&ms, a, b); if (ms < best) best = ms; }
  return best;
}
int main() {
  Shared *sh = (Shared *)mmap(0, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  rank = fork() ? 0 : 1;
  C(cudaSetDevice(rank)); cudaFree(0);
  if (rank == 0) { for (int i = 0; i < 4; i++) N(ncclGetUniqueId(&sh->id[i])); sh->ready = 1; } else while (!sh->ready) usleep(1000);
  int version; ncclGetVersion(&version); if (!rank) printf("nccl %d\n", version);
  cudaStream_t s, h; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); cudaStreamCreateWithFlags(&h, cudaStreamNonBlocking);
  C(cudaFuncSetAttribute(hog, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  const size_t big = (size_t)512 << 20;
  for (int mode = 0; mode < 3; mode++) { // 0: default; 1: windows; 2: windows, zero CTA
    ncclComm_t comm; ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (mode == 2) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    N(ncclCommInitRankConfig(&comm, 2, sh->id[mode], rank, &config));
    float *p; ncclWindow_t win = NULL;
    if (mode == 0) C(cudaMalloc(&p, big)); else { N(ncclMemAlloc((void **)&p, big)); N(ncclCommWindowRegister(comm, p, big, &win, NCCL_WIN_COLL_SYMMETRIC)); if (!rank) printf("mode %d window %p\n", mode, (void *)win); }
    size_t sizes[3] = {(size_t)8 << 20, (size_t)64 << 20, big};
    for (int t = 0; t < 3; t++) for (int op = 0; op < 2; op++) {
      size_t bytes = sizes[t], half = bytes / 8; // floats of a block
      int k = bytes == big ? 4 : 16;
      fill<<<256, 256, 0, s>>>(p, big / 4, 1.0f + rank); C(cudaStreamSynchronize(s));
      cudaGraph_t g; cudaGraphExec_t e;
      C(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
      for (int i = 0; i < k; i++) { char *q = (char *)p + (bytes == big ? 0 : (size_t)(i % 4) * bytes);
        if (op == 0) N(ncclAllGather(q + rank * half * 4, q, half, ncclFloat, comm, s));
        else N(ncclReduceScatter(q, q + rank * half * 4, half, ncclFloat, ncclSum, comm, s)); }
      C(cudaStreamEndCapture(s, &g));
      size_t nodes = 0; cudaGraphGetNodes(g, NULL, &nodes);
      cudaGraphNode_t *list = (cudaGraphNode_t *)malloc(nodes * sizeof(*list)); cudaGraphGetNodes(g, list, &nodes);
      int types[20] = {0}; for (size_t i = 0; i < nodes; i++) { cudaGraphNodeType ty; cudaGraphNodeGetType(list[i], &ty); if (ty < 20) types[ty]++; }
      C(cudaGraphInstantiate(&e, g, 0));
      double ms = timed(e, s, 6) / k;
      // correctness of all-gather
      int bad = 0; if (op == 0) { float host[4]; cudaMemcpy(host, (char *)p + (1 - rank) * half * 4, 16, cudaMemcpyDeviceToHost); size_t first = ((1 - rank) * half) & 1023; bad = host[1] != 1.0f + (1 - rank) + first + 1; }
      // beside a kernel that holds all multiprocessors for 20 ms
      C(cudaDeviceSynchronize()); cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
      hog<<<132, 384, 200 * 1024, h>>>(20 * 1700000LL); usleep(2000);
      cudaEventRecord(a, s); cudaGraphLaunch(e, s); cudaEventRecord(b, s); C(cudaStreamSynchronize(s)); float busy; cudaEventElapsedTime(&busy, a, b);
      C(cudaDeviceSynchronize());
      if (!rank) printf("mode %d %s %4zu MiB: %.3f ms, %.0f GB/s per direction; beside a hog %.2f ms for %d; nodes kernel %d memcpy %d memset %d other %d; %s\n", mode, op ? "reduce_scatter" : "all_gather", bytes >> 20, ms, bytes / 2 / ms / 1e6, busy, k, types[0], types[1], types[2], (int)nodes - types[0] - types[1] - types[2], bad ? "WRONG" : "ok");
      fflush(stdout); cudaGraphExecDestroy(e); cudaGraphDestroy(g);
    }
    if (win) N(ncclCommWindowDeregister(comm, win));
    N(ncclCommDestroy(comm));
    if (mode == 0) cudaFree(p); else ncclMemFree(p);
  }
  if (rank == 0) wait(NULL);
  return 0;
}
