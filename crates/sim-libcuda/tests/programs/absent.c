/* Calls a function that is not simulated: one of the kind that the argument says. */

#include <cuda.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const void *table = NULL;
    CUuuid id = {{0}};
    CUresult code = cuInit(0);
    if (argc == 2 && code == CUDA_SUCCESS) {
        if (strcmp(argv[1], "table") == 0) code = cuGetExportTable(&table, &id);
        if (strcmp(argv[1], "array") == 0) code = cuArrayDestroy(NULL);
    }
    printf("%d\n", (int)code);
    return 0;
}
