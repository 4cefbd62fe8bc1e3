#define _GNU_SOURCE
#include "locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    PAUSE_NS = 1000000,
    TRIES = 2000,
    WINDOW = 4 << 20 /* some of the blocks that MPI libraries sieve */
};

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

static bool lock_within(int fd, enum lock_kind kind, int64_t low, int64_t high, int tries)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (; tries > 0; tries--) {
        if (lock_bytes(fd, kind, low, high))
            return true;
        if (errno != EAGAIN && errno != EACCES)
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

bool lock_patiently(int fd, enum lock_kind kind, int64_t low, int64_t high)
{
    return lock_within(fd, kind, low, high, TRIES);
}

void moving_lock_reach(struct moving_lock *lock, int64_t low, int64_t high)
{
    if (lock->low <= low && high <= lock->high)
        return;
    moving_lock_leave(lock);
    lock->low = low;
    lock->high = lock->end - low < WINDOW ? lock->end : low + WINDOW;
    lock->high = lock->high < high ? high : lock->high;
    lock->locked = lock_within(lock->fd, LOCK_ALONE, lock->low, lock->high, lock->given_up ? 1 : TRIES);
    lock->given_up = lock->given_up || !lock->locked;
}

void moving_lock_leave(struct moving_lock *lock)
{
    if (lock->locked)
        lock_bytes(lock->fd, LOCK_NONE, lock->low, lock->high);
    lock->low = lock->high = 0;
    lock->locked = false;
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

bool lock_shared(int fd, int64_t low, int64_t high)
{
    struct flock lock = lock_of(LOCK_ALONE, low, high);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK;
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
