/* A preloaded library that notes what a process asks of the file system and of MPI: to be given in LD_PRELOAD, where
 * libpdla.so comes before it. With COUNTED=DIRECTORY each process adds to DIRECTORY/<process> a line for each call:
 *
 *   open PATH   create PATH   stat PATH   list PATH   change PATH   lock PATH    paths below COUNTED_BELOW only
 *   mpi NAME IN OUT                                       what libpdla.so asks of MPI, and bytes given and gotten
 *
 * `change` is the making, renaming or removal of a name, `lock` a lock that waits for those of other processes, as
 * ROMIO's do. `open` and `create` are opens without and with O_CREAT. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(const char *line, int length)
{
    char path[4096];
    const char *directory = getenv("COUNTED");
    if (directory == NULL || length <= 0)
        return;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)length) != length)
        abort();
    syscall(SYS_close, fd);
}

static void note_path(const char *what, const char *path)
{
    char line[8192];
    const char *below = getenv("COUNTED_BELOW");
    if (below != NULL && path != NULL && strncmp(path, below, strlen(below)) == 0)
        note(line, snprintf(line, sizeof line, "%s %s\n", what, path));
}

static void note_descriptor(const char *what, int fd)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    note_path(what, path);
}

/* A path from the directory `at`. */
static void note_at(const char *what, int at, const char *path)
{
    char name[64], whole[8192];
    snprintf(name, sizeof name, "/proc/self/fd/%d", at);
    const ssize_t length = at == AT_FDCWD || path[0] == '/' ? 0 : readlink(name, whole, 4096);
    snprintf(whole + (length > 0 ? length : 0), 4096, "%s%s", length > 0 ? "/" : "", path);
    note_path(what, whole);
}

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define OPENING(name, parameters, at, path, arguments)                 \
    int name parameters                                                \
    {                                                                  \
        NEXT(name);                                                    \
        va_list more;                                                  \
        va_start(more, flags);                                         \
        const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                  \
        note_at(flags & O_CREAT ? "create" : "open", at, path);        \
        return next arguments;                                         \
    }
OPENING(open, (const char *path, int flags, ...), AT_FDCWD, path, (path, flags, mode))
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD, path, (path, flags, mode))
OPENING(openat, (int at, const char *path, int flags, ...), at, path, (at, path, flags, mode))
OPENING(openat64, (int at, const char *path, int flags, ...), at, path, (at, path, flags, mode))

#define CALL_AT(type, name, parameters, what, at, path, arguments) \
    type name parameters                                           \
    {                                                              \
        NEXT(name);                                                \
        note_at(what, at, path);                                   \
        return next arguments;                                     \
    }
#define CALL(type, name, parameters, what, path, arguments) \
    CALL_AT(type, name, parameters, what, AT_FDCWD, path, arguments)
CALL(FILE *, fopen, (const char *path, const char *mode), strchr(mode, 'r') ? "open" : "create", path, (path, mode))
CALL(FILE *, fopen64, (const char *path, const char *mode), strchr(mode, 'r') ? "open" : "create", path, (path, mode))
CALL(int, stat, (const char *path, struct stat *found), "stat", path, (path, found))
CALL(int, stat64, (const char *path, struct stat64 *found), "stat", path, (path, found))
CALL(int, lstat, (const char *path, struct stat *found), "stat", path, (path, found))
CALL(int, lstat64, (const char *path, struct stat64 *found), "stat", path, (path, found))
CALL_AT(int, fstatat, (int at, const char *path, struct stat *found, int flags), "stat", at, path,
        (at, path, found, flags))
CALL_AT(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *found), "stat", at, path,
        (at, path, flags, mask, found))
CALL_AT(ssize_t, readlinkat, (int at, const char *path, char *text, size_t size), "stat", at, path,
        (at, path, text, size))
