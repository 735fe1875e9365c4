/* A host function that calls the driver, which is not allowed: it must be told, and must not hang. */

#include <cuda.h>
#include <stdio.h>

static void CUDA_CB called(void *data) {
    *(CUresult *)data = cuCtxSynchronize();
}

int main(void) {
    CUcontext context;
    CUstream stream;
    CUresult inside = CUDA_SUCCESS;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return 1;
    if (cuLaunchHostFunc(stream, called, &inside)) return 1;
    cuStreamSynchronize(stream);
    printf("%d\n", (int)inside);
    return 0;
}
