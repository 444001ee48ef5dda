/* A libcuda for tests. -DINIT_CODE=802 makes cuInit fail; -DOLD leaves out what old drivers lack;
   -DDEAF makes every question about a device fail with code 101. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifndef INIT_CODE
#define INIT_CODE 0
#endif
#ifdef DEAF
#define DEVICE_CODE 101
#else
#define DEVICE_CODE 0
#endif

static int started;

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }

int cuInit(unsigned int flags) { started = 1; return flags ? 1 : INIT_CODE; }

int cuDeviceGetCount(int *count) { *count = 2; return started ? 0 : 3; }

int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return DEVICE_CODE; }

int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, "NVIDIA Test GPU %d", device);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 18 ? device == 41 : -1;
    return 0;
}

#ifdef OLD
int cuDeviceGetUuid(unsigned char *uuid, int device) {
#else
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
#endif
    memset(uuid, device, 16);
    return 0;
}

#ifndef OLD
int cuDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, (size_t)size, "0000:1B:00.%d", device - 40);
    return 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return code == 802 ? 0 : 1;
}
#endif
