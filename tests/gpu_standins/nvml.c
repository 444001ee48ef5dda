/* Stands in for libnvidia-ml.so.1: the calls that preflight makes through nvidia-ml-py.

   What the scenario does not tell is "not supported", as NVML itself has it. */

#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25, UNKNOWN = 999,
};

#define MOST_GPUS 16
#define MOST_SLICES 8
#define WHOLE (-1)

typedef struct {
    int gpu;
    int slice;
} Device;

static Device devices[MOST_GPUS][1 + MOST_SLICES];
static int started;

static Device *device(int gpu, int slice) {
    Device *found = &devices[gpu][slice + 1];
    found->gpu = gpu;
    found->slice = slice;
    return found;
}

/* Every call but those that start NVML and name errors begins with it. */
#define BEGIN(gpu, call)                      \
    do {                                      \
        if (!started) return UNINITIALIZED;   \
        int code_ = fault(gpu, call);         \
        if (code_ != SUCCESS) return code_;   \
    } while (0)

static int text(int gpu, const char *key, char *out, unsigned size) {
    const char *value = told(gpu, key);
    if (value == NULL) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

static int number(int gpu, const char *key, unsigned *out) {
    if (told(gpu, key) == NULL) return NOT_SUPPORTED;
    *out = (unsigned)told_number(gpu, key, 0);
    return SUCCESS;
}

/* --- the library as a whole --- */

static int start(void) {
    int code = fault(ALL, "nvmlInit");
    started = code == SUCCESS;
    return code;
}

int nvmlInit_v2(void) { return start(); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return start();
}

int nvmlShutdown(void) {
    BEGIN(ALL, "nvmlShutdown");
    started = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    static char said[32];
    snprintf(said, sizeof said, "stand-in code %d", code);
    return said;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN(ALL, "nvmlSystemGetDriverVersion");
    return text(ALL, "driver", out, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    BEGIN(ALL, "nvmlSystemGetCudaDriverVersion");
    return number(ALL, "cuda", (unsigned *)out);
}

int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN(ALL, "nvmlDeviceGetCount");
    *out = (unsigned)gpu_count();
    return SUCCESS;
}

/* --- handles --- */

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if ((int)index >= gpu_count()) return INVALID_ARGUMENT;
    BEGIN((int)index, "nvmlDeviceGetHandleByIndex");
    *out = device((int)index, WHOLE);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    char word[96];
    if (!started) return UNINITIALIZED;
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        int slice = WHOLE;
        const char *own = told(gpu, "uuid");
        int found = own != NULL && strcmp(own, uuid) == 0;
        while (!found && ++slice < MOST_SLICES && told_word(gpu, "mig_uuids", slice, word, sizeof word))
            found = strcmp(word, uuid) == 0;
        if (!found) continue;
        BEGIN(gpu, "nvmlDeviceGetHandleByUUID");
        *out = device(gpu, slice);
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetMigMode(Device *of, unsigned *now, unsigned *pending) {
    BEGIN(of->gpu, "nvmlDeviceGetMigMode");
    int code = number(of->gpu, "mig", now);
    *pending = *now;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetMaxMigDeviceCount");
    *out = told_number(of->gpu, "mig", 0) ? MOST_SLICES : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *of, unsigned index, Device **out) {
    char word[96];
    BEGIN(of->gpu, "nvmlDeviceGetMigDeviceHandleByIndex");
    if (index >= MOST_SLICES || !told_word(of->gpu, "mig_uuids", (int)index, word, sizeof word))
        return NOT_FOUND;
    *out = device(of->gpu, (int)index);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **out) {
    BEGIN(slice->gpu, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    *out = device(slice->gpu, WHOLE);
    return SUCCESS;
}

/* --- what a device is --- */

int nvmlDeviceGetUUID(Device *of, char *out, unsigned size) {
    BEGIN(of->gpu, "nvmlDeviceGetUUID");
    if (of->slice == WHOLE) return text(of->gpu, "uuid", out, size);
    return told_word(of->gpu, "mig_uuids", of->slice, out, size) ? SUCCESS : UNKNOWN;
}

int nvmlDeviceGetName(Device *of, char *out, unsigned size) {
    BEGIN(of->gpu, "nvmlDeviceGetName");
    return text(of->gpu, "name", out, size);
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device *of, PciInfo *out) {
    BEGIN(of->gpu, "nvmlDeviceGetPciInfo");
    const char *sysfs = told(of->gpu, "pci_bus_id");
    memset(out, 0, sizeof *out);
    if (sysfs == NULL) return NOT_SUPPORTED;
    if (sscanf(sysfs, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) return UNKNOWN;
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0",
             out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device *of, int *major, int *minor) {
    BEGIN(of->gpu, "nvmlDeviceGetCudaComputeCapability");
    const char *value = told(of->gpu, "capability");
    return value && sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetVirtualizationMode(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetVirtualizationMode");
    return number(of->gpu, "virtualization", out);
}

/* --- the link --- */

int nvmlDeviceGetCurrPcieLinkGeneration(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetCurrPcieLinkGeneration");
    return number(of->gpu, busy(of->gpu) ? "link_gen_busy" : "link_gen", out);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetCurrPcieLinkWidth");
    return number(of->gpu, "link_width", out);
}

int nvmlDeviceGetMaxPcieLinkGeneration(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetMaxPcieLinkGeneration");
    return number(of->gpu, "link_max_gen", out);
}

int nvmlDeviceGetMaxPcieLinkWidth(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetMaxPcieLinkWidth");
    return number(of->gpu, "link_max_width", out);
}

int nvmlDeviceGetGpuMaxPcieLinkGeneration(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetGpuMaxPcieLinkGeneration");
    return number(of->gpu, "link_gpu_max_gen", out);
}

typedef struct {
    unsigned enabled;
} C2cMode;

int nvmlDeviceGetC2cModeInfoV(Device *of, C2cMode *out) {
    BEGIN(of->gpu, "nvmlDeviceGetC2cModeInfoV");
    return number(of->gpu, "c2c", &out->enabled);
}

typedef struct {
    unsigned field, scope;
    long long at_us, took_us;
    unsigned type;
    int code;
    union {
        unsigned number;
        unsigned long long longest;
    } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device *of, int count, FieldValue *values) {
    BEGIN(of->gpu, "nvmlDeviceGetFieldValues");
    for (int i = 0; i < count; i++) values[i].code = NOT_SUPPORTED;
    return SUCCESS;
}

/* --- where it sits, who uses it --- */

int nvmlDeviceGetMemoryAffinity(Device *of, unsigned size, unsigned long *nodes, unsigned scope) {
    (void)scope;
    unsigned node;
    BEGIN(of->gpu, "nvmlDeviceGetMemoryAffinity");
    memset(nodes, 0, size * sizeof *nodes);
    int code = number(of->gpu, "numa_node", &node);
    if (code == SUCCESS) nodes[node / 64] = 1ul << node % 64;
    return code;
}

int nvmlDeviceGetComputeMode(Device *of, unsigned *out) {
    BEGIN(of->gpu, "nvmlDeviceGetComputeMode");
    return number(of->gpu, "compute_mode", out);
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

#define MIB (1ull << 20)

int nvmlDeviceGetMemoryInfo_v2(Device *of, MemoryV2 *out) {
    BEGIN(of->gpu, "nvmlDeviceGetMemoryInfo_v2");
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    if (told(of->gpu, "memory_total_mib") == NULL) return NOT_SUPPORTED;
    out->total = MIB * (unsigned long long)told_number(of->gpu, "memory_total_mib", 0);
    out->reserved = MIB * (unsigned long long)told_number(of->gpu, "memory_reserved_mib", 0);
    out->used = MIB * (unsigned long long)told_number(of->gpu, "memory_used_mib", 0);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *of, Memory *out) {
    MemoryV2 all = {.version = sizeof all | 2u << 24};
    BEGIN(of->gpu, "nvmlDeviceGetMemoryInfo");
    int code = nvmlDeviceGetMemoryInfo_v2(of, &all);
    out->total = all.total;
    out->free = all.free;
    out->used = all.reserved + all.used;
    return code;
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *of, unsigned *count, Process *out) {
    char word[16];
    unsigned found = 0;
    BEGIN(of->gpu, "nvmlDeviceGetComputeRunningProcesses");
    while (told_word(of->gpu, "processes", (int)found, word, sizeof word)) {
        if (found < *count) out[found] = (Process){.pid = (unsigned)atoi(word), .used = MIB};
        found++;
    }
    int fits = found <= *count;
    *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *of, unsigned *count, Process *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(of, count, out);
}

/* --- the NVSwitch fabric --- */

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health;
} FabricV2;

int nvmlDeviceGetGpuFabricInfoV(Device *of, FabricV2 *out) {
    unsigned state;
    BEGIN(of->gpu, "nvmlDeviceGetGpuFabricInfoV");
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    int code = number(of->gpu, "fabric", &state);
    if (code == SUCCESS) out->state = (unsigned char)state;
    return code;
}
