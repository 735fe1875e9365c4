/* Compiled for per-thread default streams: two threads compute on their own default stream, which
   is a null stream here. Prints what differs from the expected. */

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                             \
    do {                                                                                        \
        CUresult code = (call);                                                                 \
        if (code != CUDA_SUCCESS) {                                                             \
            printf("%s failed: %d\n", #call, (int)code);                                        \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define EXPECT(condition)                                                                       \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            printf("not true: %s\n", #condition);                                               \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

enum { N = 1000 };

static CUcontext context;

typedef CUresult (*GetId)(CUstream, unsigned long long *);

/* Computes on the default stream of the thread. Returns its id. */
static void *compute(void *unused) {
    (void)unused;
    static unsigned words[2][N];
    static int calls;
    unsigned *found = words[calls], value = 7 + (unsigned)calls++;
    unsigned long long id, own, legacy;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamGetId(NULL, &id));
    CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
    CHECK(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
    EXPECT(id == own && id != legacy);

    CUdeviceptr at, copy;
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemAllocAsync(&at, sizeof words[0], NULL));
    CHECK(cuMemAllocAsync(&copy, sizeof words[0], NULL));
    CHECK(cuMemsetD32Async(at, value, N, NULL));
    CHECK(cuEventRecord(event, NULL));
    CHECK(cuMemcpyDtoD(copy, at, sizeof words[0]));
    CHECK(cuMemcpyDtoH(found, copy, sizeof words[0]));
    CHECK(cuEventQuery(event));
    for (int i = 0; i < N; i++) EXPECT(found[i] == value);

    /* The default stream of a thread can be captured; the legacy stream cannot. */
    CUgraph graph;
    size_t nodes = 0;
    CHECK(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemsetD32Async(at, 1, N, NULL));
    CHECK(cuStreamEndCapture(NULL, &graph));
    CHECK(cuGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes == 1);
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFreeAsync(at, NULL));
    CHECK(cuMemFreeAsync(copy, NULL));
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuEventDestroy(event));
    return (void *)(size_t)id;
}

int main(void) {
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    void *here = compute(NULL), *there;
    pthread_t thread;
    if (pthread_create(&thread, NULL, compute, NULL) || pthread_join(thread, &there)) return 1;
    EXPECT(here != there);

    /* By name, the flag chooses; the header adds it in this program. */
    void *added, *legacy, *only, *linked = (void *)&cuStreamGetId;
    CHECK(cuGetProcAddress("cuStreamGetId", &added, 12000, 0, NULL));
    CHECK(cuGetProcAddress("cuStreamGetId", &legacy, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    CHECK(cuGetProcAddress("cuStreamCreate", &only, 12000, 0, NULL));
    EXPECT(added == linked && legacy != linked && only == (void *)&cuStreamCreate);
    unsigned long long id;
    CHECK(((GetId)added)(NULL, &id));
    EXPECT(id == (size_t)here);
    CHECK(((GetId)legacy)(NULL, &id));
    EXPECT(id != (size_t)here);
    CHECK(cuDevicePrimaryCtxRelease(device));
    puts("as expected");
    return 0;
}
