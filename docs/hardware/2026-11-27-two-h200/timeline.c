// Writes start, end (ns), stream, blocks, threads and name of each kernel and copy of a process, also in graphs, to
// $TRACE_OUT.<process>.
//
// C=/usr/local/cuda/targets/x86_64-linux
// gcc -shared -fPIC -O1 -DKERNEL=CUpti_ActivityKernel10 -DMEMCPY=CUpti_ActivityMemcpy6 -DPEERCPY=CUpti_ActivityMemcpyPtoP4
//     -I$C/include timeline.c -o timeline.so $C/lib/libcupti.so.13
// TRACE_OUT=trace CUDA_INJECTION64_PATH=./timeline.so retrograph finetune ... --steps 14
#include <cuda.h>
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static FILE *out;
static void request(uint8_t **buffer, size_t *size, size_t *max) { *size = 16 << 20; *buffer = aligned_alloc(8, *size); *max = 0; }
static void completed(CUcontext c, uint32_t s, uint8_t *buffer, size_t size, size_t valid) {
  CUpti_Activity *r = NULL;
  while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS) {
    if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || r->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      KERNEL *k = (KERNEL *)r;
      fprintf(out, "%llu %llu %u %d %d %s\n", (unsigned long long)k->start, (unsigned long long)k->end, k->streamId, k->gridX * k->gridY * k->gridZ, k->blockX, k->name);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      MEMCPY *k = (MEMCPY *)r;
      fprintf(out, "%llu %llu %u %d %d copy_%llu\n", (unsigned long long)k->start, (unsigned long long)k->end, k->streamId, 0, 0, (unsigned long long)k->bytes);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
      PEERCPY *k = (PEERCPY *)r;
      fprintf(out, "%llu %llu %u %d %d copy_peer_%llu\n", (unsigned long long)k->start, (unsigned long long)k->end, k->streamId, 0, 0, (unsigned long long)k->bytes);
    }
  }
  free(buffer);
}
static void at_exit(void) { cuptiActivityFlushAll(1); fflush(out); }
int InitializeInjection(void) {
  char path[256]; snprintf(path, 256, "%s.%d", getenv("TRACE_OUT"), getpid());
  out = fopen(path, "w");
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2);
  cuptiActivityRegisterCallbacks(request, completed);
  atexit(at_exit);
  return 1;
}
