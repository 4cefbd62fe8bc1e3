/* What a request would read, and from which replica. */
#ifndef PDLA_READ_PLAN_H
#define PDLA_READ_PLAN_H

#include "locate.h"
#include "redirection.h"

/* A request as a stream of bytes of the original. */
struct request {
    const struct typemap *view;
    int64_t displacement, position, bytes;
};

/* Walks a request as pieces: contiguous in the original and, where covered, in the replica. */
struct walk {
    const struct loaded_map *map;
    const struct map_replica *replica; /* NULL: nothing is covered */
    struct typemap_cursor cursor;
    int64_t left;         /* bytes of the request after the cursor */
    struct extent extent; /* the rest of the cursor's last extent */
    struct piece found;   /* looked-ahead covered piece; length 0: there is none */
    uint64_t extents;     /* taken from the cursor */
};

void walk_start(struct walk *, const struct loaded_map *, const struct map_replica *, const struct request *);
/* The next piece of the stream; its replica_offset is -1 where the replica has nothing. False at
 * the end. */
bool walk_next(struct walk *, struct piece *);

/* Chooses among the opened and valid replicas. Returns the number of one in the file's list, or -1,
 * and then *why says what is wrong with the best one. *covered: bytes of the request that the
 * choice has, estimated from its beginning. */
int plan_choose(struct reader *, const struct request *, int64_t *covered, const char **why);

/* Whether all offsets of the request fit in 64 bits. To be called before the others. */
bool request_fits(const struct request *);

/* The last byte of a request in the original. */
int64_t request_last(const struct request *);

/* Whether a write of these bytes can touch the replica. */
bool request_touches(const struct loaded_map *, const struct map_replica *, const struct request *);

#endif
