/* Which devices a process gets, and in which order: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and MIG.
   CUDA Programming Guide 13.4.3, "Environment Variables"; PyTorch pull request 92315, which was compared with driver
   525.60.13; MIG User Guide, "CUDA Device Enumeration". */
#include "cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device *devices;
int device_count;

/* Devices by the number that CUDA_VISIBLE_DEVICES means: a GPU in MIG mode stands for its first instance, and one
   without instances has no number. */
static struct device *numbered;
static int numbered_count;

static void append(struct device **list, int *count, struct gpu *gpu, struct mig *mig) {
    *list = realloc(*list, ((size_t)*count + 1) * sizeof **list);
    if (!*list) abort();
    (*list)[(*count)++] = (struct device){gpu, mig, 0};
}

static int faster(const void *left, const void *right) {
    const struct gpu *a = *(struct gpu *const *)left, *b = *(struct gpu *const *)right;
    if (a->speed != b->speed) return a->speed > b->speed ? -1 : 1;
    if (a->pci_domain != b->pci_domain) return a->pci_domain < b->pci_domain ? -1 : 1;
    if (a->pci_bus != b->pci_bus) return a->pci_bus < b->pci_bus ? -1 : 1;
    return a->pci_device < b->pci_device ? -1 : 1;
}

static void number_devices(void) {
    const char *order = getenv("CUDA_DEVICE_ORDER");
    struct gpu **gpus = calloc(machine.gpu_count + 1, sizeof *gpus);
    if (!gpus) abort();
    if (machine.gpu_count) memcpy(gpus, machine.gpus, machine.gpu_count * sizeof *gpus);
    if (!order || strcmp(order, "PCI_BUS_ID")) qsort(gpus, machine.gpu_count, sizeof *gpus, faster);
    for (size_t i = 0; i < machine.gpu_count; i++) {
        struct gpu *gpu = gpus[i];
        if (!gpu->in_cuda || (gpu->mig_mode > 0 && !gpu->mig_count)) continue;
        append(&numbered, &numbered_count, gpu, gpu->mig_mode > 0 ? gpu->migs[0] : NULL);
    }
    free(gpus);
}

/* A number as strtoul reads it, spaces and one sign accepted, the tail ignored; -1 without digits or below zero. */
static int leading_number(const char *entry) {
    char *end;
    long value = strtol(entry, &end, 10);
    return end == entry || value < 0 || value >= numbered_count ? -1 : (int)value;
}

static struct device *by_number(const char *entry) {
    int number = leading_number(entry);
    return number < 0 ? NULL : &numbered[number];
}

/* The one device whose UUID begins with `entry`. */
static struct device *by_gpu_uuid(const char *entry) {
    struct device *found = NULL;
    for (int i = 0; i < numbered_count; i++) {
        if (strncmp(numbered[i].gpu->uuid, entry, strlen(entry))) continue;
        if (found) return NULL;
        found = &numbered[i];
    }
    return found;
}

/* The one MIG instance whose UUID begins with `entry`, or the older form MIG-GPU-<uuid>/<gpu>/<compute instance>. */
static struct device *by_mig_uuid(const char *entry) {
    static struct device found;
    int matches = 0;
    for (int i = 0; i < numbered_count; i++) {
        struct gpu *gpu = numbered[i].gpu;
        for (size_t j = 0; gpu->mig_mode > 0 && j < gpu->mig_count; j++) {
            struct mig *mig = gpu->migs[j];
            char older[2 * TEXT_SIZE];
            snprintf(older, sizeof older, "MIG-%s/%lld/%lld", gpu->uuid, mig->gpu_instance, mig->compute_instance);
            if (strncmp(mig->uuid, entry, strlen(entry)) && strcmp(older, entry)) continue;
            found = (struct device){gpu, mig, 0};
            matches++;
        }
    }
    return matches == 1 ? &found : NULL;
}

/* The first entry fixes the kind of all, the first that names no device ends the list, and one named twice empties it. */
static void choose_listed(const char *variable) {
    struct device *(*find)(const char *) = by_number;
    char *list = strdup(variable), *rest = list, *entry;
    if (!list) abort();
    if (!strncmp(list, "GPU-", 4)) find = by_gpu_uuid;
    if (!strncmp(list, "MIG-", 4)) find = by_mig_uuid;
    const char *prefix = find == by_gpu_uuid ? "GPU-" : find == by_mig_uuid ? "MIG-" : "";
    while ((entry = strsep(&rest, ","))) {
        struct device *found = strncmp(entry, prefix, strlen(prefix)) ? NULL : find(entry);
        if (!found) break;
        for (int i = 0; i < device_count; i++) {
            if (devices[i].gpu != found->gpu || devices[i].mig != found->mig) continue;
            device_count = 0;
            free(list);
            return;
        }
        append(&devices, &device_count, found->gpu, found->mig);
    }
    free(list);
}

/* One instance for a process, and then no whole GPU beside it. */
static void keep_to_mig_rules(void) {
    int migs = 0, kept = 0;
    for (int i = 0; i < device_count; i++) migs += devices[i].mig != NULL;
    if (!migs) return;
    for (int i = 0; i < device_count; i++)
        if (devices[i].mig && kept < machine.mig_devices_per_process) devices[kept++] = devices[i];
    device_count = kept;
}

static void choose_all(void) {
    for (int i = 0; i < numbered_count; i++) {
        struct gpu *gpu = numbered[i].gpu;
        if (!numbered[i].mig) append(&devices, &device_count, gpu, NULL);
        for (size_t j = 0; numbered[i].mig && j < gpu->mig_count; j++)
            append(&devices, &device_count, gpu, gpu->migs[j]);
    }
}

void choose_devices(void) {
    const char *variable = getenv("CUDA_VISIBLE_DEVICES");
    numbered_count = device_count = 0;
    number_devices();
    if (variable) choose_listed(variable);
    else choose_all();
    keep_to_mig_rules();
}
