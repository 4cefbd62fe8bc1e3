/* libpdla-posix.so wraps the C library's calls on files and hands them to the recorder in
 * libpdla.so. It is a library of its own so that programs whose POSIX calls are not recorded do not
 * pay for it. Without libpdla.so the calls go straight through.
 *
 * Signal handlers may make these calls: nothing here locks or allocates. errno stays as the real
 * call left it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mode.h"
#include "wrappers.h"

__attribute__((constructor)) static void begin_process(void)
{
    if (pdla_posix_present)
        pdla_posix_present();
}

bool find_next(void *real, const char *name)
{
    void **function = real;
    if (!__atomic_load_n(function, __ATOMIC_RELAXED))
        __atomic_store_n(function, dlsym(RTLD_NEXT, name), __ATOMIC_RELAXED);
    if (!*function)
        errno = ENOSYS;
    return *function;
}

static int64_t now(void)
{
    return pdla_posix_clock ? pdla_posix_clock() : 0;
}

static void forget(int fd)
{
    if (pdla_posix_forget)
        pdla_posix_forget(fd);
}

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

enum { CURRENT = -1 }; /* as an offset: the file's own pointer */

static off64_t where_it_is(int fd)
{
    static off64_t (*real)(int, off64_t, int);
    return find_next(&real, "lseek64") ? real(fd, 0, SEEK_CUR) : -1;
}

/* RATIONALE: read after the call, which tells whether the vector can be read. */
static int64_t bytes_in(const struct iovec *pieces, int count, ssize_t moved)
{
    int64_t sum = 0;
    for (int i = 0; moved >= 0 && i < count; i++)
        sum += (int64_t)pieces[i].iov_len;
    return sum;
}

static ssize_t end_data(struct posix_call *call, int fd, ssize_t moved, int64_t length)
{
    int error = errno;
    call->length = length;
    call->t_end = now();
    if (call->offset == CURRENT && (call->offset = where_it_is(fd)) > 0 && moved > 0)
        call->offset -= moved;
    pdla_posix_end(call, moved > 0 ? moved : 0, moved < 0 ? error : 0);
    errno = error;
    return moved;
}

