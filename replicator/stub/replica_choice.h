/* The replica that serves a read, and the pieces that a call reads from it. */
#ifndef PDLA_REPLICA_CHOICE_H
#define PDLA_REPLICA_CHOICE_H

#include "locate.h"
#include "redirection.h"

/* An access of a replica that is worth a seek; many smaller ones are left to MPI. */
enum { SCATTER_BYTES = 65536 };

/* What a call reads or writes: `bytes` bytes from `position` of the stream that a file view makes of
 * the original. */
struct view_range {
    const struct typemap *view;
    int64_t displacement, position, bytes;
};

/* Walks a range as pieces: contiguous in the original and, where covered, in the replica. */
struct walk {
    const struct loaded_map *map;
    const struct map_replica *replica; /* NULL: nothing is covered */
    struct typemap_cursor cursor;
    int64_t left;         /* bytes of the range after the cursor */
    struct extent extent; /* the rest of the cursor's last extent */
    struct piece found;   /* looked-ahead covered piece; length 0: there is none */
    uint64_t extents;     /* taken from the cursor */
};

void walk_start(struct walk *, const struct loaded_map *, const struct map_replica *, const struct view_range *);
/* The next piece of the stream; its replica_offset is -1 where the replica has nothing. False at
 * the end. */
bool walk_next(struct walk *, struct piece *);

/* Chooses among the opened and valid replicas, for `ranks` that read together. Returns the number of
 * one in the file's list, or -1, and then *why says what is wrong with the best one. *covered: bytes
 * of the range that the choice has, estimated from its beginning. */
int choose_replica(struct reader *, const struct view_range *, int ranks, int64_t *covered, const char **why);

/* Whether all offsets of the range fit in 64 bits. To be called before the others. */
bool view_range_fits(const struct view_range *);

/* The first and the last byte of a range in the original. */
int64_t view_range_first(const struct view_range *);
int64_t view_range_last(const struct view_range *);

/* Whether ranks that each read so many bytes can have half of those from `low` to `high` together. */
static inline bool is_dense(int64_t bytes, int ranks, int64_t low, int64_t high)
{
    return bytes >= (high - low) / ranks / 2;
}

/* Whether a write of these bytes can touch the replica. */
bool view_range_touches(const struct loaded_map *, const struct map_replica *, const struct view_range *);

#endif
