/* Stand-in for libnvidia-ml.so.1, first half: the library itself, its versions, and how a device is found. */
#define _GNU_SOURCE
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int references, counted;

int nvml_enter(const char *function) {
    int refused = enter(function);
    return refused ? refused : references > 0 ? SUCCESS : UNINITIALIZED;
}

static int locate(void *handle, struct gpu **gpu, struct mig **mig) {
    for (size_t i = 0; i < machine.gpu_count; i++) {
        *gpu = machine.gpus[i];
        *mig = NULL;
        if (handle == *gpu) return SUCCESS;
        for (size_t j = 0; j < (*gpu)->mig_count; j++)
            if (handle == (*mig = (*gpu)->migs[j])) return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

int nvml_enter_device(const char *function, void *handle, struct gpu **gpu, struct mig **mig) {
    int refused = nvml_enter(function);
    if (!refused) refused = locate(handle, gpu, mig);
    return refused ? refused : enter_at(function, handle);
}

int nvml_text(char *out, unsigned size, const char *text) {
    NEEDS(out);
    if (size < strlen(text) + 1) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int hand_out(const char *function, void *found, void **handle) {
    int refused = enter_at(function, found);
    if (!refused) *handle = found;
    return refused;
}

static struct gpu *gpu_at(unsigned index) {
    for (size_t i = 0; i < machine.gpu_count; i++)
        if (machine.gpus[i]->in_nvml && !index--) return machine.gpus[i];
    return NULL;
}

static int initialise(const char *function) {
    int refused = enter(function);
    if (!refused) __atomic_add_fetch(&references, 1, __ATOMIC_SEQ_CST);
    return refused;
}

API nvmlInit(void) { return initialise(__func__); }
API nvmlInit_v2(void) { return initialise(__func__); }
API nvmlInitWithFlags(unsigned flags) { (void)flags; return initialise(__func__); }

API nvmlShutdown(void) {
    CALL();
    __atomic_sub_fetch(&references, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(int code) {
    static const struct { int code; const char *text; } texts[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {6, "Not Found"}, {7, "Insufficient Size"},
        {8, "Insufficient External Power"}, {9, "Driver Not Loaded"}, {10, "Timeout"},
        {11, "Interrupt Request Issue"}, {12, "NVML Shared Library Not Found"}, {13, "Function Not Found"},
        {14, "Corrupted infoROM"}, {15, "GPU is lost"}, {16, "GPU requires reset"},
        {17, "GPU access blocked by the operating system"}, {18, "Driver/library version mismatch"},
        {19, "GPU in use"}, {20, "Insufficient Memory"}, {25, "Argument version mismatch"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) return texts[i].text;
    return "Unknown Error";
}

API nvmlSystemGetDriverVersion(char *version, unsigned size) {
    CALL();
    return nvml_text(version, size, machine.driver);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    CALL();
    return nvml_text(version, size, machine.nvml_version);
}

API nvmlSystemGetCudaDriverVersion(int *version) {
    CALL();
    NEEDS(version);
    *version = (int)machine.cuda;
    return SUCCESS;
}

/* This version asks libcuda and so fails where only the utility half of the driver was put into a container. */
API nvmlSystemGetCudaDriverVersion_v2(int *version) {
    CALL();
    NEEDS(version);
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library) return LIBRARY_NOT_FOUND;
    *version = (int)machine.cuda;
    dlclose(library);
    return SUCCESS;
}

API nvmlDeviceGetCount_v2(unsigned *count) {
    CALL();
    NEEDS(count);
    for (*count = 0; gpu_at(*count);) ++*count;
    if (machine.count_calls >= 0 && counted++ >= machine.count_calls) *count = (unsigned)machine.count_then;
    return SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    CALL();
    NEEDS(handle);
    int list_changed = machine.count_calls >= 0 && counted > machine.count_calls && index >= machine.count_then;
    struct gpu *gpu = list_changed ? NULL : gpu_at(index);
    return gpu ? hand_out(__func__, gpu, handle) : INVALID_ARGUMENT;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    CALL();
    NEEDS(uuid && handle);
    for (size_t i = 0; i < machine.gpu_count; i++) {
        struct gpu *gpu = machine.gpus[i];
        if (gpu->in_nvml && !strcmp(gpu->uuid, uuid)) return hand_out(__func__, gpu, handle);
        for (size_t j = 0; gpu->in_nvml && gpu->mig_mode > 0 && j < gpu->mig_count; j++)
            if (!strcmp(gpu->migs[j]->uuid, uuid)) return hand_out(__func__, gpu->migs[j], handle);
    }
    return NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
    unsigned domain = 0, bus, device;
    CALL();
    NEEDS(bus_id && handle);
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x", &bus, &device) != 2) return INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < machine.gpu_count; i++) {
        struct gpu *gpu = machine.gpus[i];
        if (gpu->in_nvml && gpu->pci_domain == domain && gpu->pci_bus == bus && gpu->pci_device == device)
            return hand_out(__func__, gpu, handle);
    }
    return NOT_FOUND;
}

API nvmlDeviceGetIndex(void *handle, unsigned *index) {
    DEVICE(handle);
    NEEDS(index);
    if (mig) *index = (unsigned)mig->index;
    else for (*index = 0; gpu_at(*index) != gpu;) ++*index;
    return SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_mig) {
    DEVICE(handle);
    NEEDS(is_mig);
    *is_mig = mig != NULL;
    return SUCCESS;
}

API nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    DEVICE(handle);
    NEEDS(current && pending);
    GPU_ONLY();
    if (gpu->mig_mode < 0) return NOT_SUPPORTED;
    *current = (unsigned)gpu->mig_mode;
    *pending = (unsigned)gpu->mig_pending;
    return SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    DEVICE(handle);
    NEEDS(count);
    GPU_ONLY();
    *count = gpu->mig_mode > 0 ? (unsigned)gpu->mig_maximum : 0;
    return SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
    DEVICE(handle);
    NEEDS(instance);
    GPU_ONLY();
    if (gpu->mig_mode <= 0) return NOT_SUPPORTED;
    if (index >= gpu->mig_maximum) return INVALID_ARGUMENT;
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i]->index == index) return hand_out(__func__, gpu->migs[i], instance);
    return NOT_FOUND;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
    DEVICE(handle);
    NEEDS(parent);
    MIG_ONLY();
    *parent = gpu;
    return SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    DEVICE(handle);
    NEEDS(id);
    MIG_ONLY();
    *id = (unsigned)mig->gpu_instance;
    return SUCCESS;
}

API nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) {
    DEVICE(handle);
    NEEDS(id);
    MIG_ONLY();
    *id = (unsigned)mig->compute_instance;
    return SUCCESS;
}
