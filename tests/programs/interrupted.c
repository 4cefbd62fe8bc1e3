/* Preloaded: kills its process at the k-th change of a file, or makes the disk full from then on.
 *
 * INTERRUPT_AT      k; 0: never
 * INTERRUPT_HOW     kill: before the change · torn: after half of the bytes · full: no more bytes are written,
 *                   until the file INTERRUPT_GATE exists · held: this change waits until then · exit: before the
 *                   change, as a signal handler would do it. Then only what the first thread does counts, also
 *                   when it wakes others
 * INTERRUPT_BELOW   counts only changes of files whose paths begin so; several with : between them
 * INTERRUPT_RANK    counts only changes of this rank
 * INTERRUPT_LOG     a file for lines "CALL PATH", one for each change that counts; sync: any call that
 *                   makes bytes durable
 *
 * A program that forks sets these in the child and calls interrupt_arm(). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum how { KILL, TORN, FULL, HELD, EXIT };

static long left; /* changes until then; 0: never */
static enum how how;
static char below[PATH_MAX * 2];
static const char *told; /* where changes are logged; NULL: nowhere */

/* The next function of this name. */
#define NEXT(name) (__extension__(__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((visibility("default"))) void interrupt_arm(void);
__attribute__((constructor)) void interrupt_arm(void)
{
    const char *at = getenv("INTERRUPT_AT"), *kind = getenv("INTERRUPT_HOW"), *where = getenv("INTERRUPT_BELOW");
    const char *wanted = getenv("INTERRUPT_RANK"), *rank = getenv("PMI_RANK");
    rank = rank != NULL ? rank : getenv("OMPI_COMM_WORLD_RANK");
    const bool mine = wanted == NULL || *wanted == '\0' || rank == NULL || strcmp(wanted, rank) == 0;
    how = kind == NULL || *kind == 'k' ? KILL : *kind == 't' ? TORN : *kind == 'h' ? HELD : *kind == 'e' ? EXIT : FULL;
    snprintf(below, sizeof below, "%s", where == NULL ? "" : where);
    told = getenv("INTERRUPT_LOG");
    left = at == NULL || !mine ? 0 : atol(at);
}

static bool counts(const char *path)
{
    for (const char *prefix = below; *prefix != '\0';) {
        size_t length = strcspn(prefix, ":");
        if (strncmp(path, prefix, length) == 0)
            return true;
        prefix += length + (prefix[length] == ':');
    }
    return false;
}

static bool gate_is_open(void)
{
    const char *gate = getenv("INTERRUPT_GATE");
    return gate != NULL && access(gate, F_OK) == 0;
}

/* In one write, since several ranks use the log. */
static void tell(const char *call, const char *path)
{
    char line[PATH_MAX * 2 + 16];
    const int fd = told == NULL || !counts(path) ? -1 : open(told, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && NEXT(write)(fd, line, (size_t)snprintf(line, sizeof line, "%s %s\n", call, path)) < 0)
        abort();
    if (fd >= 0)
        close(fd);
}

/* Whether the change of the file at `path` is the one. */
static bool is_it(const char *call, const char *path)
{
    tell(call, path);
    const long now = __atomic_load_n(&left, __ATOMIC_RELAXED);
    if (now == 0 || !counts(path) || (how == EXIT && gettid() != getpid()))
        return false;
    if (now > 1 || how != FULL)
        __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED);
    if (now == 1 && how == HELD)
        while (!gate_is_open())
            usleep(1000);
    return now == 1 && how != HELD && (how != FULL || !gate_is_open());
}

static bool is_it_at(const char *call, int directory, const char *name)
{
    char link[64], path[PATH_MAX * 2] = "";
    if (left == 0 && told == NULL)
        return false;
    if (name != NULL && *name == '/')
        return is_it(call, name);
    snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0)
        return false;
    snprintf(path + length, sizeof path - (size_t)length, name == NULL ? "" : "/%s", name);
    return is_it(call, path);
}

static void die(void)
{
    if (how == EXIT) {
        fprintf(stderr, "exits\n");
        exit(3);
    }
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Before a change that takes no space. */
static void change(const char *call, int directory, const char *name)
{
    if (how != FULL && is_it_at(call, directory, name))
        die();
}

/* Before `count` bytes are written. Returns how many of them may be written, or -1. */
static ssize_t writable(int fd, size_t count)
{
    if (!is_it_at("write", fd, NULL))
        return (ssize_t)count;
    if (how == KILL || how == EXIT)
        die();
    errno = ENOSPC;
    return how == FULL ? -1 : (ssize_t)count / 2;
}

ssize_t write(int fd, const void *buffer, size_t count)
{
    ssize_t most = writable(fd, count), done = most < 0 ? -1 : NEXT(write)(fd, buffer, (size_t)most);
    if (most >= 0 && (size_t)most < count)
        die();
    return done;
}

ssize_t pwrite(int fd, const void *buffer, size_t count, off_t at)
{
    ssize_t most = writable(fd, count), done = most < 0 ? -1 : NEXT(pwrite)(fd, buffer, (size_t)most, at);
    if (most >= 0 && (size_t)most < count)
        die();
    return done;
}

ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t at) { return pwrite(fd, buffer, count, at); }

/* Pieces in one call: the first half of them. */
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    ssize_t most = writable(fd, (size_t)count), done = most < 0 ? -1 : NEXT(pwritev)(fd, pieces, (int)most, at);
    if (most >= 0 && most < count)
        die();
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t at) { return pwritev(fd, pieces, count, at); }

int fallocate(int fd, int mode, off_t at, off_t length)
{
    return writable(fd, 1) != 1 ? -1 : NEXT(fallocate)(fd, mode, at, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length) { return fallocate(fd, mode, at, length); }

int posix_fallocate(int fd, off_t at, off_t length)
{
    return writable(fd, 1) != 1 ? ENOSPC : NEXT(posix_fallocate)(fd, at, length);
}

int posix_fallocate64(int fd, off64_t at, off64_t length) { return posix_fallocate(fd, at, length); }

int ftruncate(int fd, off_t size)
{
    change("truncate", fd, NULL);
    return NEXT(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fsync(int fd)
{
    change("sync", fd, NULL);
    return NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    change("sync", fd, NULL);
    return NEXT(fdatasync)(fd);
}

/* All programs that preload this map only journals. */
int msync(void *base, size_t size, int flags)
{
    if (how != FULL && is_it("sync", below))
        die();
    return NEXT(msync)(base, size, flags);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    int (*real)(pthread_cond_t *) = (int (*)(pthread_cond_t *))dlvsym(RTLD_NEXT, __func__, "GLIBC_2.3.2");
    if (how == EXIT && is_it("wake", below))
        die();
    return (real != NULL ? real : NEXT(pthread_cond_broadcast))(condition);
}

int unlink(const char *path)
{
    change("unlink", AT_FDCWD, path);
    return NEXT(unlink)(path);
}

int unlinkat(int directory, const char *path, int flags)
{
    change("unlink", directory, path);
    return NEXT(unlinkat)(directory, path, flags);
}

int rename(const char *from, const char *to)
{
    change("rename", AT_FDCWD, to);
    return NEXT(rename)(from, to);
}

int renameat(int old, const char *from, int new, const char *to)
{
    change("rename", new, to);
    return NEXT(renameat)(old, from, new, to);
}
