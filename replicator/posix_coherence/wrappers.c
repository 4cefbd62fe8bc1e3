/* libpdla-coherence.so wraps the C library's calls that open, change, delete or examine a file,
 * for programs whose writes libpdla.so redirects. It is a library of its own so that other programs
 * do not pay for it. Without libpdla.so the calls go straight through.
 *
 * Reads and writes need no wrapper: they use a descriptor, and the open was seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <utime.h>

#include "posix_coherence.h"
#include "mode.h"

#define EXPORT __attribute__((visibility("default")))

/* Finds the definition after this library. If there is none, returns `failed` with errno ENOSYS. */
#define NEXT(real, name, failed)                                                      \
    if (!__atomic_load_n(&(real), __ATOMIC_RELAXED))                                  \
        __atomic_store_n((void **)&(real), dlsym(RTLD_NEXT, name), __ATOMIC_RELAXED); \
    if (!(real)) {                                                                    \
        errno = ENOSYS;                                                               \
        return failed;                                                                \
    }

/* Whether the call may be made. Otherwise errno says why not. */
static bool allowed(int error)
{
    if (error != 0)
        errno = error;
    return error == 0;
}

static bool opening(int directory, const char *path)
{
    return !pdla_coherence_opening || allowed(pdla_coherence_opening(directory, path));
}

static bool examining(int directory, const char *path)
{
    return !pdla_coherence_examining || allowed(pdla_coherence_examining(directory, path));
}

/* ---- opening, and changing by a path ----------------------------------------------------------------------------- */

