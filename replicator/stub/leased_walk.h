/* The bytes of an original that are newer in the replicas of a lease: which they are, and where they
 * lie in the replicas. */
#ifndef PDLA_LEASED_WALK_H
#define PDLA_LEASED_WALK_H

#include "locate.h"
#include "ranges.h"
#include "replica_choice.h"
#include "writer.h"

/* Merged ranges of the replicas of a target. */
struct leased_bytes {
    const struct loaded_map *map;
    const struct map_target *target;
    struct range *ranges;
    size_t count;
};

static inline const struct map_replica *leased_replica(const struct leased_bytes *leased, uint32_t i)
{
    return &leased->map->replicas[leased->target->first_replica + i];
}

/* The end of the last leased byte of the original. */
int64_t leased_end(const struct leased_bytes *);
/* Whether any byte of the range is leased. */
bool leased_touches(const struct leased_bytes *, const struct view_range *);

/* Walks a range as pieces that are contiguous in the original and, where they are leased, in a
 * replica. */
struct leased_walk {
    const struct leased_bytes *leased;
    struct typemap_cursor cursor;
    int64_t left;         /* bytes of the range after the cursor */
    struct extent extent; /* the rest of the cursor's last extent */
    struct piece next[MOST_REPLICAS]; /* the first leased one of each replica in that; length 0: there is none */
};

void leased_walk_start(struct leased_walk *, const struct leased_bytes *, const struct view_range *);
/* The next piece. *replica: where it is leased; -1: nowhere. False at the end. */
bool leased_walk_next(struct leased_walk *, struct piece *, int *replica);

#endif
