/* Calls of the C library on files whose writes are redirected. While there are none such, they cost a look. */
#include "beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "calls.h"
#include "writer.h"

/* RATIONALE: what the MPI library itself opens and examines, inside a call that is watched, is not the program's. */
void pdla_beside_opening(int directory, const char *path)
{
    struct stat found;
    int error = errno;
    if (!writers_any())
        return;
    if (enter() && path != NULL && fstatat(directory, path, &found, 0) == 0)
        writers_settle(found.st_dev, found.st_ino, "the file was opened beside MPI");
    leave(0);
    errno = error;
}

bool pdla_beside_examined(uint64_t device, uint64_t inode)
{
    int error = errno;
    if (!writers_any())
        return false;
    bool longer = enter() && writers_lengthen(device, inode);
    leave(0);
    errno = error;
    return longer;
}

bool beside_open(const char *name)
{
    struct stat wanted, found;
    char path[PATH_MAX];
    bool open = false;
    resolve_path(name, path);
    DIR *descriptors = stat(path, &wanted) == 0 ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *entry; descriptors != NULL && !open && (entry = readdir(descriptors)) != NULL;)
        open = entry->d_name[0] != '.' && fstat(atoi(entry->d_name), &found) == 0 && found.st_ino == wanted.st_ino
            && found.st_dev == wanted.st_dev;
    if (descriptors != NULL)
        closedir(descriptors);
    return open;
}