#define DATA(name, kind, parameters, arguments, at, length)           \
    EXPORT ssize_t name parameters                                    \
    {                                                                 \
        static ssize_t(*real) parameters;                             \
        if (!find_next(&real, #name))                                 \
            return -1;                                                \
        struct posix_call call = {.number = POSIX_##kind, .offset = at}; \
        bool recorded = BEGIN(&call, fd);                             \
        ssize_t moved = real arguments;                               \
        return recorded ? end_data(&call, fd, moved, length) : moved; \
    }

#define VECTOR const struct iovec *pieces, int count
#define VECTOR_LENGTH bytes_in(pieces, count, moved)

DATA(read, read, (int fd, void *buffer, size_t size), (fd, buffer, size), CURRENT, (int64_t)size)
DATA(write, write, (int fd, const void *buffer, size_t size), (fd, buffer, size), CURRENT, (int64_t)size)
DATA(readv, readv, (int fd, VECTOR), (fd, pieces, count), CURRENT, VECTOR_LENGTH)
DATA(writev, writev, (int fd, VECTOR), (fd, pieces, count), CURRENT, VECTOR_LENGTH)

#define DATA_AT(suffix, offset_type)                                                                                \
    DATA(pread##suffix, pread, (int fd, void *buffer, size_t size, offset_type offset), (fd, buffer, size, offset), \
         offset, (int64_t)size)                                                                                     \
    DATA(pwrite##suffix, pwrite, (int fd, const void *buffer, size_t size, offset_type offset),                     \
         (fd, buffer, size, offset), offset, (int64_t)size)                                                         \
    DATA(preadv##suffix, preadv, (int fd, VECTOR, offset_type offset), (fd, pieces, count, offset), offset,         \
         VECTOR_LENGTH)                                                                                             \
    DATA(pwritev##suffix, pwritev, (int fd, VECTOR, offset_type offset), (fd, pieces, count, offset), offset,       \
         VECTOR_LENGTH)
DATA_AT(, off_t)
DATA_AT(64, off64_t)

#define DATA_FLAGS(suffix, offset_type)                                                                             \
    DATA(preadv##suffix, preadv, (int fd, VECTOR, offset_type offset, int flags),                                   \
         (fd, pieces, count, offset, flags), offset, VECTOR_LENGTH)                                                 \
    DATA(pwritev##suffix, pwritev, (int fd, VECTOR, offset_type offset, int flags),                                 \
         (fd, pieces, count, offset, flags), offset, VECTOR_LENGTH)
DATA_FLAGS(2, off_t)
DATA_FLAGS(64v2, off64_t)

/* What the compiler calls instead with _FORTIFY_SOURCE; `room` is the size of the buffer. */
DATA(__read_chk, read, (int fd, void *buffer, size_t size, size_t room), (fd, buffer, size, room), CURRENT,
     (int64_t)size)
DATA(__pread_chk, pread, (int fd, void *buffer, size_t size, off_t offset, size_t room),
     (fd, buffer, size, offset, room), offset, (int64_t)size)
DATA(__pread64_chk, pread, (int fd, void *buffer, size_t size, off64_t offset, size_t room),
     (fd, buffer, size, offset, room), offset, (int64_t)size)

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static int opened(int fd, int64_t start, const void *caller)
{
    struct posix_call call = {.number = POSIX_open};
    if (fd < 0)
        return fd;
    forget(fd);
    if (pdla_posix_begin && pdla_posix_begin(&call, fd, caller)) {
        call.t_start = start;
        pdla_posix_end(&call, 0, 0);
    }
    return fd;
}

#define OPEN(name, parameters, arguments)                             \
    EXPORT int name parameters                                        \
    {                                                                 \
        static int(*real) parameters;                                 \
        if (!find_next(&real, #name))                                 \
            return -1;                                                \
        int64_t start = now();                                        \
        return opened(real arguments, start, __builtin_return_address(0)); \
    }

#define OPEN_WITH_MODE(name, type, parameters, arguments)             \
    EXPORT int name parameters                                        \
    {                                                                 \
        static type *real;                                            \
        TAKE_MODE(mode, flags)                                        \
        if (!find_next(&real, #name))                                 \
            return -1;                                                \
        int64_t start = now();                                        \
        return opened(real arguments, start, __builtin_return_address(0)); \
    }

typedef int open_call(const char *, int, ...);
typedef int openat_call(int, const char *, int, ...);
OPEN_WITH_MODE(open, open_call, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WITH_MODE(open64, open_call, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WITH_MODE(openat, openat_call, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN_WITH_MODE(openat64, openat_call, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(creat, (const char *path, mode_t mode), (path, mode))
OPEN(creat64, (const char *path, mode_t mode), (path, mode))
OPEN(__open_2, (const char *path, int flags), (path, flags))
OPEN(__open64_2, (const char *path, int flags), (path, flags))
OPEN(__openat_2, (int at, const char *path, int flags), (at, path, flags))
OPEN(__openat64_2, (int at, const char *path, int flags), (at, path, flags))

static int end_call(struct posix_call *call, int result, int error)
{
    int kept = errno;
    pdla_posix_end(call, 0, error);
    errno = kept;
    return result;
}

EXPORT int close(int fd)
{
    static int (*real)(int);
    struct posix_call call = {.number = POSIX_close};
    if (!find_next(&real, "close"))
        return -1;
    bool recorded = BEGIN(&call, fd);
    forget(fd);
    int result = real(fd);
    return recorded ? end_call(&call, result, result < 0 ? errno : 0) : result;
}

/* RATIONALE: when the C library closes a stream, its own close does not come here. */
EXPORT int fclose(FILE *stream)
{
    static int (*real)(FILE *);
    if (!find_next(&real, "fclose"))
        return EOF;
    forget(fileno(stream));
    return real(stream);
}

#define DUPLICATE(name, parameters, arguments) \
    EXPORT int name parameters                 \
    {                                          \
        static int(*real) parameters;          \
        if (!find_next(&real, #name))          \
            return -1;                         \
        int fd = real arguments;               \
        forget(fd);                            \
        return fd;                             \
    }
DUPLICATE(dup, (int old), (old))
DUPLICATE(dup2, (int old, int new), (old, new))
DUPLICATE(dup3, (int old, int new, int flags), (old, new, flags))

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

#define SEEK(name, offset_type)                                        \
    EXPORT offset_type name(int fd, offset_type offset, int whence)    \
    {                                                                  \
        static offset_type (*real)(int, offset_type, int);             \
        if (!find_next(&real, #name))                                  \
            return -1;                                                 \
        struct posix_call call = {.number = POSIX_lseek};              \
        bool recorded = BEGIN(&call, fd);                              \
        offset_type place = real(fd, offset, whence);                  \
        call.offset = place;                                           \
        if (recorded)                                                  \
            end_call(&call, 0, place < 0 ? errno : 0);                 \
        return place;                                                  \
    }
SEEK(lseek, off_t)
SEEK(lseek64, off64_t)

/* `failed`: the error to record if the result is not 0. */
#define CALL(name, kind, parameters, arguments, at, bytes, failed)                                 \
    EXPORT int name parameters                                                                     \
    {                                                                                              \
        static int(*real) parameters;                                                              \
        if (!find_next(&real, #name))                                                              \
            return -1;                                                                             \
        struct posix_call call = {.number = POSIX_##kind, .offset = at, .length = bytes};          \
        bool recorded = BEGIN(&call, fd);                                                          \
        int result = real arguments;                                                               \
        return recorded ? end_call(&call, result, result == 0 ? 0 : failed) : result;              \
    }
CALL(ftruncate, ftruncate, (int fd, off_t size), (fd, size), size, 0, errno)
CALL(ftruncate64, ftruncate, (int fd, off64_t size), (fd, size), size, 0, errno)
CALL(fallocate, fallocate, (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length), offset, length,
     errno)
CALL(fallocate64, fallocate, (int fd, int mode, off64_t offset, off64_t length), (fd, mode, offset, length), offset,
     length, errno)
CALL(posix_fallocate, fallocate, (int fd, off_t offset, off_t length), (fd, offset, length), offset, length, result)
CALL(posix_fallocate64, fallocate, (int fd, off64_t offset, off64_t length), (fd, offset, length), offset, length,
     result)
CALL(fsync, fsync, (int fd), (fd), 0, 0, errno)
CALL(fdatasync, fdatasync, (int fd), (fd), 0, 0, errno)
