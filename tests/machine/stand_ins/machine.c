/* Reads the description, and misbehaves where it says so. */
#define _GNU_SOURCE
#include "machine.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A hung stand-in outlives its test only this long, should nobody kill it. */
#define HANG_SECONDS 600

struct field {
    const char *key;
    size_t offset;
    size_t text_size; /* 0 for a number */
};

struct fault {
    const void *owner; /* NULL: the whole machine */
    char kind[TEXT_SIZE], function[TEXT_SIZE];
    long long number;
};

struct machine machine = {.count_calls = -1, .mig_devices_per_process = 1};
static struct fault *faults;
static size_t fault_count;
static int log_file = -1;

#define NUMBER(type, name) {#name, offsetof(struct type, name), 0}
#define TEXT(type, name) {#name, offsetof(struct type, name), sizeof(((struct type *)0)->name)}

static const struct field machine_fields[] = {
    TEXT(machine, driver), TEXT(machine, nvml_version), TEXT(machine, log), NUMBER(machine, cuda),
    NUMBER(machine, cudnn), NUMBER(machine, cudart), NUMBER(machine, count_calls), NUMBER(machine, count_then),
    NUMBER(machine, mig_devices_per_process), {NULL, 0, 0}};

static const struct field gpu_fields[] = {
    TEXT(gpu, name), TEXT(gpu, uuid), NUMBER(gpu, pci_domain), NUMBER(gpu, pci_bus), NUMBER(gpu, pci_device),
    NUMBER(gpu, pci_device_id), NUMBER(gpu, pci_subsystem_id), NUMBER(gpu, capability_major),
    NUMBER(gpu, capability_minor), NUMBER(gpu, multiprocessors), NUMBER(gpu, clock_mhz), NUMBER(gpu, speed),
    NUMBER(gpu, memory_total), NUMBER(gpu, memory_used), NUMBER(gpu, memory_reserved), NUMBER(gpu, memory_readable),
    NUMBER(gpu, integrated), NUMBER(gpu, architecture), NUMBER(gpu, brand), NUMBER(gpu, minor_number),
    NUMBER(gpu, persistence), NUMBER(gpu, compute_mode), NUMBER(gpu, virtualization), NUMBER(gpu, driver_model),
    NUMBER(gpu, pcie_generation), NUMBER(gpu, pcie_width),
    NUMBER(gpu, ecc), NUMBER(gpu, ecc_pending), NUMBER(gpu, ecc_corrected), NUMBER(gpu, ecc_uncorrected),
    NUMBER(gpu, retired_pending), NUMBER(gpu, remapped_correctable), NUMBER(gpu, remapped_uncorrectable),
    NUMBER(gpu, remapped_pending), NUMBER(gpu, remapped_failed), NUMBER(gpu, fabric_state), NUMBER(gpu, fabric_status),
    NUMBER(gpu, fabric_health), NUMBER(gpu, mig_mode), NUMBER(gpu, mig_pending), NUMBER(gpu, mig_maximum),
    NUMBER(gpu, in_nvml), NUMBER(gpu, in_cuda), {NULL, 0, 0}};

static const struct field mig_fields[] = {
    TEXT(mig, name), TEXT(mig, uuid), NUMBER(mig, index), NUMBER(mig, gpu_instance), NUMBER(mig, compute_instance),
    NUMBER(mig, gpu_slices), NUMBER(mig, compute_slices), NUMBER(mig, multiprocessors), NUMBER(mig, memory_total),
    NUMBER(mig, memory_used), NUMBER(mig, memory_reserved), {NULL, 0, 0}};

static void refuse(const char *what, const char *line) {
    fprintf(stderr, "test machine: %s: %s\n", what, line);
    abort();
}

/* Makes room for one more element of a growing array. */
static void *grown(void *array, size_t count, size_t size) {
    void *larger = realloc(array, (count + 1) * size);
    if (!larger) refuse("out of memory", "");
    memset((char *)larger + count * size, 0, size);
    return larger;
}

static void *fresh(size_t size) {
    return grown(NULL, 0, size);
}

static void set(const struct field *fields, void *record, const char *key, const char *value) {
    for (; fields->key; fields++) {
        if (strcmp(fields->key, key)) continue;
        char *place = (char *)record + fields->offset;
        if (fields->text_size) snprintf(place, fields->text_size, "%s", value);
        else *(long long *)place = strtoll(value, NULL, 10);
        return;
    }
    refuse("unknown key", key);
}

static int is_fault(const char *key) {
    static const char *const kinds[] = {"fail", "hang", "stubborn", "crash", "slow"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i], key)) return 1;
    return 0;
}

