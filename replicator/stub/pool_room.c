#include "pool_room.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose.h"
#include "journal.h"

enum {
    STEPS = 64,      /* RATIONALE: a reservation looks at all cache files, so a process makes few of them */
    LAST_PART = 8,   /* of the capacity nobody borrows one part */
    LOOK_NS = 1000000000, /* the time between two looks whether others came, for each so many files */
    FILES = 64
};

bool pool_room_begin(struct pool_room *room, const char *directories, int fd, int64_t capacity)
{
    *room = (struct pool_room){.directories = strdup(directories), .fd = fd, .capacity = capacity};
    return room->directories != NULL;
}

void pool_room_end(struct pool_room *room)
{
    free(room->directories);
    room->directories = NULL;
}

/* Adds the cache files of a directory. False: it cannot be read. */
static bool count_directory(const char *path, int64_t *bytes, int64_t *files)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    struct stat found;
    if (directory == NULL)
        return false;
    while ((entry = readdir(directory)) != NULL)
        if (journal_is_cache_name(entry->d_name)
            && fstatat(dirfd(directory), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode)) {
            *bytes += found.st_size;
            (*files)++;
        }
    closedir(directory);
    return true;
}

/* The bytes of all cache files, or -1; determines the share. */
static int64_t count(struct pool_room *room)
{
    char path[1024];
    int64_t bytes = 0, files = 0;
    for (const char *at = room->directories, *end; at != NULL; at = *end == ':' ? end + 1 : NULL) {
        end = at + strcspn(at, ":");
        if ((size_t)(end - at) >= sizeof path)
            return -1;
        memcpy(path, at, (size_t)(end - at));
        path[end - at] = '\0';
        if (!count_directory(path, &bytes, &files))
            return -1;
    }
    room->share = room->capacity / (files + 1);
    room->look = clock_ns() + LOOK_NS * (1 + files / FILES);
    return bytes;
}

static bool reserve(struct pool_room *room, int64_t bytes)
{
    const int64_t wanted = room->reserved + bytes;
    if (ftruncate(room->fd, wanted) != 0)
        return false;
    const int64_t all = count(room);
    const int64_t most = wanted <= room->share ? room->capacity : room->capacity - room->capacity / LAST_PART;
    const bool fits = all >= 0 && all <= most;
    if (fits || ftruncate(room->fd, room->reserved) != 0)
        room->reserved = wanted;
    return fits;
}

bool pool_room_reserve(struct pool_room *room, int64_t bytes)
{
    const int64_t step = room->capacity / STEPS;
    return !room->exceeded && ((bytes < step && reserve(room, step)) || reserve(room, bytes));
}

void pool_room_give_back(struct pool_room *room)
{
    if (room->reserved > room->share && ftruncate(room->fd, room->share) == 0)
        room->reserved = room->share;
    room->exceeded = false;
}

int64_t pool_room_left(struct pool_room *room, int64_t held)
{
    if (room->reserved > 0 && clock_ns() >= room->look)
        room->exceeded = count(room) < 0 || room->reserved > room->share;
    return room->exceeded ? 0 : room->reserved - held;
}
