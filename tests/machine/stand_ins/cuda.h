/* What the parts of the stand-in for libcuda.so.1 share. */
#ifndef HWPROBE_TEST_CUDA_H
#define HWPROBE_TEST_CUDA_H

#include "machine.h"

#define API EXPORT int

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, UNSUPPORTED_CALL = 801, UNKNOWN = 999
};

/* One device of this process: a GPU, or (`mig` not NULL) one instance of it. */
struct device {
    struct gpu *gpu;
    struct mig *mig;
    long long allocated;
};

extern struct device *devices;
extern int device_count;

/* Fills `devices` as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of this process ask. */
void choose_devices(void);

int cuda_enter(const char *function);
int cuda_enter_device(const char *function, int ordinal);

long long memory_total(const struct device *device);
long long memory_free(const struct device *device);

#define CALL() do { int refused_ = cuda_enter(__func__); if (refused_) return refused_; } while (0)
#define DEVICE(ordinal) \
    do { int refused_ = cuda_enter_device(__func__, ordinal); if (refused_) return refused_; } while (0); \
    struct device *device = &devices[ordinal]; \
    (void)device
#define NEEDS(pointer) do { if (!(pointer)) return INVALID_VALUE; } while (0)

#endif
