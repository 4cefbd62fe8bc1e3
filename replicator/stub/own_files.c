#include "own_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_own(const struct stat *found)
{
    return found->st_uid == geteuid() && !(found->st_mode & (S_IWGRP | S_IWOTH));
}

/* Closes what is not this user's. */
static int refused(int fd)
{
    close(fd);
    errno = EPERM;
    return -1;
}

int own_directory_open(const char *path)
{
    struct stat found;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        errno = EPERM;
    return fd < 0 || (fstat(fd, &found) == 0 && is_own(&found)) ? fd : refused(fd);
}

int own_file_open(int at, const char *name, int flags, uint64_t inode)
{
    struct stat found;
    const int fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        errno = EPERM;
    return fd < 0
            || (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1 && is_own(&found)
                && (inode == 0 || inode == found.st_ino))
        ? fd : refused(fd);
}
