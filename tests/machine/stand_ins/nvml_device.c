/* Stand-in for libnvidia-ml.so.1, second half: what it says about one device. Structures follow the layout that
   nvidia-ml-py 13 declares for them. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

struct pci_info_v2 { char bus_id[16]; unsigned domain, bus, device, device_id, subsystem_id, reserved[4]; };
struct pci_info_v3 { char bus_id_legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; };
struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct mig_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, optical_flow, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};
struct fabric_v1 { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
struct fabric_v3 {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health_mask;
    unsigned char health_summary;
};
struct process_v1 { unsigned pid; unsigned long long memory; };
struct process_v3 { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

#define VERSION_MEMORY_V2 (sizeof(struct memory_v2) | 2 << 24)
#define VERSION_FABRIC_V2 (36u | 2 << 24)
#define VERSION_FABRIC_V3 (sizeof(struct fabric_v3) | 3 << 24)

static int number(long long value, unsigned *out) {
    NEEDS(out);
    if (value < 0) return NOT_SUPPORTED;
    *out = (unsigned)value;
    return SUCCESS;
}

API nvmlDeviceGetName(void *handle, char *name, unsigned size) {
    DEVICE(handle);
    return nvml_text(name, size, mig ? mig->name : gpu->name);
}

API nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size) {
    DEVICE(handle);
    return nvml_text(uuid, size, mig ? mig->uuid : gpu->uuid);
}

API nvmlDeviceGetPciInfo_v2(void *handle, struct pci_info_v2 *pci) {
    DEVICE(handle);
    NEEDS(pci);
    GPU_ONLY();
    memset(pci, 0, sizeof *pci);
    pci->domain = (unsigned)gpu->pci_domain;
    pci->bus = (unsigned)gpu->pci_bus;
    pci->device = (unsigned)gpu->pci_device;
    pci->device_id = (unsigned)gpu->pci_device_id << 16 | 0x10DE;
    pci->subsystem_id = (unsigned)gpu->pci_subsystem_id;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF,
             pci->device & 0xFF);
    return SUCCESS;
}

API nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info_v3 *pci) {
    DEVICE(handle);
    NEEDS(pci);
    GPU_ONLY();
    memset(pci, 0, sizeof *pci);
    pci->domain = (unsigned)gpu->pci_domain;
    pci->bus = (unsigned)gpu->pci_bus;
    pci->device = (unsigned)gpu->pci_device;
    pci->device_id = (unsigned)gpu->pci_device_id << 16 | 0x10DE;
    pci->subsystem_id = (unsigned)gpu->pci_subsystem_id;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFF, pci->device & 0xFF);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF,
             pci->device & 0xFF);
    return SUCCESS;
}

API nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    DEVICE(handle);
    NEEDS(major && minor);
    *major = (int)gpu->capability_major;
    *minor = (int)gpu->capability_minor;
    return SUCCESS;
}

struct memory { long long total, used, reserved; };

static int memory_of(const struct gpu *gpu, const struct mig *mig, struct memory *memory) {
    *memory = mig ? (struct memory){mig->memory_total, mig->memory_used, mig->memory_reserved}
                  : (struct memory){gpu->memory_total, gpu->memory_used, gpu->memory_reserved};
    return gpu->memory_readable ? SUCCESS : NOT_SUPPORTED;
}

/* The first structure has no word for the driver's own reserve and counts it as used. */
API nvmlDeviceGetMemoryInfo(void *handle, struct memory_v1 *out) {
    struct memory memory;
    DEVICE(handle);
    NEEDS(out);
    int refused = memory_of(gpu, mig, &memory);
    if (refused) return refused;
    out->total = (unsigned long long)memory.total;
    out->used = (unsigned long long)(memory.used + memory.reserved);
    out->free = out->total - out->used;
    return SUCCESS;
}

API nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out) {
    struct memory memory;
    DEVICE(handle);
    NEEDS(out);
    if (out->version != VERSION_MEMORY_V2) return ARGUMENT_VERSION_MISMATCH;
    int refused = memory_of(gpu, mig, &memory);
    if (refused) return refused;
    out->total = (unsigned long long)memory.total;
    out->used = (unsigned long long)memory.used;
    out->reserved = (unsigned long long)memory.reserved;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}

API nvmlDeviceGetAttributes_v2(void *handle, struct mig_attributes *out) {
    DEVICE(handle);
    NEEDS(out);
    MIG_ONLY();
    memset(out, 0, sizeof *out);
    out->multiprocessors = (unsigned)mig->multiprocessors;
    out->gpu_slices = (unsigned)mig->gpu_slices;
    out->compute_slices = (unsigned)mig->compute_slices;
    out->copy_engines = 1;
    out->memory_mib = (unsigned long long)mig->memory_total >> 20;
    return SUCCESS;
}

