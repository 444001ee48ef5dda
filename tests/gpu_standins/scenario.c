#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINES 512
#define BUSY_FOR_S 0.5

static struct {
    char key[64];
    char value[512];
} lines[MOST_LINES];
static int line_count = -1;

static void read_scenario(void) {
    const char *path = getenv("STANDIN_GPUS");
    FILE *file = path ? fopen(path, "r") : NULL;
    line_count = 0;
    if (file == NULL) return;
    char line[640];
    while (line_count < MOST_LINES && fgets(line, sizeof line, file))
        if (sscanf(line, " %63[^ =] = %511[^\n]", lines[line_count].key, lines[line_count].value) == 2)
            line_count++;
    fclose(file);
}

static const char *find(const char *key) {
    if (line_count < 0) read_scenario();
    for (int i = 0; i < line_count; i++)
        if (strcmp(lines[i].key, key) == 0) return lines[i].value;
    return NULL;
}

const char *told(int gpu, const char *key) {
    char own[96];
    if (gpu == ALL) return find(key);
    snprintf(own, sizeof own, "gpu%d.%s", gpu, key);
    const char *value = find(own);
    if (value != NULL) return value;
    snprintf(own, sizeof own, "gpu.%s", key);
    return find(own);
}

long long told_number(int gpu, const char *key, long long otherwise) {
    const char *value = told(gpu, key);
    return value ? atoll(value) : otherwise;
}

int fault(int gpu, const char *call) {
    const char *value = told(gpu, call);
    if (value == NULL) return 0;
    while (strcmp(value, "hang") == 0) sleep(1);
    if (strcmp(value, "crash") == 0) abort();
    return atoi(value);
}

int gpu_count(void) { return (int)told_number(ALL, "gpus", 0); }

int told_word(int gpu, const char *key, int number, char *word, unsigned size) {
    const char *rest = told(gpu, key);
    while (rest != NULL) {
        rest += strspn(rest, " ");
        size_t length = strcspn(rest, " ");
        if (length == 0) return 0;
        if (number-- == 0) {
            snprintf(word, size, "%.*s", (int)length, rest);
            return 1;
        }
        rest += length;
    }
    return 0;
}

int busy(int gpu) {
    const char *marker = told(ALL, "busy_marker");
    struct stat touched;
    struct timespec now;
    char path[640];
    snprintf(path, sizeof path, "%s.%d", marker ? marker : "", gpu);
    if (marker == NULL || stat(path, &touched) != 0) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    double age_s = (double)(now.tv_sec - touched.st_mtim.tv_sec) +
                   1e-9 * (double)(now.tv_nsec - touched.st_mtim.tv_nsec);
    return age_s < BUSY_FOR_S;
}
