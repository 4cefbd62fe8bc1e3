/* Linked into the library with -Wl,--wrap. PDLA_TEST_FAILING="memory 12" lets one in twelve of its allocations fail,
 * "files 12" one in twelve of its system calls on files, "readdir 1" each of this call, "readdir -4" each after the
 * fourth, "readdir 4th" only the fourth. What is chosen is random, differs between ranks, and is the same in each run.
 * "short 2" does not fail: one in two of its transfers moves only a part of the bytes.
 * "busy 1th": a lock is refused, as if somebody had it who gives it up at once.
 * The agreements of the ranks ("agreements 12") fail in all ranks together. "clock_gettime 1th" does not fail: its
 * time of day is 20 seconds too early. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#include "running_mpi.h"

/* Whether call number `call` is one of those: one in `number` at random, all after the first -`number`, or only
 * number `number`. */
static bool is_chosen(uint32_t call, uint32_t rank, int number, bool only)
{
    if (only)
        return call == (uint32_t)number;
    if (number < 0)
        return call > (uint32_t)-number;
    uint32_t x = (call * 2654435761u) ^ (rank * 2246822519u);
    x = (x ^ x >> 15) * 2246822507u;
    return (x ^ x >> 13) % (uint32_t)number == 0;
}

static bool ended;

/* What gcc's counting of lines does later may not fail. */
__attribute__((destructor)) static void end(void) { ended = true; }

static bool fails(const char *kind, const char *name, int error)
{
    static uint32_t calls;
    const char *wanted = getenv("PDLA_TEST_FAILING"), *mpich = getenv("PMI_RANK"),
               *openmpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *rank = mpich != NULL ? mpich : openmpi, *number = wanted == NULL ? NULL : strchr(wanted, ' ');
    if (ended || rank == NULL || number == NULL)
        return false;
    const size_t length = (size_t)(number - wanted);
    const bool meant = (strlen(kind) == length && strncmp(wanted, kind, length) == 0)
        || (strlen(name) == length && strncmp(wanted, name, length) == 0);
    const uint32_t seed = strcmp(kind, "agreements") == 0 ? 0 : (uint32_t)atoi(rank);
    if (!meant || !is_chosen(__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED), seed, atoi(number), strstr(number, "th")))
        return false;
    errno = error;
    return true;
}

#define WRAP(kind, error, failed, type, name, parameters, arguments) \
    type __real_##name parameters; \
    type __wrap_##name parameters; \
    type __wrap_##name parameters { return fails(kind, #name, error) ? (failed) : __real_##name arguments; }

#define MEMORY(type, name, parameters, arguments) WRAP("memory", ENOMEM, NULL, type, name, parameters, arguments)
/* One rank alone cannot fail to agree. */
#define AGREEMENT(name, parameters, arguments) \
    bool __real_##name parameters; \
    bool __wrap_##name parameters; \
    bool __wrap_##name parameters \
    { \
        int ranks = 1; \
        if (comm != running_mpi()->comm_null) \
            running_mpi()->Comm_size(comm, &ranks); \
        return (ranks == 1 || !fails("agreements", #name, 0)) && __real_##name arguments; \
    }
#define FILES(type, name, parameters, arguments) WRAP("files", EIO, -1, type, name, parameters, arguments)

MEMORY(void *, malloc, (size_t size), (size))
MEMORY(void *, calloc, (size_t count, size_t size), (count, size))
MEMORY(void *, realloc, (void *memory, size_t size), (memory, size))
MEMORY(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
MEMORY(char *, strdup, (const char *text), (text))

AGREEMENT(agree_reduce, (const void *mine, void *all, int words, mpi_handle op, mpi_handle comm),
          (mine, all, words, op, comm))
AGREEMENT(agree_broadcast, (void *data, int bytes, mpi_handle comm), (data, bytes, comm))
struct parcel;
typedef bool add_parcel(struct parcel *, const void *more, int bytes);
AGREEMENT(agree_merge, (struct parcel *parcel, add_parcel *add, int rank, int count, mpi_handle comm),
          (parcel, add, rank, count, comm))

FILES(ssize_t, pread, (int fd, void *data, size_t size, off_t offset), (fd, data, size, offset))
FILES(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
FILES(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
FILES(int, fstat, (int fd, struct stat *found), (fd, found))
FILES(int, stat, (const char *path, struct stat *found), (path, found))
FILES(int, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *found),
      (fd, path, flags, mask, found))
FILES(int, lstat, (const char *path, struct stat *found), (path, found))
FILES(int, fsync, (int fd), (fd))
FILES(int, fdatasync, (int fd), (fd))
FILES(int, msync, (void *memory, size_t size, int flags), (memory, size, flags))
FILES(int, ftruncate, (int fd, off_t size), (fd, size))
FILES(int, fallocate, (int fd, int mode, off_t start, off_t size), (fd, mode, start, size))
FILES(int, rename, (const char *old, const char *new), (old, new))
FILES(int, link, (const char *old, const char *new), (old, new))
FILES(int, unlink, (const char *path), (path))
FILES(int, access, (const char *path, int mode), (path, mode))
FILES(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP("files", EIO, EIO, int, posix_fallocate, (int fd, off_t start, off_t size), (fd, start, size))
WRAP("files", EIO, NULL, DIR *, opendir, (const char *path), (path))
WRAP("files", EIO, NULL, struct dirent *, readdir, (DIR *directory), (directory))
WRAP("files", ENOMEM, MAP_FAILED, void *, mmap,
     (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP("files", EAGAIN, EAGAIN, int, pthread_create,
     (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     (thread, attributes, run, argument))

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int rc = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME && fails("clock", "clock_gettime", errno))
        now->tv_sec -= 20;
    return rc;
}

ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (fails("files", "pwrite", EIO))
        return -1;
    return __real_pwrite(fd, data, fails("short", "pwrite", 0) ? (size + 1) / 2 : size, offset);
}

#define PARTS(name) \
    ssize_t __real_##name(int fd, const struct iovec *parts, int count, off_t offset); \
    ssize_t __wrap_##name(int fd, const struct iovec *parts, int count, off_t offset); \
    ssize_t __wrap_##name(int fd, const struct iovec *parts, int count, off_t offset) \
    { \
        if (fails("files", #name, EIO)) \
            return -1; \
        const bool part = count > 0 && parts->iov_len > 0 && fails("short", #name, 0); \
        struct iovec half = {part ? parts->iov_base : NULL, part ? (parts->iov_len + 1) / 2 : 0}; \
        return part ? __real_##name(fd, &half, 1, offset) : __real_##name(fd, parts, count, offset); \
    }

PARTS(preadv)
PARTS(pwritev)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("files", "open", EIO) ? -1 : __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    const bool locks = command == F_OFD_SETLK || command == F_OFD_GETLK;
    const bool unlocks = command == F_OFD_SETLK && ((struct flock *)argument)->l_type == F_UNLCK; /* always possible */
    const bool refused = command == F_OFD_SETLK && !unlocks && fails("busy", "busy", EAGAIN);
    return refused || (locks && !unlocks && fails("files", "fcntl", ENOLCK)) ? -1 : __real_fcntl(fd, command, argument);
}

void *__real_mremap(void *old, size_t old_size, size_t size, int flags, ...);
void *__wrap_mremap(void *old, size_t old_size, size_t size, int flags, ...);
void *__wrap_mremap(void *old, size_t old_size, size_t size, int flags, ...)
{
    return fails("files", "mremap", ENOMEM) ? MAP_FAILED : __real_mremap(old, old_size, size, flags);
}
