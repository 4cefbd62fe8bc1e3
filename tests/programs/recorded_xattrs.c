/* Preloaded: files have the extended attributes that are files in the directory RECORDED_XATTRS, and no others. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t getxattr(const char *path, const char *name, void *value, size_t size);

ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    char recorded[4096];
    (void)path;
    snprintf(recorded, sizeof recorded, "%s/%s", getenv("RECORDED_XATTRS"), name);
    const int fd = open(recorded, O_RDONLY);
    if (fd < 0) {
        errno = ENODATA;
        return -1;
    }
    const off_t length = lseek(fd, 0, SEEK_END);
    ssize_t got = length;
    if (size > 0 && length > (off_t)size) {
        errno = ERANGE;
        got = -1;
    } else if (size > 0)
        got = pread(fd, value, size, 0);
    close(fd);
    return got;
}
