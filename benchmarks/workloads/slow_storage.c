#define _GNU_SOURCE
#include "slow_storage.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* Nanoseconds: about those of a disk array's server that several clients share. */
enum { OPEN = 1000000, REQUEST = 500000, BYTE = 20, SECOND = 1000000000, DESCRIPTORS = 1024 };

static const char *slow_files;
static long long slowness = 1;
static char slow[DESCRIPTORS];

void slow_storage(const char *files, long long times)
{
    slow_files = files;
    slowness = times;
}

static void wait_for(long long nanoseconds)
{
    const long long all = nanoseconds * slowness;
    const struct timespec time = {.tv_sec = all / SECOND, .tv_nsec = all % SECOND};
    nanosleep(&time, NULL);
}

static void wait_for_bytes(int file, size_t bytes)
{
    if (file >= 0 && file < DESCRIPTORS && slow[file])
        wait_for(REQUEST + BYTE * (long long)bytes);
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    const int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "open");
    const int file = real(path, flags, mode);
    if (file >= 0 && file < DESCRIPTORS) {
        slow[file] = slow_files != NULL && strncmp(path, slow_files, strlen(slow_files)) == 0;
        if (slow[file])
            wait_for(OPEN);
    }
    return file;
}

ssize_t pread(int file, void *buffer, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    wait_for_bytes(file, bytes);
    return real(file, buffer, bytes, offset);
}

ssize_t pwrite(int file, const void *buffer, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    wait_for_bytes(file, bytes);
    return real(file, buffer, bytes, offset);
}
