/* Preloaded: network storage whose server is gone. The storage is all directories whose paths begin
 * with GONE_PLACE. GONE has a letter for each call on it that does not return: l (lstat), o (open),
 * r (pread), w (pwrite). The capital letters L, O, R, W stand for calls that fail after 2 s. The
 * first GONE_AFTER calls succeed. GONE_LOG gets the letter of every other call. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int calls;

static void log_try(char letter)
{
    int fd = REAL(open)(getenv("GONE_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(fd, &letter, 1) != 1)
        abort();
    close(fd);
}

/* 0: the call is to be made. */
static int fail(char letter, const char *path)
{
    const char *place = getenv("GONE_PLACE"), *how = getenv("GONE"), *after = getenv("GONE_AFTER");
    if (place == NULL || strncmp(path, place, strlen(place)) != 0)
        return 0;
    const int later = after != NULL && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) < atoi(after);
    if (later || (strchr(how, letter) == NULL && strchr(how, toupper(letter)) == NULL))
        return 0;
    log_try(letter);
    while (strchr(how, letter) != NULL)
        pause();
    sleep(2);
    errno = EIO;
    return -1;
}

static int fail_open_file(char letter, int fd)
{
    char name[64], path[4096] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) < 0)
        path[0] = '\0';
    return fail(letter, path);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return fail('o', path) != 0 ? -1 : REAL(open)(path, flags, mode);
}

int lstat(const char *path, struct stat *found) { return fail('l', path) != 0 ? -1 : REAL(lstat)(path, found); }

ssize_t pread(int fd, void *memory, size_t length, off_t offset)
{
    return fail_open_file('r', fd) != 0 ? -1 : REAL(pread)(fd, memory, length, offset);
}

ssize_t pwrite(int fd, const void *memory, size_t length, off_t offset)
{
    return fail_open_file('w', fd) != 0 ? -1 : REAL(pwrite)(fd, memory, length, offset);
}

/* Files next to GONE_LOG appear to be on a file system of type GONE_TYPE, or on FUSE. */
FILE *fopen(const char *path, const char *mode)
{
    static char line[100];
    const char *type = getenv("GONE_TYPE");
    struct stat found;
    if (strcmp(path, "/proc/self/mountinfo") != 0 || REAL(stat)(getenv("GONE_LOG"), &found) != 0)
        return REAL(fopen)(path, mode);
    snprintf(line, sizeof line, "1 1 %u:%u / / rw - %s x rw\n", major(found.st_dev), minor(found.st_dev),
             type == NULL ? "fuse.x" : type);
    return fmemopen(line, strlen(line), "r");
}
