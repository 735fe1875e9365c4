/* The part of the CUDA runtime's header that nccl.h uses: streams and events, whose types are those of
   the driver API. The real header includes dozens of others. */
#ifndef RETROGRAPH_CUDA_RUNTIME_H
#define RETROGRAPH_CUDA_RUNTIME_H
#include <cuda.h>
typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
#endif
