#define _GNU_SOURCE
#include "originals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { SOME = 16 };

/* A descriptor that original_open() gave. */
struct original {
    int fd, access;
    dev_t device;
    ino_t inode;
    bool kept;   /* the library does not use it now */
    bool shared; /* the process has the file open in another way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct original *originals;
static size_t count, room;

static bool reserve(void)
{
    struct original *larger = count < room ? originals : realloc(originals, (room + SOME) * sizeof *larger);
    if (larger != NULL) {
        room = count < room ? room : room + SOME;
        originals = larger;
    }
    return larger != NULL;
}

static struct original *find(int fd)
{
    for (size_t i = 0; i < count; i++)
        if (originals[i].fd == fd)
            return &originals[i];
    return NULL;
}

static bool any_kept(void)
{
    for (size_t i = 0; i < count; i++)
        if (originals[i].kept)
            return true;
    return false;
}

static bool allows(int access, int wanted)
{
    return access == wanted || access == O_RDWR;
}

/* A kept descriptor of the file that `path` leads to now; -1: there is none. RATIONALE: a network file system compares
 * what it has of a file with the server when the file is opened, or when it has to. */
static int take_kept(const char *path, int flags)
{
    struct statx found;
    const int follow = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    if (!any_kept() || statx(AT_FDCWD, path, follow | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &found) != 0)
        return -1;
    const dev_t device = makedev(found.stx_dev_major, found.stx_dev_minor);
    for (size_t i = 0; i < count; i++) {
        struct original *one = &originals[i];
        if (one->kept && one->device == device && one->inode == found.stx_ino
            && allows(one->access, flags & O_ACCMODE)) {
            one->kept = false;
            return one->fd;
        }
    }
    return -1;
}

int original_open(const char *path, int flags)
{
    struct stat found;
    pthread_mutex_lock(&lock);
    int fd = take_kept(path, flags);
    if (fd < 0 && reserve() && (fd = open(path, flags | O_CLOEXEC | O_NONBLOCK)) >= 0 && fstat(fd, &found) == 0)
        originals[count++] = (struct original){.fd = fd, .access = flags & O_ACCMODE, .device = found.st_dev,
                                               .inode = found.st_ino};
    pthread_mutex_unlock(&lock);
    return fd;
}

/* Notes which originals are open through this descriptor of the process, if it is none of the library's. One that can
 * only name a file (O_PATH) holds no locks. RATIONALE: the program's file may be on storage that does not answer. */
static void note_other(DIR *descriptors, const char *name)
{
    struct statx found;
    const int fd = atoi(name);
    if (find(fd) != NULL || statx(dirfd(descriptors), name, AT_STATX_DONT_SYNC, STATX_INO, &found) != 0)
        return;
    const dev_t device = makedev(found.stx_dev_major, found.stx_dev_minor);
    for (size_t i = 0; i < count; i++)
        if (originals[i].device == device && originals[i].inode == found.stx_ino && !(fcntl(fd, F_GETFL) & O_PATH))
            originals[i].shared = true;
}

/* All are, if the process's descriptors cannot be listed. */
static void find_shared(void)
{
    DIR *descriptors = opendir("/proc/self/fd");
    for (size_t i = 0; i < count; i++)
        originals[i].shared = descriptors == NULL;
    for (struct dirent *entry; descriptors != NULL && (entry = readdir(descriptors)) != NULL;)
        if (entry->d_name[0] != '.')
            note_other(descriptors, entry->d_name);
    if (descriptors != NULL)
        closedir(descriptors);
}

static void close_unshared(void)
{
    size_t left = 0;
    find_shared();
    for (size_t i = 0; i < count; i++)
        if (originals[i].kept && !originals[i].shared)
            close(originals[i].fd);
        else
            originals[left++] = originals[i];
    count = left;
}

void originals_close_kept(void)
{
    const int error = errno;
    pthread_mutex_lock(&lock);
    if (any_kept())
        close_unshared();
    pthread_mutex_unlock(&lock);
    errno = error;
}

void original_close(int fd)
{
    pthread_mutex_lock(&lock);
    struct original *one = fd < 0 ? NULL : find(fd);
    if (one != NULL)
        one->kept = true;
    pthread_mutex_unlock(&lock);
    if (one != NULL)
        originals_close_kept();
    else if (fd >= 0)
        close(fd);
}
