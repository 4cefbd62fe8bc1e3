/* What a request would read. */
#ifndef PDLA_READ_PLAN_H
#define PDLA_READ_PLAN_H

#include "locate.h"
#include "stub.h"

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
    int64_t left;         /* bytes of the request that the cursor has not passed */
    struct extent extent; /* what is left of the cursor's last extent */
    struct piece found;   /* looked-ahead covered piece, length 0 when there is none */
    uint64_t extents;     /* taken from the cursor */
};

void walk_start(struct walk *, const struct loaded_map *, const struct map_replica *, const struct request *);
/* The next piece in the order of the stream; replica_offset -1 where not covered. False at the end. */
bool walk_next(struct walk *, struct piece *);

/* Chooses among the opened and valid replicas: its index in the file's, or -1, and then *why says what was wrong with
 * the best of them. *covered: bytes of the request that the choice holds, estimated from its beginning. */
int plan_choose(struct stub_file *, const struct request *, int64_t *covered, const char **why);

/* Whether its places in the file are numbers. To be asked first. */
bool request_fits(const struct request *);

/* The last byte of a request in the original. */
int64_t request_last(const struct request *);

/* Whether a write of these bytes can touch the replica. */
bool request_touches(const struct loaded_map *, const struct map_replica *, const struct request *);

#endif
