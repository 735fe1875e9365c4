// A program of the CUDA runtime. It prints a line for each part, and exits with 1 after a wrong
// result.

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__device__ int added[4] = {1, 2, 3, 4};
__constant__ float factor;
__managed__ int managed = 5;

__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * factor + added[i % 4];
}

__global__ void increment() { managed += 1; }

static const int N = 8;
static const size_t BYTES = N * sizeof(float);

static void expect(cudaError_t found, cudaError_t expected, const char *what) {
    if (found == expected) return;
    printf("%s: %s, not %s\n", what, cudaGetErrorName(found), cudaGetErrorName(expected));
    exit(1);
}

#define OK(call) expect(call, cudaSuccess, #call)
#define FAILS(code, call) expect(call, code, #call)
#define CHECK(condition) \
    if (!(condition)) { printf("wrong: %s\n", #condition); exit(1); }

static float *filled() {
    float host[N], *device;
    for (int i = 0; i < N; i++) host[i] = i;
    OK(cudaMalloc(&device, BYTES));
    OK(cudaMemcpy(device, host, BYTES, cudaMemcpyHostToDevice));
    // A non-blocking stream does not wait for the rest of a copy from pageable memory.
    OK(cudaDeviceSynchronize());
    return device;
}

static void compare(float *device, int times) {
    float host[N];
    OK(cudaMemcpy(host, device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        float expected = i;
        for (int time = 0; time < times; time++) expected = expected * 2 + i % 4 + 1;
        CHECK(host[i] == expected);
    }
}

static void devices() {
    int count, version, threads;
    cudaDeviceProp properties;
    OK(cudaGetDeviceCount(&count));
    OK(cudaGetDeviceProperties(&properties, 0));
    OK(cudaDriverGetVersion(&version));
    OK(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, 0));
    CHECK(threads == properties.maxThreadsPerBlock);
    printf("devices: %d, %d.%d, driver %d\n", count, properties.major, properties.minor, version);
}

static void launches() {
    float *x = filled(), two = 2;
    OK(cudaMemcpyToSymbol(factor, &two, sizeof two));
    scale<<<1, N>>>(x, N);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    compare(x, 1);
    OK(cudaMemset(x, 0, BYTES));
    increment<<<1, 1>>>();
    OK(cudaDeviceSynchronize());
    CHECK(managed == 6);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, x));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.hostPointer == nullptr);
    OK(cudaFree(x));
    puts("launches");
}

static void kernels() {
    cudaFuncAttributes attributes;
    int blocks, size;
    OK(cudaFuncGetAttributes(&attributes, scale));
    CHECK(attributes.maxThreadsPerBlock == 1024);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 128, 0));
    CHECK(blocks > 0);
    OK(cudaOccupancyMaxPotentialBlockSize(&blocks, &size, scale));
    CHECK(blocks > 0 && size > 0);
    puts("kernels");
}

static void streams() {
    float *x = filled(), *pooled, milliseconds;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(begin, stream));
    scale<<<2, N / 2, 0, stream>>>(x, N);
    OK(cudaMallocAsync(&pooled, BYTES, stream));
    OK(cudaMemcpyAsync(pooled, x, BYTES, cudaMemcpyDeviceToDevice, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, begin, end));
    compare(pooled, 1);
    OK(cudaFreeAsync(pooled, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
    puts("streams");
}

static void graphs() {
    float *x = filled();
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    scale<<<1, N, 0, stream>>>(x, N);
    scale<<<1, N, 0, stream>>>(x, N);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    compare(x, 4);
    size_t count = 1;
    cudaGraphNode_t node;
    cudaKernelNodeParams parameters;
    OK(cudaGraphGetRootNodes(graph, &node, &count));
    OK(cudaGraphKernelNodeGetParams(node, &parameters));
    CHECK(parameters.func == (void *)scale && parameters.blockDim.x == N);
    parameters.gridDim = dim3(2);
    OK(cudaGraphExecKernelNodeSetParams(exec, node, &parameters));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
    puts("graphs");
}

static void errors() {
    float *x = filled(), host[N];
    scale<<<1, 4096>>>(x, N);
    CHECK(cudaPeekAtLastError() != cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess);
    OK(cudaGetLastError());
    FAILS(cudaErrorInvalidValue, cudaMemcpy(nullptr, host, BYTES, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidDevice, cudaSetDevice(99));
    OK(cudaFree(nullptr));
    OK(cudaFree(x));
    FAILS(cudaErrorInvalidValue, cudaFree(x));
    FAILS(cudaErrorInvalidValue, cudaGetLastError());
    puts("errors");
}

int main() {
    devices();
    launches();
    kernels();
    streams();
    graphs();
    errors();
    OK(cudaDeviceReset());
    // The runtime starts again, with its variables in their first state.
    float *x = filled();
    scale<<<1, N>>>(x, N);
    OK(cudaDeviceSynchronize());
    OK(cudaDeviceReset());
    puts("reset");
}
