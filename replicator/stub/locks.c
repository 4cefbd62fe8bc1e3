#define _GNU_SOURCE
#include "locks.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct flock lock_of(enum lock_kind kind, int64_t low, int64_t high)
{
    return (struct flock){.l_type = kind == LOCK_NONE ? F_UNLCK : kind == LOCK_SHARED ? F_RDLCK : F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = low,
                          .l_len = high - low};
}

bool lock_bytes(int fd, enum lock_kind kind, int64_t low, int64_t high)
{
    struct flock lock = lock_of(kind, low, high);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void lock_close(int fd)
{
    if (fd < 0)
        return;
    lock_bytes(fd, LOCK_NONE, 0, INT64_MAX);
    close(fd);
}

bool lock_held(int fd, enum lock_kind kind, int64_t low, int64_t high, bool unknown)
{
    struct flock lock = lock_of(kind, low, high);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 ? lock.l_type != F_UNLCK : unknown;
}

/* RATIONALE: a new open file description, which has none of the program's locks. */
int lock_abandoned(int lock)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", lock);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        lock_bytes(fd, LOCK_SHARED, LOCK_ABANDONED, LOCK_ABANDONED + 1);
    return fd;
}

bool lock_none_abandoned(int lock)
{
    return !lock_held(lock, LOCK_ALONE, LOCK_ABANDONED, LOCK_ABANDONED + 1, true);
}
