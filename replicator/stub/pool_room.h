/* The room in the directories of a pool, which is for all processes of all programs on all nodes
 * together.
 *
 * A process has a share, and one more share is kept for who comes next. Beyond its share it borrows,
 * but never the last of the pool, and gives back what it borrowed when its bytes are home. If it
 * holds more than its share because others came, it writes no more until then.
 *
 * Nobody waits for another node: a process first reserves, then counts all, and takes its reservation back if it
 * was too much. So two that reserve at the same time may both get nothing, but never too much. */
#ifndef PDLA_POOL_ROOM_H
#define PDLA_POOL_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct pool_room {
    char *directories; /* separated by colons */
    const char *cache; /* the path of the cache file */
    int fd;
    int64_t capacity, reserved, share;
    int64_t look;      /* when to count again whether others came: clock_ns() */
    int64_t shut;      /* no reservation until then: the others of the node do not let it in */
    bool exceeded;     /* it holds more than its share, and has to give back first */
};

/* Whether the storage of each of these directories (separated by colons) answers. */
bool pool_room_responds(const char *directories);
/* For an empty cache file in one of the directories. False: out of memory. */
bool pool_room_begin(struct pool_room *, const char *directories, const char *cache, int fd, int64_t capacity);
void pool_room_end(struct pool_room *);
/* Reserves so many bytes more, or a step if that is more. False: there are not as many. */
bool pool_room_reserve(struct pool_room *, int64_t bytes);
/* The bytes are home: gives back what is borrowed. */
void pool_room_give_back(struct pool_room *);
/* What is left of the reservation, if the cache file has so many bytes that are not home. */
int64_t pool_room_left(struct pool_room *, int64_t held);

#endif
