/* Freshness: whether a replica is still a copy of its original. The state file tells what runs on
 * this node have written through the library. The identity of the original shows whether
 * anybody else changed it.
 *
 * A file's `writers` and `epoch` are one atomic word. The recorded identity changes only while
 * there is a writer. It counts only if the word is the same before and after the comparison. So a
 * reader never takes a write through the library for a change by others, nor the other way round.
 *
 * One window remains: a change by others leaves no trace if it keeps the size and is made within
 * the clock tick (4 ms) in which the recorded identity was taken. */
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

enum freshness {
    STATE_FRESH,   /* the original is as recorded */
    STATE_WRITING, /* a write through the library is under way, or its process was killed */
    STATE_CHANGED  /* the original has changed: all its replicas are now marked STALE_CHANGED */
};

/* Whether `found`, examined a moment ago, agrees with the record. Before any read, and where this
 * is false, freshness_check() has to be called. */
bool freshness_seems_fresh(const struct loaded_map *, const struct map_file *, const struct stat *found);
/* Compares the original open as `fd` with its record. *size: its size, if it is fresh. */
enum freshness freshness_check(const struct loaded_map *, const struct map_file *, int fd, int64_t *size);

uint8_t freshness_stale(const struct loaded_map *, const struct map_replica *);

/* Marks a valid replica as stale. The first mark stays. */
void freshness_mark(const struct loaded_map *, const struct map_replica *, enum state_stale);

/* To be called around a write to the original. `fd` -1: the original cannot be examined, and its
 * replicas become stale. With `publish` the last writer records the new identity, so that the
 * replicas which were not written stay usable. */
void freshness_write_begin(const struct loaded_map *, const struct map_file *, int fd);
void freshness_write_end(const struct loaded_map *, const struct map_file *, int fd, bool publish);

#endif