CALL(int, access, (const char *path, int mode), "stat", path, (path, mode))
CALL(DIR *, opendir, (const char *path), "list", path, (path))
CALL(int, mkdir, (const char *path, mode_t mode), "change", path, (path, mode))
CALL(int, rmdir, (const char *path), "change", path, (path))
CALL(int, unlink, (const char *path), "change", path, (path))
CALL(int, rename, (const char *old, const char *path), "change", path, (old, path))
CALL_AT(int, unlinkat, (int at, const char *path, int flags), "change", at, path, (at, path, flags))
CALL_AT(int, renameat, (int from, const char *old, int at, const char *path), "change", at, path, (from, old, at, path))
CALL_AT(int, symlinkat, (const char *text, int at, const char *path), "change", at, path, (text, at, path))
CALL(int, link, (const char *old, const char *path), "change", path, (old, path))

static int locked(int (*next)(int, int, ...), int fd, int command, void *argument)
{
    if (command == F_SETLKW)
        note_descriptor("lock", fd);
    return next(fd, command, argument);
}

#define FCNTL(name)                                \
    int name(int fd, int command, ...)             \
    {                                              \
        NEXT(name);                                \
        va_list more;                              \
        va_start(more, command);                   \
        void *const argument = va_arg(more, void *); \
        va_end(more);                              \
        return locked(next, fd, command, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- MPI: MPICH's handles are ints --------------------------------------------------------------------------- */

int PMPI_Type_size(int type, int *bytes);
int PMPI_Comm_size(int comm, int *ranks);

static long long size_of(int type)
{
    NEXT(PMPI_Type_size);
    int bytes = 0;
    next(type, &bytes);
    return bytes;
}

static int ranks_of(int comm)
{
    NEXT(PMPI_Comm_size);
    int ranks = 1;
    next(comm, &ranks);
    return ranks;
}

static long long sum(const int *counts, int comm)
{
    long long all = 0;
    for (int i = 0; i < ranks_of(comm); i++)
        all += counts[i];
    return all;
}

/* Whether libpdla.so makes a call, and not the MPI library itself. */
static bool is_pdla(const void *caller)
{
    Dl_info found;
    return dladdr(caller, &found) != 0 && strstr(found.dli_fname, "libpdla") != NULL;
}

#define MPI(name, parameters, in, out, arguments)                                                         \
    int PMPI_##name parameters                                                                            \
    {                                                                                                     \
        NEXT(PMPI_##name);                                                                                \
        char line[256];                                                                                   \
        const long long given = in, gotten = out;                                                         \
        if (is_pdla(__builtin_return_address(0)))                                                         \
            note(line, snprintf(line, sizeof line, "mpi %s %lld %lld\n", #name, given, gotten));          \
        return next arguments;                                                                            \
    }
MPI(Iallreduce, (const void *in, void *out, int count, int type, int op, int comm, int *request),
    count * size_of(type), count * size_of(type), (in, out, count, type, op, comm, request))
MPI(Ibcast, (void *data, int count, int type, int root, int comm, int *request), 0, count * size_of(type),
    (data, count, type, root, comm, request))
MPI(Ialltoall, (const void *in, int count, int type, void *out, int each, int of, int comm, int *request),
    count * size_of(type) * ranks_of(comm), each * size_of(of) * ranks_of(comm),
    (in, count, type, out, each, of, comm, request))
MPI(Ialltoallv,
    (const void *in, const int *counts, const int *places, int type, void *out, const int *each, const int *where,
     int of, int comm, int *request),
    sum(counts, comm) * size_of(type), sum(each, comm) * size_of(of),
    (in, counts, places, type, out, each, where, of, comm, request))
MPI(Isend, (const void *data, int count, int type, int to, int tag, int comm, int *request), count * size_of(type), 0,
    (data, count, type, to, tag, comm, request))
MPI(Irecv, (void *data, int count, int type, int from, int tag, int comm, int *request), 0, count * size_of(type),
    (data, count, type, from, tag, comm, request))
MPI(Comm_dup, (int comm, int *duplicate), 0, 0, (comm, duplicate))
