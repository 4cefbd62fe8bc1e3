#include "node_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own_files.h"

enum { MOST_TRIES = 100 /* to make a directory that others remove when it is empty */ };

void node_boot(char boot[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, boot, 36);
    boot[length < 0 ? 0 : length] = '\0';
    close(fd);
}

int directory_sync(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Makes a directory, durably, unless it is there. */
static bool make(char *directory, mode_t mode)
{
    if (mkdir(directory, mode) != 0)
        return errno == EEXIST;
    /* Whatever the umask. RATIONALE: others may write to the directory above, and put a link in its place. */
    fchmodat(AT_FDCWD, directory, mode, AT_SYMLINK_NOFOLLOW);
    char *slash = strrchr(directory, '/');
    *slash = '\0';
    directory_sync(directory);
    *slash = '/';
    return true;
}

/* Makes a file in a directory of this user. -1: see errno. */
static int open_in(const char *directory, const char *name, int flags)
{
    const int node = own_directory_open(directory);
    if (node < 0)
        return -1;
    const int fd = openat(node, name, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600), error = errno;
    close(node);
    errno = error;
    return fd;
}

int node_directory_open(const char *path, int flags, mode_t mode)
{
    const size_t length = (size_t)(strrchr(path, '/') - path);
    char directory[4096];
    int fd = -1;
    if (length >= sizeof directory) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(directory, path, length);
    directory[length] = '\0';
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        fd = open_in(directory, path + length + 1, flags);
        if (fd >= 0 || errno != ENOENT || !make(directory, mode))
            break;
    }
    return fd;
}
