/* A program of the driver API as anybody might write it: nothing here knows of a simulator.
   It runs saxpy once at once, then three times as a captured graph. */

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                             \
    do {                                                                                        \
        CUresult code = (call);                                                                 \
        if (code != CUDA_SUCCESS) {                                                             \
            const char *name = "?";                                                             \
            cuGetErrorName(code, &name);                                                        \
            printf("%s failed: %s (%d)\n", #call, name, (int)code);                             \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

enum { N = 1000 };

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        printf("cannot open %s\n", path);
        exit(1);
    }
    static char text[1 << 16];
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void expect(const float *y, float factor, const char *when) {
    for (int i = 0; i < N; i++) {
        float wanted = 1.0f + factor * (float)i;
        if (y[i] != wanted) {
            printf("%s: y[%d] is %f and not %f\n", when, i, y[i], wanted);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    char name[64];
    int devices, major;
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));

    CUmodule module;
    CUfunction saxpy;
    CHECK(cuModuleLoadData(&module, read_file(argv[1])));
    CHECK(cuModuleGetFunction(&saxpy, module, "saxpy"));

    float *host;
    CUdeviceptr x, y;
    CHECK(cuMemAllocHost((void **)&host, N * sizeof(float)));
    CHECK(cuMemAlloc(&x, N * sizeof(float)));
    CHECK(cuMemAlloc(&y, N * sizeof(float)));
    for (int i = 0; i < N; i++) host[i] = (float)i;
    CHECK(cuMemcpyHtoD(x, host, N * sizeof(float)));
    CHECK(cuMemsetD32(y, 0x3f800000, N));

    float a = 2.0f;
    unsigned n = N;
    void *parameters[] = {&y, &x, &a, &n};
    CUstream stream;
    CUevent begin, end;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK(cuCtxSynchronize());
    CHECK(cuEventRecord(begin, stream));
    CHECK(cuLaunchKernel(saxpy, 4, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuEventRecord(end, stream));
    CHECK(cuMemcpyDtoHAsync(host, y, N * sizeof(float), stream));
    CHECK(cuStreamSynchronize(stream));
    expect(host, 2.0f, "at once");

    float milliseconds = -1.0f;
    CHECK(cuEventElapsedTime(&milliseconds, begin, end));
    if (milliseconds < 0.0f) return 1;

    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchKernel(saxpy, 4, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuMemcpyDtoHAsync(host, y, N * sizeof(float), stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    if (nodes != 2) return 1;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int replay = 1; replay <= 3; replay++) {
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        expect(host, 2.0f + 2.0f * (float)replay, "replayed");
    }

    /* The same function by name and by link; an earlier form of another one. */
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    CHECK(cuGetProcAddress("cuMemAlloc", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    if (found != (void *)&cuMemAlloc || status != CU_GET_PROC_ADDRESS_SUCCESS) return 1;
    CUresult (*elapsed)(float *, CUevent, CUevent);
    CHECK(cuGetProcAddress("cuEventElapsedTime", (void **)&elapsed, 12000, 0, &status));
    if ((void *)elapsed == (void *)&cuEventElapsedTime) return 1;
    CHECK(elapsed(&milliseconds, begin, end));

    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuEventDestroy(begin));
    CHECK(cuEventDestroy(end));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuMemFree(x));
    CHECK(cuMemFree(y));
    CHECK(cuMemFreeHost(host));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));

    /* Deprecated functions. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    int minor = -1;
    CUcontext created, current;
    CHECK(cuDeviceComputeCapability(&major, &minor, device));
    if (minor < 0) return 1;
    CHECK(cuCtxCreate(&created, NULL, 0, device));
    CHECK(cuCtxDetach(created));
    CHECK(cuCtxGetCurrent(&current));
    if (current == created) return 1;
    printf("%d device(s), %s, %d.x: correct\n", devices, name, major);
    return 0;
}
