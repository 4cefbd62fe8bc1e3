/* Moves bytes between memory and the components of a replica. Parts may be added in any order: they
 * are gathered, sorted by their place, and moved in calls as large as the components allow. */
#ifndef PDLA_TRANSFER_H
#define PDLA_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "locate.h"

struct part {
    uint32_t component;
    int64_t offset, length; /* in the component */
    char *memory;
};

/* To be zeroed except for the first four members, and freed by transfer_free(). */
struct transfer {
    const struct loaded_map *map;
    bool writing;
    int lock; /* when writing: of the journals (storage.h) */
    uint64_t requests; /* out: contiguous accesses to components */
    const struct map_replica *replica;
    int *components; /* its descriptors: components.h */
    struct part *parts;
    size_t count, capacity;
};

/* The next parts are of this replica; earlier ones are moved first. 0 or an errno. */
int transfer_select(struct transfer *, const struct map_replica *, int *components);
/* Adds `length` bytes at `offset` of the replica, to be moved now or later. 0 or an errno. */
int transfer_add(struct transfer *, int64_t offset, int64_t length, char *memory);
/* Moves all parts. 0 or an errno; EIO if a component is shorter than it should be. */
int transfer_flush(struct transfer *);
void transfer_free(struct transfer *);

/* Writes `length` bytes at `offset`. 0 or an errno; EFBIG, and nothing is written: file_size_allowed(). */
int write_whole(int fd, const char *memory, int64_t length, int64_t offset);
/* Reads or writes parts of memory that follow one another in a file from `place` on. Changes `parts`. 0 or an
 * errno; ENODATA: the file ends before; EFBIG, and nothing is written: file_size_allowed(). */
int move_parts(int fd, bool writing, struct iovec *parts, int count, int64_t place);

#endif
