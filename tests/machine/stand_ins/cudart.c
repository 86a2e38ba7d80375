/* Stand-in for libcudart: the few calls that TensorFlow makes before any kernel runs. */
#include "machine.h"

#include <dlfcn.h>

#define API EXPORT int
#define NO_DEVICE 100

static _Thread_local int current;
static void *fat_binary;

API cudaGetDevice(int *device) { *device = current; return enter(__func__); }
API cudaSetDevice(int device) { current = device; return enter(__func__); }
/* Asks libcuda, as the real one does. */
API cudaGetDeviceCount(int *count) {
    int refused = enter(__func__);
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int (*start)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    int (*ask)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDeviceGetCount") : NULL;
    *count = 0;
    if (!refused) refused = start && ask ? start(0) : NO_DEVICE;
    return refused ? refused : ask(count);
}

API cudaGetLastError(void) { return 0; }
API cudaPeekAtLastError(void) { return 0; }

API cudaRuntimeGetVersion(int *version) {
    *version = (int)machine.cudart;
    return enter(__func__);
}

API cudaDriverGetVersion(int *version) {
    *version = (int)machine.cuda;
    return enter(__func__);
}

EXPORT const char *cudaGetErrorString(int code) { return code ? "unknown error" : "no error"; }
EXPORT const char *cudaGetErrorName(int code) { return code ? "cudaErrorUnknown" : "cudaSuccess"; }

/* Called for every group of kernels when TensorFlow is loaded. */
EXPORT void **__cudaRegisterFatBinary(void *binary) { (void)binary; return &fat_binary; }
EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
EXPORT void __cudaRegisterFunction(void) {}
EXPORT void __cudaRegisterVar(void) {}
EXPORT unsigned __cudaPushCallConfiguration(void) { return 0; }
API __cudaPopCallConfiguration(void) { return 0; }
