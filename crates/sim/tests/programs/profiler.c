/* Starts a profiler without a context, then with one by link and by name. Prints the codes. */

#include <cuda.h>
#include <stdio.h>

/* Of cudaProfiler.h. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);

int main(void) {
    CUdevice device;
    CUcontext context;
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 1;
    printf("%d ", (int)cuProfilerStart());
    if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return 1;
    if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1;
    printf("%d ", (int)cuProfilerStart());
    if (cuGetProcAddress("cuProfilerStop", &found, 12000, 0, &status) != CUDA_SUCCESS) return 1;
    if (found == NULL) return 1;
    printf("%d %d\n", (int)((CUresult(*)(void))found)(), (int)cuProfilerStop());
    return cuDevicePrimaryCtxRelease(device) != CUDA_SUCCESS;
}
