/* Freshness: whether a replica is still a copy of its original. The map has the identity that the original
 * had when it was copied. It was taken such that any later change alters it (stable_identity of
 * replicator/identity.py). So a replica is fresh while its original has this identity, and while no
 * run has begun to write its bytes through the library: the state file has a mark of that, since such
 * bytes may be in another replica or in a cache.
 *
 * RATIONALE: nothing makes an original's replicas fresh again, not even the program's own write of other
 * bytes. While that was under way somebody else may have written, too, and no time tells (ADR 59). */
#ifndef PDLA_FRESHNESS_H
#define PDLA_FRESHNESS_H

#include <stdbool.h>

#include "loadedmap.h"

struct stat;

/* Opens an original to examine it. -1: there is no such regular file. The descriptor cannot read
 * and needs no permission for the file. Closing it drops no lock of the program; original_close()
 * closes it, too. */
int freshness_find(const char *path, struct stat *found);
/* Replaces the descriptor by one of original_open() that can read the same file. False: not possible, and it stays
 * as it is. */
bool freshness_reopen(int *fd);

/* Whether `found`, examined a moment ago, is the original as it was copied. Before any read, and where
 * this is false, freshness_check() has to be called. */
bool freshness_seems_fresh(const struct map_file *, const struct stat *found);
/* Whether the original, open as `fd`, is as it was copied. If not, or if it cannot be examined, all its
 * replicas are now marked STALE_CHANGED. */
bool freshness_check(const struct loaded_map *, const struct map_file *, int fd);

uint8_t freshness_stale(const struct loaded_map *, const struct map_replica *);

/* Marks a valid replica as stale. The first mark stays. */
void freshness_mark(const struct loaded_map *, const struct map_replica *, enum state_stale);

#endif
