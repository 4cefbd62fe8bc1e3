/* Where the bytes of an original are in a replica (the AccessMap), and where the bytes of a replica
 * are on its components. */
#ifndef PDLA_LOCATE_H
#define PDLA_LOCATE_H

#include <stdbool.h>

#include "loadedmap.h"

/* Bytes that are contiguous in the original and in the replica. */
struct piece {
    int64_t offset, length; /* in the original */
    int64_t replica_offset;
};

/* Builds the indexes of `count` replicas that have been checked. To be called once for each. */
void locate_prepare(const struct loaded_map *, uint32_t first, uint32_t count);

/* The first piece of the replica in [start, stop), start < stop, cut to it. False: the replica has
 * no byte of it. The cost is at most one division for each loop, or two reads of a table from
 * memory. */
bool locate_piece(const struct loaded_map *, const struct map_replica *, int64_t start, int64_t stop, struct piece *);

/* The byte of the original for byte `offset` of a target's replica, 0 <= offset < size. *length:
 * how many bytes from there on are contiguous in both. */
int64_t locate_original(const struct loaded_map *, const struct map_replica *, int64_t offset, int64_t *length);

/* The bytes [*low, *high) of the original that contain all that the replica has. */
void locate_span(const struct loaded_map *, const struct map_replica *, int64_t *low, int64_t *high);

/* Bytes of a replica that are contiguous on a component. */
struct strip {
    uint32_t component;
    int64_t offset, length; /* in the component */
};

/* The longest strip that starts at byte `offset` of the replica, 0 <= offset < size. */
struct strip locate_strip(const struct loaded_map *, const struct map_replica *, int64_t offset);

#endif
