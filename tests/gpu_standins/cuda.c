/* Stands in for libcuda.so.1: the calls that ask which devices there are. */

#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };
enum { INTEGRATED = 18, MAJOR = 75, MINOR = 76 };

#define MOST_DEVICES 64

static struct {
    int gpu;
    char uuid[96];
} devices[MOST_DEVICES];
static int device_count;
static int started;

static void add(int gpu, const char *uuid) {
    if (device_count == MOST_DEVICES) return;
    devices[device_count].gpu = gpu;
    snprintf(devices[device_count++].uuid, sizeof devices[0].uuid, "%s", uuid);
}

/* As the driver reads one entry of CUDA_VISIBLE_DEVICES: a number, or a UUID that may be cut. */
static int add_named(const char *entry) {
    char word[96];
    size_t length = strlen(entry);
    for (int gpu = 0; gpu < gpu_count() && length > 0; gpu++) {
        const char *own = told(gpu, "uuid");
        if (own == NULL) continue;
        if (told_number(gpu, "mig", 0)) {
            for (int slice = 0; told_word(gpu, "mig_uuids", slice, word, sizeof word); slice++)
                if (strncmp(word, entry, length) == 0) return add(gpu, word), 1;
        } else if (strncmp(own, entry, length) == 0 ||
                   (strspn(entry, "0123456789") == length && atoi(entry) == gpu)) {
            return add(gpu, own), 1;
        }
    }
    return 0;
}

static void list_devices(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char entry[96];
    device_count = 0;
    if (visible == NULL) {
        for (int gpu = 0; gpu < gpu_count(); gpu++) {
            const char *own = told(gpu, "uuid");
            int mig = told_number(gpu, "mig", 0) != 0;
            if (mig && told_word(gpu, "mig_uuids", 0, entry, sizeof entry)) own = entry;
            if (own != NULL && (!mig || own == entry)) add(gpu, own);
        }
        return;
    }
    for (;;) {
        size_t length = strcspn(visible, ",");
        snprintf(entry, sizeof entry, "%.*s", (int)length, visible);
        if (!add_named(entry) || visible[length] == '\0') return;
        visible += length + 1;
    }
}

int cuInit(unsigned flags) {
    (void)flags;
    list_devices();
    int code = fault(ALL, "cuInit");
    for (int i = 0; code == SUCCESS && i < device_count; i++) code = fault(devices[i].gpu, "cuInit");
    if (code == SUCCESS && device_count == 0) code = NO_DEVICE;
    started = code == SUCCESS;
    return code;
}

int cuDriverGetVersion(int *out) {
    *out = (int)told_number(ALL, "cuda", 0);
    return fault(ALL, "cuDriverGetVersion");
}

#define BEGIN(device, call)                                                   \
    do {                                                                      \
        if (!started) return NOT_INITIALIZED;                                 \
        if ((device) < 0 || (device) >= device_count) return INVALID_DEVICE;  \
        int code_ = fault(devices[device].gpu, call);                         \
        if (code_ != SUCCESS) return code_;                                   \
    } while (0)

int cuDeviceGetCount(int *out) {
    if (!started) return NOT_INITIALIZED;
    *out = device_count;
    return fault(ALL, "cuDeviceGetCount");
}

int cuDeviceGet(int *out, int ordinal) {
    BEGIN(ordinal, "cuDeviceGet");
    *out = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *out, int size, int device) {
    BEGIN(device, "cuDeviceGetName");
    const char *name = told(devices[device].gpu, "name");
    snprintf(out, (size_t)size, "%s", name ? name : "");
    return SUCCESS;
}

int cuDeviceGetUuid_v2(unsigned char *out, int device) {
    BEGIN(device, "cuDeviceGetUuid");
    const char *digits = strchr(devices[device].uuid, '-');
    for (int i = 0; digits != NULL && i < 16; i++) {
        digits += strspn(digits, "-");
        if (sscanf(digits, "%2hhx", &out[i]) != 1) return INVALID_VALUE;
        digits += 2;
    }
    return SUCCESS;
}

int cuDeviceGetUuid(unsigned char *out, int device) { return cuDeviceGetUuid_v2(out, device); }

int cuDeviceGetAttribute(int *out, int attribute, int device) {
    BEGIN(device, "cuDeviceGetAttribute");
    int gpu = devices[device].gpu, major = 0, minor = 0;
    const char *capability = told(gpu, "capability");
    if (capability != NULL) sscanf(capability, "%d.%d", &major, &minor);
    switch (attribute) {
    case INTEGRATED: *out = (int)told_number(gpu, "integrated", 0); return SUCCESS;
    case MAJOR: *out = major; return SUCCESS;
    case MINOR: *out = minor; return SUCCESS;
    default: return INVALID_VALUE;
    }
}

int cuDeviceGetPCIBusId(char *out, int size, int device) {
    BEGIN(device, "cuDeviceGetPCIBusId");
    const char *bus_id = told(devices[device].gpu, "pci_bus_id");
    snprintf(out, (size_t)size, "%s", bus_id ? bus_id : "");
    return SUCCESS;
}

/* cuda.h; only codes that scenarios use. */
static const struct {
    int code;
    const char *name;
} names[] = {
    {0, "CUDA_SUCCESS"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {34, "CUDA_ERROR_STUB_LIBRARY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

int cuGetErrorName(int code, const char **out) {
    *out = NULL;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code) *out = names[i].name;
    return *out ? SUCCESS : INVALID_VALUE;
}

int cuGetErrorString(int code, const char **out) { return cuGetErrorName(code, out); }
