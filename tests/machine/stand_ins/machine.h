/* The machine that the stand-in libraries pretend to be: what tests/machine/machine.py wrote into the file that
   HWPROBE_TEST_MACHINE names, one `key value` a line. A line `gpu` begins a GPU, a line `mig` an instance of it. */
#ifndef HWPROBE_TEST_MACHINE_H
#define HWPROBE_TEST_MACHINE_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define TEXT_SIZE 96
#define UNSUPPORTED (-1)

struct gpu;

/* One compute instance inside one GPU instance. */
struct mig {
    struct gpu *parent;
    char name[TEXT_SIZE], uuid[TEXT_SIZE];
    long long index, gpu_instance, compute_instance, gpu_slices, compute_slices, multiprocessors;
    long long memory_total, memory_used, memory_reserved;
};

/* Numbers below zero mean that this board does not support the fact. */
struct gpu {
    char name[TEXT_SIZE], uuid[TEXT_SIZE];
    long long pci_domain, pci_bus, pci_device, pci_device_id, pci_subsystem_id;
    long long capability_major, capability_minor, multiprocessors, clock_mhz, speed;
    long long memory_total, memory_used, memory_reserved, memory_readable, integrated;
    long long architecture, brand, minor_number, persistence, compute_mode, virtualization, driver_model;
    long long pcie_generation, pcie_width;
    long long ecc, ecc_pending, ecc_corrected, ecc_uncorrected;
    long long retired_pending, remapped_correctable, remapped_uncorrectable, remapped_pending, remapped_failed;
    long long fabric_state, fabric_status, fabric_health;
    long long mig_mode, mig_pending, mig_maximum;
    long long in_nvml, in_cuda;
    struct mig **migs;
    size_t mig_count;
    struct process { long long pid, memory; } *processes;
    size_t process_count;
};

struct machine {
    char driver[TEXT_SIZE], nvml_version[TEXT_SIZE], log[4096];
    long long cuda, cudnn, cudart, count_calls, count_then, mig_devices_per_process;
    struct gpu **gpus; /* in NVML's order */
    size_t gpu_count;
};

extern struct machine machine;

/* Notes the call in the log, then does what the description says about `function`: returns the code it must fail
   with, or 0, or never returns. The second form looks only at the faults of one GPU or MIG instance. */
int enter(const char *function);
int enter_at(const char *function, const void *gpu_or_mig);

/* Notes a call with a number, for instance the size of an allocation. */
void note(const char *function, unsigned long long number);

/* Lower-case hexadecimal digits of a `GPU-...` or `MIG-...` identifier as 16 bytes. */
void uuid_bytes(const char *uuid, unsigned char bytes[16]);

#endif
