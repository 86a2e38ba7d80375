/* Stand-in for libcuda.so.1, second part: what TensorFlow needs to start its context. Device memory is host memory, so
   that copies are true; every other piece of work is done the moment it is asked for; no kernel can run. */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PROHIBITED 2

struct allocation {
    struct allocation *next;
    char *address;
    size_t size;
    struct device *device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static _Thread_local struct device *current; /* a device's context is the device itself */

API cuDevicePrimaryCtxRetain(struct device **context, int ordinal) {
    DEVICE(ordinal);
    NEEDS(context);
    if (device->gpu->compute_mode == PROHIBITED) return UNKNOWN;
    *context = device;
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int ordinal) { DEVICE(ordinal); return SUCCESS; }
API cuDevicePrimaryCtxSetFlags_v2(int ordinal, unsigned flags) { DEVICE(ordinal); (void)flags; return SUCCESS; }

API cuDevicePrimaryCtxGetState(int ordinal, unsigned *flags, int *active) {
    DEVICE(ordinal);
    NEEDS(flags && active);
    *flags = 0;
    *active = device == current;
    return SUCCESS;
}

API cuCtxSetCurrent(struct device *context) { CALL(); current = context; return SUCCESS; }
API cuCtxGetCurrent(struct device **context) { CALL(); NEEDS(context); *context = current; return SUCCESS; }
API cuCtxSynchronize(void) { CALL(); return SUCCESS; }

API cuCtxGetDevice(int *ordinal) {
    CALL();
    NEEDS(ordinal);
    if (!current) return INVALID_CONTEXT;
    *ordinal = (int)(current - devices);
    return SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CALL();
    NEEDS(least && greatest);
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

API cuDeviceCanAccessPeer(int *can, int ordinal, int peer) {
    DEVICE(ordinal);
    NEEDS(can && peer >= 0 && peer < device_count);
    *can = 0;
    return SUCCESS;
}

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    CALL();
    NEEDS(free_bytes && total_bytes);
    if (!current) return INVALID_CONTEXT;
    *free_bytes = (size_t)memory_free(current);
    *total_bytes = (size_t)memory_total(current);
    return SUCCESS;
}

static int reserve(char **address, size_t size, struct device *device) {
    if (device && (long long)size > memory_free(device)) return OUT_OF_MEMORY;
    struct allocation *allocation = malloc(sizeof *allocation);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!allocation || memory == MAP_FAILED) {
        free(allocation);
        return OUT_OF_MEMORY;
    }
    if (device) device->allocated += (long long)size;
    *allocation = (struct allocation){allocations, memory, size, device};
    allocations = allocation;
    *address = memory;
    return SUCCESS;
}

static int release(const char *address) {
    for (struct allocation **link = &allocations; *link; link = &(*link)->next) {
        struct allocation *allocation = *link;
        if (allocation->address != address) continue;
        *link = allocation->next;
        if (allocation->device) allocation->device->allocated -= (long long)allocation->size;
        munmap(allocation->address, allocation->size);
        free(allocation);
        return SUCCESS;
    }
    return INVALID_VALUE;
}

static int locked_reserve(char **address, size_t size, struct device *device) {
    pthread_mutex_lock(&lock);
    int refused = reserve(address, size, device);
    pthread_mutex_unlock(&lock);
    return refused;
}

static int locked_release(const char *address) {
    pthread_mutex_lock(&lock);
    int refused = release(address);
    pthread_mutex_unlock(&lock);
    return refused;
}

API cuMemAlloc_v2(char **address, size_t size) {
    CALL();
    NEEDS(address && size);
    if (!current) return INVALID_CONTEXT;
    note("bytes", size);
    return locked_reserve(address, size, current);
}

API cuMemFree_v2(char *address) { CALL(); return locked_release(address); }
API cuMemFreeHost(char *address) { CALL(); return locked_release(address); }

API cuMemHostAlloc(char **address, size_t size, unsigned flags) {
    CALL();
    NEEDS(address && size);
    (void)flags;
    return locked_reserve(address, size, NULL);
}

API cuMemHostUnregister(void *address) { CALL(); (void)address; return SUCCESS; }

API cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    CALL();
    (void)address, (void)size, (void)flags;
    return SUCCESS;
}

#define COPY(function) \
    API function(void *to, const void *from, size_t size) { CALL(); memcpy(to, from, size); return SUCCESS; }
#define COPY_ASYNC(function) \
    API function(void *to, const void *from, size_t size, void *stream) { \
        CALL(); \
        (void)stream; \
        memcpy(to, from, size); \
        return SUCCESS; \
    }
#define FILL(function, type) \
    API function(type *to, type value, size_t count) { \
        CALL(); \
        for (size_t i = 0; i < count; i++) to[i] = value; \
        return SUCCESS; \
    }
#define FILL_ASYNC(function, type) \
    API function(type *to, type value, size_t count, void *stream) { \
        CALL(); \
        (void)stream; \
        for (size_t i = 0; i < count; i++) to[i] = value; \
        return SUCCESS; \
    }

COPY(cuMemcpyHtoD_v2)
COPY(cuMemcpyDtoH_v2)
COPY(cuMemcpyDtoD_v2)
COPY_ASYNC(cuMemcpyAsync)
COPY_ASYNC(cuMemcpyHtoDAsync_v2)
COPY_ASYNC(cuMemcpyDtoHAsync_v2)
COPY_ASYNC(cuMemcpyDtoDAsync_v2)
FILL(cuMemsetD8_v2, unsigned char)
FILL(cuMemsetD32_v2, unsigned)
FILL_ASYNC(cuMemsetD8Async, unsigned char)
FILL_ASYNC(cuMemsetD32Async, unsigned)

static int handle(void **out) {
    NEEDS(out);
    *out = malloc(1);
    return *out ? SUCCESS : OUT_OF_MEMORY;
}

API cuStreamCreate(void **stream, unsigned flags) { CALL(); (void)flags; return handle(stream); }
API cuStreamDestroy_v2(void *stream) { CALL(); free(stream); return SUCCESS; }
API cuStreamQuery(void *stream) { CALL(); (void)stream; return SUCCESS; }
API cuStreamSynchronize(void *stream) { CALL(); (void)stream; return SUCCESS; }

API cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    CALL();
    (void)flags, (void)priority;
    return handle(stream);
}

API cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    CALL();
    (void)stream, (void)event, (void)flags;
    return SUCCESS;
}

API cuStreamIsCapturing(void *stream, int *capturing) {
    CALL();
    (void)stream;
    NEEDS(capturing);
    *capturing = 0;
    return SUCCESS;
}

API cuStreamAddCallback(void *stream, void (*callback)(void *, int, void *), void *data, unsigned flags) {
    CALL();
    (void)flags;
    callback(stream, SUCCESS, data);
    return SUCCESS;
}

API cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    CALL();
    (void)stream;
    function(data);
    return SUCCESS;
}

API cuEventCreate(void **event, unsigned flags) { CALL(); (void)flags; return handle(event); }
API cuEventDestroy_v2(void *event) { CALL(); free(event); return SUCCESS; }
API cuEventRecord(void *event, void *stream) { CALL(); (void)event, (void)stream; return SUCCESS; }
API cuEventQuery(void *event) { CALL(); (void)event; return SUCCESS; }
API cuEventSynchronize(void *event) { CALL(); (void)event; return SUCCESS; }

API cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    CALL();
    (void)start, (void)end;
    NEEDS(milliseconds);
    *milliseconds = 0;
    return SUCCESS;
}
