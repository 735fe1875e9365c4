/* Calls functions that are not simulated, of the kinds that the arguments say, then a function that
   is simulated. Prints the codes. */

#include <cuda.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const void *table = &table;
    CUuuid id = {{1}};
    CUdevice device;
    const char *text = NULL;
    CUresult code = cuInit(0);
    for (int i = 1; i < argc && code != CUDA_ERROR_NOT_INITIALIZED; i++) {
        if (strcmp(argv[i], "table") == 0) code = cuGetExportTable(&table, &id);
        if (strcmp(argv[i], "texture") == 0) code = cuTexObjectDestroy(0);
        printf("%d ", (int)code);
    }
    if (cuGetErrorString(code, &text) != CUDA_SUCCESS) return 1;
    printf("%d %s\n", (int)cuDeviceGet(&device, 0), table == NULL ? "no table" : "untouched");
    return 0;
}
