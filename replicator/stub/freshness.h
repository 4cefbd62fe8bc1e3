/* Freshness: may a replica still stand for its original? The state file answers for the runs that write through the library on
 * this node, the identity of the original for everybody else.
 *
 * A file's `writers` and `epoch` are one atomic word. The recorded identity changes only while there is a writer, and is
 * compared with the file only when the word is the same before and after: so a reader never takes a write that is under way
 * for a foreign change, nor a foreign change for a write.
 *
 * The window that remains: a foreign change of the same size within the clock tick (4 ms) in which the recorded identity was
 * taken leaves no trace in it.
 */
#ifndef PDLA_FRESHNESS_H
#define PDLA_FRESHNESS_H

#include <stdbool.h>

#include "loadedmap.h"

struct stat;

/* A descriptor to examine an original with, and what it says of it. -1: there is no such regular file. Nothing is read
 * by it, no permission is needed for it, and closing it drops no lock of the program. */
int freshness_find(const char *path, struct stat *found);
/* Makes it one to read from, of the same file. False: that is not possible, and it stays as it is. */
bool freshness_reopen(int *fd);

enum freshness {
    STATE_FRESH,   /* the original is as recorded */
    STATE_WRITING, /* a write through the library is under way, or was when its process was killed */
    STATE_CHANGED  /* it is not: all its replicas are now marked STALE_CHANGED */
};

/* Whether nothing in the record speaks against `found`, which was found a moment ago; freshness_check() is to be asked
 * before any read, and where this is false. */
bool freshness_seems_fresh(const struct loaded_map *, const struct map_file *, const struct stat *found);
/* Compares the original open as `fd` with its record. *size is its size when it is fresh. */
enum freshness freshness_check(const struct loaded_map *, const struct map_file *, int fd, int64_t *size);

uint8_t freshness_stale(const struct loaded_map *, const struct map_replica *);

/* Marks a valid replica; the first mark stays. */
void freshness_mark(const struct loaded_map *, const struct map_replica *, enum state_stale);

/* Around a write. `fd` -1: the original cannot be examined, and its replicas are given up. With `publish` the last
 * writer records the identity that it leaves, so that the replicas which were not written stay usable. */
void freshness_write_begin(const struct loaded_map *, const struct map_file *, int fd);
void freshness_write_end(const struct loaded_map *, const struct map_file *, int fd, bool publish);

#endif