#define OPEN(type, name, failed, directory, parameters, arguments) \
    EXPORT type name parameters                                    \
    {                                                              \
        static type(*real) parameters;                             \
        NEXT(real, #name, failed)                                  \
        return opening(directory, path) ? real arguments : failed; \
    }

#define OPEN_WITH_MODE(name, type, directory, parameters, arguments) \
    EXPORT int name parameters                                       \
    {                                                                \
        static type *real;                                           \
        TAKE_MODE(mode, flags)                                       \
        NEXT(real, #name, -1)                                        \
        return opening(directory, path) ? real arguments : -1;       \
    }

typedef int open_call(const char *, int, ...);
typedef int openat_call(int, const char *, int, ...);
OPEN_WITH_MODE(open, open_call, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WITH_MODE(open64, open_call, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WITH_MODE(openat, openat_call, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN_WITH_MODE(openat64, openat_call, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(int, __open_2, -1, AT_FDCWD, (const char *path, int flags), (path, flags))
OPEN(int, __open64_2, -1, AT_FDCWD, (const char *path, int flags), (path, flags))
OPEN(int, __openat_2, -1, at, (int at, const char *path, int flags), (at, path, flags))
OPEN(int, __openat64_2, -1, at, (int at, const char *path, int flags), (at, path, flags))
OPEN(int, creat, -1, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
OPEN(int, creat64, -1, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
OPEN(int, truncate, -1, AT_FDCWD, (const char *path, off_t size), (path, size))
OPEN(int, truncate64, -1, AT_FDCWD, (const char *path, off64_t size), (path, size))
/* RATIONALE: a time of the program's own would look like a change by somebody else. */
OPEN(int, utime, -1, AT_FDCWD, (const char *path, const struct utimbuf *times), (path, times))
OPEN(int, utimes, -1, AT_FDCWD, (const char *path, const struct timeval times[2]), (path, times))
OPEN(int, lutimes, -1, AT_FDCWD, (const char *path, const struct timeval times[2]), (path, times))
OPEN(int, futimesat, -1, at, (int at, const char *path, const struct timeval times[2]), (at, path, times))
OPEN(int, utimensat, -1, at, (int at, const char *path, const struct timespec times[2], int flags),
     (at, path, times, flags))
/* RATIONALE: the C library's streams do not call open() to open their files. */
OPEN(FILE *, fopen, NULL, AT_FDCWD, (const char *path, const char *mode), (path, mode))
OPEN(FILE *, fopen64, NULL, AT_FDCWD, (const char *path, const char *mode), (path, mode))
OPEN(FILE *, freopen, NULL, AT_FDCWD, (const char *path, const char *mode, FILE *stream), (path, mode, stream))
OPEN(FILE *, freopen64, NULL, AT_FDCWD, (const char *path, const char *mode, FILE *stream), (path, mode, stream))

/* ---- deleting ---------------------------------------------------------------------------------------------------- */

static struct deletion *deleting(int directory, const char *path)
{
    return pdla_coherence_deleting ? pdla_coherence_deleting(directory, path) : NULL;
}

#define DELETE(name, directory, path, parameters, arguments)         \
    EXPORT int name parameters                                       \
    {                                                                \
        static int(*real) parameters;                                \
        NEXT(real, #name, -1)                                        \
        struct deletion *deletion = deleting(directory, path);       \
        int result = real arguments;                                 \
        if (deletion)                                                \
            pdla_coherence_deleted(deletion, result == 0);           \
        return result;                                               \
    }
DELETE(unlink, AT_FDCWD, path, (const char *path), (path))
DELETE(unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
DELETE(remove, AT_FDCWD, path, (const char *path), (path))
/* The file that had the new name is deleted. */
DELETE(rename, AT_FDCWD, other, (const char *path, const char *other), (path, other))
DELETE(renameat, to, other, (int at, const char *path, int to, const char *other), (at, path, to, other))
DELETE(renameat2, to, other, (int at, const char *path, int to, const char *other, unsigned flags),
       (at, path, to, other, flags))

/* ---- examining --------------------------------------------------------------------------------------------------- */

static bool examined(uint64_t device, uint64_t inode)
{
    return pdla_coherence_examined && pdla_coherence_examined(device, inode);
}

#define EXAMINE_BY(name, may_look, device, inode, parameters, arguments)         \
    EXPORT int name parameters                                                   \
    {                                                                            \
        static int(*real) parameters;                                            \
        NEXT(real, #name, -1)                                                    \
        int result = may_look ? real arguments : -1;                             \
        return result == 0 && examined(device, inode) ? real arguments : result; \
    }
#define EXAMINE(name, may_look, parameters, arguments) \
    EXAMINE_BY(name, may_look, found->st_dev, found->st_ino, parameters, arguments)

/* `version`: for programs that were linked with older C libraries. */
#define EXAMINE_BOTH(suffix, type)                                                                            \
    EXAMINE(stat##suffix, examining(AT_FDCWD, path), (const char *path, struct type *found), (path, found))   \
    EXAMINE(lstat##suffix, examining(AT_FDCWD, path), (const char *path, struct type *found), (path, found))  \
    EXAMINE(fstat##suffix, true, (int fd, struct type *found), (fd, found))                                   \
    EXAMINE(fstatat##suffix, examining(at, path), (int at, const char *path, struct type *found, int flags),  \
            (at, path, found, flags))                                                                         \
    EXAMINE(__xstat##suffix, examining(AT_FDCWD, path), (int version, const char *path, struct type *found),  \
            (version, path, found))                                                                           \
    EXAMINE(__lxstat##suffix, examining(AT_FDCWD, path), (int version, const char *path, struct type *found), \
            (version, path, found))                                                                           \
    EXAMINE(__fxstat##suffix, true, (int version, int fd, struct type *found), (version, fd, found))          \
    EXAMINE(__fxstatat##suffix, examining(at, path),                                                          \
            (int version, int at, const char *path, struct type *found, int flags), (version, at, path, found, flags))
EXAMINE_BOTH(, stat)
EXAMINE_BOTH(64, stat64)
EXAMINE_BY(statx, examining(at, path), makedev(found->stx_dev_major, found->stx_dev_minor), found->stx_ino,
           (int at, const char *path, int flags, unsigned mask, struct statx *found), (at, path, flags, mask, found))
