/* Calls of the C library on files whose writes are redirected. While there are none, the cost is
 * one look at a list. */
#include "posix_coherence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "calls.h"
#include "deletion.h"
#include "recovery.h"
#include "write_open.h"

/* Begins a look, which end_look() ends. RATIONALE: opens and examinations by the MPI library itself, inside a wrapped
 * call, do not count as the program's, even if nothing is traced or redirected. */
static bool is_the_programs(const char *path)
{
    const bool watched = enter();
    enter_hook();
    return (watched || in_call.depth == 1) && path != NULL;
}

static void end_look(void)
{
    leave(leave_hook(0));
}

static bool full_path(int directory, const char *path, char full[PATH_MAX])
{
    char name[PATH_MAX];
    const int length = *path == '/' || directory == AT_FDCWD
        ? snprintf(name, sizeof name, "%s", path)
        : snprintf(name, sizeof name, "/proc/self/fd/%d/%s", directory, path);
    return length < (int)sizeof name && realpath(name, full) != NULL;
}

/* Writes back what earlier programs left in replicas. 0 or an errno. */
static int recover(int directory, const char *path, const struct stat *found)
{
    char full[PATH_MAX];
    return S_ISREG(found->st_mode) && recovery_noted(found->st_ino) && full_path(directory, path, full)
        ? recovery_by_one_process(full) : 0;
}

int pdla_coherence_opening(int directory, const char *path)
{
    struct stat found;
    int error = errno, result = 0;
    if (is_the_programs(path) && fstatat(directory, path, &found, 0) == 0) {
        if (writers_any())
            writers_end_redirection(found.st_dev, found.st_ino, "the program opened the file without MPI, too");
        result = recover(directory, path, &found);
    }
    end_look();
    errno = error;
    return result;
}

int pdla_coherence_examining(int directory, const char *path)
{
    struct stat found;
    int error = errno;
    int result = is_the_programs(path) && fstatat(directory, path, &found, 0) == 0
        ? recover(directory, path, &found) : 0;
    end_look();
    errno = error;
    return result;
}

struct deletion *pdla_coherence_deleting(int directory, const char *path)
{
    int error = errno;
    struct deletion *deletion = is_the_programs(path) ? deletion_begin(directory, path) : NULL;
    end_look();
    errno = error;
    return deletion;
}

void pdla_coherence_deleted(struct deletion *deletion, bool done)
{
    int error = errno;
    enter();
    enter_hook();
    deletion_end(deletion, done);
    end_look();
    errno = error;
}

bool pdla_coherence_examined(uint64_t device, uint64_t inode)
{
    int error = errno;
    if (!writers_any())
        return false;
    const bool watched = enter();
    enter_hook();
    const bool longer = watched && writers_extend_original(device, inode);
    end_look();
    errno = error;
    return longer;
}

bool coherence_is_open(const char *name)
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
