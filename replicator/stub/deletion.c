#include "deletion.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recovery.h"

struct deletion {
    struct original_state file;
    char path[4096];
    int fd; /* keeps the file until it is known whether its last name went; closing it drops no lock of the program */
};

/* The name of an open file. False: it is too long, or the file has none. */
static bool name_of(int fd, char path[4096])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, 4096);
    path[length > 0 && length < 4096 ? length : 0] = '\0';
    return path[0] == '/';
}

struct deletion *deletion_begin(int directory, const char *path)
{
    struct stat found;
    if (fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode) || found.st_nlink != 1
        || !recovery_noted(found.st_ino))
        return NULL;
    struct deletion *deletion = calloc(1, sizeof *deletion);
    const int fd = deletion == NULL ? -1 : file_hold(directory, path);
    if (fd >= 0 && name_of(fd, deletion->path) && original_examine(fd, deletion->path, &deletion->file)) {
        deletion->fd = fd;
        return deletion;
    }
    if (fd >= 0)
        close(fd);
    free(deletion);
    return NULL;
}

/* RATIONALE: a client of NFS renames a file that is open instead of removing it, until it is closed. */
static bool is_renamed_by_nfs(const struct deletion *deletion, const struct stat *found)
{
    struct stat named;
    return deletion->file.file.reach == REACH_NETWORK && found->st_nlink == 1
        && (lstat(deletion->path, &named) != 0 || named.st_ino != found->st_ino);
}

void deletion_end(struct deletion *deletion, bool done)
{
    struct stat found;
    if (deletion == NULL)
        return;
    const bool gone = done && fstat(deletion->fd, &found) == 0
        && (found.st_nlink == 0 || is_renamed_by_nfs(deletion, &found));
    close(deletion->fd);
    if (gone)
        recovery_deleted(&deletion->file);
    free(deletion);
}