/* Facts that are one number of the whole board. */
#define BOARD_NUMBER(function, member) \
    API function(void *handle, unsigned *out) { \
        DEVICE(handle); \
        GPU_ONLY(); \
        return number(gpu->member, out); \
    }

BOARD_NUMBER(nvmlDeviceGetArchitecture, architecture)
BOARD_NUMBER(nvmlDeviceGetBrand, brand)
BOARD_NUMBER(nvmlDeviceGetMinorNumber, minor_number)
BOARD_NUMBER(nvmlDeviceGetPersistenceMode, persistence)
BOARD_NUMBER(nvmlDeviceGetVirtualizationMode, virtualization)
BOARD_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
BOARD_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation)
BOARD_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
BOARD_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width)
BOARD_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending)

API nvmlDeviceGetComputeMode(void *handle, unsigned *out) {
    DEVICE(handle);
    return number(mig ? 0 : gpu->compute_mode, out);
}

#define DRIVER_MODEL(function) \
    API function(void *handle, unsigned *current, unsigned *pending) { \
        DEVICE(handle); \
        GPU_ONLY(); \
        int refused = number(gpu->driver_model, current); \
        return refused ? refused : number(gpu->driver_model, pending); \
    }

DRIVER_MODEL(nvmlDeviceGetDriverModel)
DRIVER_MODEL(nvmlDeviceGetDriverModel_v2)

API nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    DEVICE(handle);
    GPU_ONLY();
    int refused = number(gpu->ecc, current);
    return refused ? refused : number(gpu->ecc_pending, pending);
}

/* `kind`: 0 corrected, 1 uncorrected; `counter`: 0 since the driver was loaded, 1 over the board's life. */
API nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *count) {
    DEVICE(handle);
    NEEDS(count && kind < 2 && counter < 2);
    GPU_ONLY();
    if (gpu->ecc <= 0) return NOT_SUPPORTED;
    *count = (unsigned long long)(kind ? gpu->ecc_uncorrected : gpu->ecc_corrected);
    return SUCCESS;
}

/* A board in MIG mode does not answer. */
API nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed) {
    DEVICE(handle);
    NEEDS(correctable && uncorrectable && failed);
    GPU_ONLY();
    if (gpu->mig_mode > 0) return NOT_SUPPORTED;
    *correctable = (unsigned)gpu->remapped_correctable;
    *uncorrectable = (unsigned)gpu->remapped_uncorrectable;
    *failed = (unsigned)gpu->remapped_failed;
    return number(gpu->remapped_pending, pending);
}

API nvmlDeviceGetGpuFabricInfo(void *handle, struct fabric_v1 *out) {
    DEVICE(handle);
    NEEDS(out);
    GPU_ONLY();
    if (gpu->fabric_state < 0) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->status = (int)gpu->fabric_status;
    out->state = (unsigned char)gpu->fabric_state;
    return SUCCESS;
}

API nvmlDeviceGetGpuFabricInfoV(void *handle, struct fabric_v3 *out) {
    DEVICE(handle);
    NEEDS(out);
    GPU_ONLY();
    if (out->version != VERSION_FABRIC_V2 && out->version != VERSION_FABRIC_V3) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->fabric_state < 0) return NOT_SUPPORTED;
    memset(out->cluster, 0, sizeof out->cluster);
    out->clique = 0;
    out->status = (int)gpu->fabric_status;
    out->state = (unsigned char)gpu->fabric_state;
    out->health_mask = (unsigned)gpu->fabric_health;
    if (out->version == VERSION_FABRIC_V3) out->health_summary = 0;
    return SUCCESS;
}

static int room(const struct gpu *gpu, unsigned *count) {
    unsigned offered = *count;
    *count = (unsigned)gpu->process_count;
    return offered < gpu->process_count ? INSUFFICIENT_SIZE : SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, struct process_v1 *out) {
    DEVICE(handle);
    NEEDS(count);
    if (room(gpu, count)) return INSUFFICIENT_SIZE;
    for (size_t i = 0; i < gpu->process_count; i++) {
        out[i].pid = (unsigned)gpu->processes[i].pid;
        out[i].memory = (unsigned long long)gpu->processes[i].memory;
    }
    return SUCCESS;
}

#define RUNNING_PROCESSES(function) \
    API function(void *handle, unsigned *count, struct process_v3 *out) { \
        DEVICE(handle); \
        NEEDS(count); \
        if (room(gpu, count)) return INSUFFICIENT_SIZE; \
        for (size_t i = 0; i < gpu->process_count; i++) \
            out[i] = (struct process_v3){(unsigned)gpu->processes[i].pid, \
                                         (unsigned long long)gpu->processes[i].memory, ~0u, ~0u}; \
        return SUCCESS; \
    }

RUNNING_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
RUNNING_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