static void add_fault(const void *owner, const char *kind, const char *value) {
    faults = grown(faults, fault_count, sizeof *faults);
    struct fault *fault = &faults[fault_count++];
    fault->owner = owner;
    snprintf(fault->kind, sizeof fault->kind, "%s", kind);
    if (sscanf(value, "%95s %lld", fault->function, &fault->number) < 1) refuse("a fault names a function", kind);
}

static void add_process(struct gpu *gpu, const char *value) {
    gpu->processes = grown(gpu->processes, gpu->process_count, sizeof *gpu->processes);
    struct process *process = &gpu->processes[gpu->process_count++];
    if (sscanf(value, "%lld %lld", &process->pid, &process->memory) != 2) refuse("a process is PID BYTES", value);
}

static void read_description(FILE *file) {
    char line[4200];
    struct gpu *gpu = NULL;
    struct mig *mig = NULL;
    while (fgets(line, sizeof line, file)) {
        char *key = line + strspn(line, " "), *value;
        key[strcspn(key, "\n")] = 0;
        if (!*key) continue;
        value = key + strcspn(key, " ");
        if (*value) *value++ = 0;
        if (!strcmp(key, "gpu")) {
            machine.gpus = grown(machine.gpus, machine.gpu_count, sizeof *machine.gpus);
            gpu = machine.gpus[machine.gpu_count++] = fresh(sizeof *gpu);
            mig = NULL;
        } else if (!strcmp(key, "mig") && gpu) {
            gpu->migs = grown(gpu->migs, gpu->mig_count, sizeof *gpu->migs);
            mig = gpu->migs[gpu->mig_count++] = fresh(sizeof *mig);
            mig->parent = gpu;
        } else if (is_fault(key)) add_fault(mig ? (void *)mig : (void *)gpu, key, value);
        else if (!strcmp(key, "process") && gpu) add_process(gpu, value);
        else if (mig) set(mig_fields, mig, key, value);
        else if (gpu) set(gpu_fields, gpu, key, value);
        else set(machine_fields, &machine, key, value);
    }
}

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("HWPROBE_TEST_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) refuse("HWPROBE_TEST_MACHINE must name a description", path ? path : "(unset)");
    read_description(file);
    fclose(file);
    if (*machine.log) log_file = open(machine.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

void note(const char *function, unsigned long long number) {
    char line[2 * TEXT_SIZE];
    int length = snprintf(line, sizeof line, "%d %s %llu\n", (int)getpid(), function, number);
    if (log_file >= 0 && write(log_file, line, (size_t)length) != length) refuse("cannot write the log", function);
}

/* `nvmlDeviceGetCount` names every version of that function; `nvmlDeviceGet*` all that begin so. */
static int names(const char *pattern, const char *function) {
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*') return !strncmp(pattern, function, length - 1);
    if (strncmp(pattern, function, length)) return 0;
    const char *rest = function + length;
    return !*rest || (rest[0] == '_' && rest[1] == 'v' && isdigit((unsigned char)rest[2]));
}

static void pause_milliseconds(long long milliseconds) {
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left)) continue;
}

static void hang(int stubborn) {
    if (stubborn) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
    }
    pause_milliseconds(HANG_SECONDS * 1000LL);
    _exit(125);
}

int enter_at(const char *function, const void *owner) {
    for (size_t i = 0; i < fault_count; i++) {
        const struct fault *fault = &faults[i];
        if (fault->owner != owner || !names(fault->function, function)) continue;
        if (!strcmp(fault->kind, "fail")) return (int)fault->number;
        if (!strcmp(fault->kind, "crash")) abort();
        if (!strcmp(fault->kind, "slow")) pause_milliseconds(fault->number);
        else hang(!strcmp(fault->kind, "stubborn"));
    }
    return 0;
}

int enter(const char *function) {
    char line[2 * TEXT_SIZE];
    int length = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), function);
    if (log_file >= 0 && write(log_file, line, (size_t)length) != length) refuse("cannot write the log", function);
    return enter_at(function, NULL);
}

void uuid_bytes(const char *uuid, unsigned char bytes[16]) {
    const char *digit = strchr(uuid, '-');
    memset(bytes, 0, 16);
    for (int nibble = 0; digit && *digit && nibble < 32; digit++) {
        if (!isxdigit((unsigned char)*digit)) continue;
        int value = isdigit((unsigned char)*digit) ? *digit - '0' : tolower((unsigned char)*digit) - 'a' + 10;
        bytes[nibble / 2] |= (unsigned char)(nibble % 2 ? value : value << 4);
        nibble++;
    }
}
