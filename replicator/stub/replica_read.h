/* Reading from a replica. */
#ifndef PDLA_REPLICA_READ_H
#define PDLA_REPLICA_READ_H

#include "read_plan.h"

struct served {
    struct tally replica, original;
};

/* Reads a request from replica `chosen` (-1: none) and, where that has nothing, from the original of `size` bytes, into
 * `buffer`, laid out as `memory` (NULL: contiguous). False when that could not be done; the buffer's contents are then
 * undefined, and the replica is refused if it is to blame. */
bool replica_read(struct stub_file *, int chosen, const struct request *, int64_t size, char *buffer,
                  const struct typemap *memory, struct served *);

#endif
