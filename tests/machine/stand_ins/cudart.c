/* Stand-in for libcudart: the few calls that TensorFlow makes before any kernel runs. It answers for device 0 alone. */
#include "machine.h"

#define API EXPORT int

static _Thread_local int current;
static void *fat_binary;

API cudaGetDevice(int *device) { *device = current; return enter(__func__); }
API cudaSetDevice(int device) { current = device; return enter(__func__); }
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
