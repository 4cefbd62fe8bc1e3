#include "pool_room.h"

#include <stdlib.h>
#include <string.h>

#include "interpose.h"
#include "reservations.h"
#include "storage.h"

enum {
    STEPS = 64,      /* RATIONALE: a reservation looks at what all nodes have, so a process makes few of them */
    SHARE_STEPS = 4, /* RATIONALE: with many processes a step of the capacity is more than a share */
    LAST_PART = 8,   /* of the capacity nobody borrows one part */
    LOOK_NS = 1000000000, /* the time between two looks whether others came, for each so many nodes */
    NODES = 64
};

bool pool_room_begin(struct pool_room *room, const char *directories, const char *cache, int fd, int64_t capacity)
{
    *room = (struct pool_room){.directories = strdup(directories), .cache = cache, .fd = fd, .capacity = capacity};
    return room->directories != NULL;
}

void pool_room_end(struct pool_room *room)
{
    free(room->directories);
    room->directories = NULL;
}

/* Calls `each` with every directory of a list, until it returns false. Returns whether it never did. */
static bool each_directory(const char *directories, bool (*each)(const char *, struct reserved *), struct reserved *all)
{
    char path[1024];
    for (const char *at = directories, *end; at != NULL; at = *end == ':' ? end + 1 : NULL) {
        end = at + strcspn(at, ":");
        if ((size_t)(end - at) >= sizeof path)
            return false;
        memcpy(path, at, (size_t)(end - at));
        path[end - at] = '\0';
        if (!each(path, all))
            return false;
    }
    return true;
}

static bool responds(const char *directory, struct reserved *ignored)
{
    (void)ignored;
    return storage_responds(directory, TIMEOUT_SHORT);
}

bool pool_room_responds(const char *directories) { return each_directory(directories, responds, NULL); }

/* The bytes of all cache files, or -1; determines the share. */
static int64_t count(struct pool_room *room)
{
    struct reserved all = {0};
    if (!each_directory(room->directories, reservations_count, &all))
        return -1;
    room->share = room->capacity / (all.files + 1);
    room->look = clock_ns() + LOOK_NS * (1 + all.looks / NODES);
    return all.bytes;
}

/* Reserves so many bytes in all. False: nothing has changed. */
static bool change(struct pool_room *room, int64_t bytes)
{
    const bool changed = reservations_change(room->cache, room->fd, room->reserved, bytes);
    if (changed)
        room->reserved = bytes;
    else
        room->shut = clock_ns() + LOOK_NS; /* RATIONALE: a stopped process may keep others out, and each try waits */
    return changed;
}

static bool reserve(struct pool_room *room, int64_t bytes)
{
    const int64_t before = room->reserved, wanted = before + bytes;
    if (!change(room, wanted))
        return false;
    const int64_t all = count(room);
    const int64_t most = wanted <= room->share ? room->capacity : room->capacity - room->capacity / LAST_PART;
    return (all >= 0 && all <= most) || !change(room, before);
}

bool pool_room_reserve(struct pool_room *room, int64_t bytes)
{
    if (room->share == 0 && count(room) < 0)
        return false;
    const int64_t of_share = room->share / SHARE_STEPS, of_all = room->capacity / STEPS;
    const int64_t step = of_share < of_all ? of_share : of_all;
    return !room->exceeded && clock_ns() >= room->shut
        && ((bytes < step && reserve(room, step)) || reserve(room, bytes));
}

void pool_room_give_back(struct pool_room *room)
{
    if (room->reserved > room->share)
        change(room, room->share);
    room->exceeded = false;
}

int64_t pool_room_left(struct pool_room *room, int64_t held)
{
    if (room->reserved > 0 && clock_ns() >= room->look)
        room->exceeded = count(room) < 0 || room->reserved > room->share;
    return room->exceeded ? 0 : room->reserved - held;
}
