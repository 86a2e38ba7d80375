/* Stand-in for libcuda.so.1, first part: initialisation and the facts about each device. */
#include "cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t initialised_in;

/* A process that is forked off afterwards never gets an answer again, from cuInit either. */
static int is_copy(void) { return initialised_in && initialised_in != getpid(); }

int cuda_enter(const char *function) {
    int refused = enter(function);
    return refused ? refused : initialised_in && !is_copy() ? SUCCESS : NOT_INITIALIZED;
}

int cuda_enter_device(const char *function, int ordinal) {
    int refused = cuda_enter(function);
    if (refused) return refused;
    if (ordinal < 0 || ordinal >= device_count) return INVALID_DEVICE;
    refused = enter_at(function, devices[ordinal].gpu);
    return refused || !devices[ordinal].mig ? refused : enter_at(function, devices[ordinal].mig);
}

/* Without any device that this process may use, cuInit itself says so. */
API cuInit(unsigned flags) {
    (void)flags;
    int refused = enter(__func__);
    if (refused) return refused;
    if (is_copy()) return NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    if (!initialised_in) {
        choose_devices();
        initialised_in = device_count > 0 ? getpid() : 0;
    }
    pthread_mutex_unlock(&lock);
    return initialised_in ? SUCCESS : NO_DEVICE;
}

API cuDriverGetVersion(int *version) {
    int refused = enter(__func__);
    if (refused) return refused;
    NEEDS(version);
    *version = (int)machine.cuda;
    return SUCCESS;
}

static const struct { int code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};

#define ERROR_TEXT(function, member) \
    API function(int code, const char **out) { \
        int refused = enter(__func__); \
        if (refused) return refused; \
        NEEDS(out); \
        *out = NULL; \
        for (size_t i = 0; i < sizeof errors / sizeof *errors && !*out; i++) \
            if (errors[i].code == code) *out = errors[i].member; \
        return *out ? SUCCESS : INVALID_VALUE; \
    }

ERROR_TEXT(cuGetErrorName, name)
ERROR_TEXT(cuGetErrorString, text)

API cuDeviceGetCount(int *count) {
    CALL();
    NEEDS(count);
    *count = device_count;
    return SUCCESS;
}

API cuDeviceGet(int *device_out, int ordinal) {
    DEVICE(ordinal);
    NEEDS(device_out);
    *device_out = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char *name, int size, int ordinal) {
    DEVICE(ordinal);
    NEEDS(name && size > 0);
    snprintf(name, (size_t)size, "%s", device->mig ? device->mig->name : device->gpu->name);
    return SUCCESS;
}

/* The first version names the GPU, the second the MIG instance where the device is one. */
API cuDeviceGetUuid(unsigned char *uuid, int ordinal) {
    DEVICE(ordinal);
    NEEDS(uuid);
    uuid_bytes(device->gpu->uuid, uuid);
    return SUCCESS;
}

API cuDeviceGetUuid_v2(unsigned char *uuid, int ordinal) {
    DEVICE(ordinal);
    NEEDS(uuid);
    uuid_bytes(device->mig ? device->mig->uuid : device->gpu->uuid, uuid);
    return SUCCESS;
}

API cuDeviceGetPCIBusId(char *bus_id, int size, int ordinal) {
    DEVICE(ordinal);
    NEEDS(bus_id && size > 0);
    const struct gpu *gpu = device->gpu;
    snprintf(bus_id, (size_t)size, "%04llX:%02llX:%02llX.0", (unsigned long long)gpu->pci_domain,
             (unsigned long long)gpu->pci_bus, (unsigned long long)gpu->pci_device);
    return SUCCESS;
}

API cuDeviceGetByPCIBusId(int *device_out, const char *bus_id) {
    unsigned domain, bus, slot;
    CALL();
    NEEDS(device_out && bus_id && sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3);
    for (int i = 0; i < device_count; i++) {
        const struct gpu *gpu = devices[i].gpu;
        if (gpu->pci_domain != domain || gpu->pci_bus != bus || gpu->pci_device != slot) continue;
        *device_out = i;
        return enter_at(__func__, gpu);
    }
    return INVALID_DEVICE;
}

API cuDeviceComputeCapability(int *major, int *minor, int ordinal) {
    DEVICE(ordinal);
    NEEDS(major && minor);
    *major = (int)device->gpu->capability_major;
    *minor = (int)device->gpu->capability_minor;
    return SUCCESS;
}

long long memory_total(const struct device *device) {
    return device->mig ? device->mig->memory_total : device->gpu->memory_total;
}

long long memory_free(const struct device *device) {
    long long used = device->mig ? device->mig->memory_used + device->mig->memory_reserved
                                 : device->gpu->memory_used + device->gpu->memory_reserved;
    return memory_total(device) - used - device->allocated;
}

API cuDeviceTotalMem_v2(size_t *bytes, int ordinal) {
    DEVICE(ordinal);
    NEEDS(bytes);
    *bytes = (size_t)memory_total(device);
    return SUCCESS;
}

/* Numbers are those of CUdevice_attribute. What is not here reads 0, which is "no" for a question. */
static int attribute(const struct device *device, int which) {
    const struct gpu *gpu = device->gpu;
    const int capability = (int)(gpu->capability_major * 10 + gpu->capability_minor);
    switch (which) {
    case 1: case 2: case 3: return 1024;                          /* threads of a block; block, x and y */
    case 4: return 64;                                            /* block, z */
    case 5: return 2147483647;                                    /* grid, x */
    case 6: case 7: return 65535;                                 /* grid, y and z */
    case 8: return 48 << 10;                                      /* shared memory of a block */
    case 9: case 12: case 82: return 65536;                       /* constant memory; registers, block and processor */
    case 10: return 32;                                           /* warp */
    case 11: return 2147483647;                                   /* pitch */
    case 13: return (int)gpu->clock_mhz * 1000;
    case 14: return 512;                                          /* texture alignment */
    case 16: return (int)(device->mig ? device->mig->multiprocessors : gpu->multiprocessors);
    case 18: return (int)gpu->integrated;
    case 19: case 31: case 41: case 83: return 1;                 /* host mapping, concurrency, one address space */
    case 20: return (int)gpu->compute_mode;
    case 32: return gpu->ecc > 0;
    case 33: return (int)gpu->pci_bus;
    case 34: return (int)gpu->pci_device;
    case 36: return 1593000;                                      /* memory clock, kHz */
    case 37: return 384;                                          /* memory bus, bits */
    case 38: return 6 << 20;                                      /* L2 */
    case 39: return capability == 75 ? 1024 : capability % 10 ? 1536 : 2048; /* threads of a processor */
    case 40: return 2;                                            /* copy engines */
    case 50: return (int)gpu->pci_domain;
    case 75: return (int)gpu->capability_major;
    case 76: return (int)gpu->capability_minor;
    case 81: return capability >= 90 ? 228 << 10 : 100 << 10;     /* shared memory of a processor */
    case 97: return capability >= 90 ? 227 << 10 : capability >= 80 ? 99 << 10 : 64 << 10;
    default: return 0;
    }
}

API cuDeviceGetAttribute(int *value, int which, int ordinal) {
    DEVICE(ordinal);
    NEEDS(value);
    *value = attribute(device, which);
    return SUCCESS;
}
