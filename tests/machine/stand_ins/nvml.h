/* What the two halves of the stand-in for libnvidia-ml.so.1 share: nvml.c finds devices, nvml_device.c tells of them. */
#ifndef HWPROBE_TEST_NVML_H
#define HWPROBE_TEST_NVML_H

#include "machine.h"

#define API EXPORT int

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    LIBRARY_NOT_FOUND = 12, ARGUMENT_VERSION_MISMATCH = 25
};

/* A call of the library: refused before nvmlInit and where the description says so. */
int nvml_enter(const char *function);

/* A call about a handle, which is a GPU (`mig` is NULL) or an instance of one. */
int nvml_enter_device(const char *function, void *handle, struct gpu **gpu, struct mig **mig);

int nvml_text(char *out, unsigned size, const char *text);

#define CALL() do { int refused_ = nvml_enter(__func__); if (refused_) return refused_; } while (0)
#define DEVICE(handle) \
    struct gpu *gpu = NULL; \
    struct mig *mig = NULL; \
    do { int refused_ = nvml_enter_device(__func__, handle, &gpu, &mig); if (refused_) return refused_; } while (0); \
    (void)gpu, (void)mig
#define NEEDS(pointer) do { if (!(pointer)) return INVALID_ARGUMENT; } while (0)
#define GPU_ONLY() do { if (mig) return NOT_SUPPORTED; } while (0)
#define MIG_ONLY() do { if (!mig) return NOT_SUPPORTED; } while (0)

#endif
