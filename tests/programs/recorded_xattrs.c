/* Preloaded: files have the extended attributes that are files in the directory RECORDED_XATTRS, and no others. */
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
    const ssize_t got = read(fd, value, size);
    close(fd);
    return got;
}
