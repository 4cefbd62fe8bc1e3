/* Reads from a replica. */
#ifndef PDLA_REPLICA_READ_H
#define PDLA_REPLICA_READ_H

#include "replica_choice.h"

struct served {
    struct tally replica, original;
};

/* Reads a range into `buffer`, whose layout is `memory` (NULL: contiguous). The bytes come from
 * replica `chosen` (-1: none) or, where that has none, from the original of `size` bytes. False:
 * the read failed, the buffer's contents are undefined, and the replica is refused if it is to
 * blame. */
bool replica_read(struct reader *, int chosen, const struct view_range *, int64_t size, char *buffer,
                  const struct typemap *memory, struct served *);

/* Reads a range into scattered memory by `read_stream`, which reads into contiguous memory. RATIONALE:
 * a read into many small places costs more than the copy. */
bool read_scattered(const struct view_range *, char *buffer, const struct typemap *memory,
                    bool (*read_stream)(void *context, const struct view_range *, char *buffer), void *context);

#endif
