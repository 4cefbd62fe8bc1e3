#include "reservations.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_size.h"
#include "node_directory.h"
#include "own_files.h"

#define START "pdla-"
#define NODE ".node"
#define CACHE ".cache"
#define SUM "reserved"

#define MOST (INT64_MAX / 2)

enum { TRIES = 100, PAUSE_NS = 1000000 /* of a process that waits until others of its node have counted */ };

static bool is_named(const char *name, const char *ending)
{
    const size_t length = strlen(name), end = strlen(ending), start = strlen(START);
    return length > start + end && strncmp(name, START, start) == 0 && strcmp(name + length - end, ending) == 0;
}

bool reservations_name(char *path, size_t size, const char *server)
{
    char boot[40] = "";
    struct stat found = {0};
    node_boot(boot);
    stat(server, &found);
    return boot[0] != '\0'
        && snprintf(path, size, "%s/" START "%s-%llx-%lu" NODE, server, boot, (unsigned long long)found.st_dev,
                    (unsigned long)geteuid()) < (int)size;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static bool count_node(int server, const char *name, struct reserved *);

/* RATIONALE: what other users say may be any number. */
static void add(struct reserved *all, int64_t bytes, int64_t files)
{
    all->bytes = bytes > MOST - all->bytes ? MOST : all->bytes + bytes;
    all->files = files > MOST - all->files ? MOST : all->files + files;
}

/* Adds the cache files of a directory and, of a server, what the nodes' directories have. False: it cannot be read. */
static bool count_directory(int at, const char *name, bool is_server, struct reserved *all)
{
    /* RATIONALE: the directories of nodes may be other users', and links of theirs lead anywhere. */
    const int links = is_server ? 0 : O_NOFOLLOW, fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | links);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    bool counted = directory != NULL;
    struct dirent *entry;
    struct stat found;
    if (fd >= 0 && directory == NULL)
        close(fd);
    while (counted && (entry = readdir(directory)) != NULL) {
        if (is_server && is_named(entry->d_name, NODE))
            counted = count_node(fd, entry->d_name, all);
        if (!is_named(entry->d_name, CACHE))
            continue;
        all->looks++;
        if (fstatat(fd, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode))
            continue;
        add(all, found.st_size, 1);
    }
    if (directory != NULL)
        closedir(directory);
    return counted;
}

static bool count_node(int server, const char *name, struct reserved *all)
{
    char path[NAME_MAX + sizeof "/" SUM], text[64];
    int64_t bytes, files;
    snprintf(path, sizeof path, "%s/" SUM, name);
    const ssize_t length = readlinkat(server, path, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = '\0';
    all->looks++;
    if (sscanf(text, "%" SCNd64 ":%" SCNd64, &bytes, &files) != 2 || bytes < 0 || files < 0)
        return count_directory(server, name, false, all) || errno == ENOENT || errno == ENOTDIR;
    add(all, bytes, files);
    return true;
}

bool reservations_count(const char *server, struct reserved *all)
{
    return count_directory(AT_FDCWD, server, true, all);
}

/* ---- the processes of a node ------------------------------------------------------------------------------------- */

enum entrance { ALONE, OTHERS /* are not done */, WITHOUT_LOCKS /* everybody counts the files */ };

/* Opens the directory of a cache file. -1: see errno; EPERM: it is not this user's. */
static int open_node(const char *cache)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%.*s", (int)(strrchr(cache, '/') - cache), cache);
    errno = ENAMETOOLONG;
    return length < (int)sizeof path ? own_directory_open(path) : -1;
}

/* Whether a cache file is in the directory of a node, and not in that of E10's caches. */
static bool is_in_node(const char *cache)
{
    char path[4096];
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(cache, '/') - cache), cache);
    const char *name = strrchr(path, '/');
    return name != NULL && is_named(name + 1, NODE);
}

/* Opens the directory of a cache file, and waits until the others of the node are done. -1: see open_node(). */
static int enter(const char *cache, enum entrance *entrance)
{
    const int node = open_node(cache);
    *entrance = OTHERS;
    for (int tries = 0; node >= 0 && *entrance == OTHERS && tries < TRIES; tries++) {
        if (tries > 0)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        if (flock(node, LOCK_EX | LOCK_NB) == 0)
            *entrance = ALONE;
        else if (errno != EWOULDBLOCK && errno != EINTR)
            *entrance = WITHOUT_LOCKS;
    }
    return node;
}

/* RATIONALE: the child of a fork has a copy of the descriptor, which would keep the lock. */
static void leave(int node)
{
    flock(node, LOCK_UN);
    close(node);
}

static bool remove_sum(int node)
{
    return unlinkat(node, SUM, 0) == 0 || errno == ENOENT;
}

/* RATIONALE: no link with another name is renamed to this one. Once it has done so, ceph-fuse (16.2.15) may wait at its
 * next look for the name until it renames something else, and the library would wait with it. Without the link,
 * others count the files. */
static bool replace_sum(int node)
{
    struct reserved all = {0};
    char text[64];
    if (!count_directory(node, ".", false, &all))
        return false;
    snprintf(text, sizeof text, "%" PRId64 ":%" PRId64, all.bytes, all.files);
    return remove_sum(node) && symlinkat(text, node, SUM) == 0;
}

int reservations_open(const char *cache)
{
    return node_directory_open(cache, O_RDWR | O_EXCL, 0755);
}

int reservations_reopen(const char *cache, uint64_t inode)
{
    const bool in_node = is_in_node(cache);
    const int node = in_node ? open_node(cache) : AT_FDCWD;
    if (in_node && node < 0)
        return -1;
    const int fd = own_file_open(node, in_node ? strrchr(cache, '/') + 1 : cache, O_RDONLY, inode), error = errno;
    if (in_node)
        close(node);
    errno = error;
    return fd;
}

bool reservations_change(const char *cache, int fd, int64_t from, int64_t to)
{
    enum entrance entrance;
    const int node = enter(cache, &entrance);
    if (node < 0)
        return false;
    bool changed = entrance != OTHERS && file_size_allowed(to) && ftruncate(fd, to) == 0;
    if (changed && !(entrance == ALONE && replace_sum(node)) && !remove_sum(node))
        changed = ftruncate(fd, from) != 0;
    leave(node);
    return changed;
}

/* RATIONALE: the sum goes first, so that whoever is killed here leaves files that are counted. A sum that another node
 * or a process that does not wait makes meanwhile says too much, until the node's next one. */
void reservations_remove(const char *cache)
{
    enum entrance entrance;
    const bool in_node = is_in_node(cache);
    const int node = in_node ? enter(cache, &entrance) : -1;
    if (in_node && node < 0 && errno == EPERM)
        return;
    if (node >= 0)
        remove_sum(node);
    unlink(cache);
    if (node >= 0)
        leave(node);
}
