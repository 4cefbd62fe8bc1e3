/* Bytes of write replicas that journals list. */
#ifndef PDLA_RANGES_H
#define PDLA_RANGES_H

#include <stddef.h>
#include <stdint.h>

/* Bytes [start, stop) of replica `replica` of a target. */
struct range {
    int64_t replica, start, stop;
};

/* Sorts the ranges by replica and start, and joins those that touch. Returns how many there are
 * then. */
size_t ranges_merge(struct range *, size_t count);
/* The first of the merged ranges that ends after byte `offset` of a replica; `count`: there is
 * none. */
size_t ranges_after(const struct range *, size_t count, int64_t replica, int64_t offset);

#endif
