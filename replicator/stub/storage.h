/* Calls on components whose storage may not answer. If storage does not answer one process in time,
 * no process of the node calls it for UNREACHABLE_SECONDS, which the state file tells, and a
 * program that was there never calls it again. Storage is identified by the directory of a
 * component: a pool, or one of its servers. After a second unreachable directory all network
 * storage counts as unreachable.
 *
 * RATIONALE: if the server of a mounted file system is gone, a call ends when its client gives up,
 * after minutes or never, and cannot be cancelled. So a thread makes the call, and can be abandoned
 * with memory of its own. Calls on local file systems, which the first open recognizes, need no
 * thread. */
#ifndef PDLA_STORAGE_H
#define PDLA_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "loadedmap.h"

struct iovec;
struct stat;

enum { SHORT_SECONDS = 5, LONG_SECONDS = 8, PROBE_SECONDS = 2, UNREACHABLE_SECONDS = 60 };

/* How long to wait for an answer. */
enum timeout {
    TIMEOUT_SHORT, /* the original can serve instead: SHORT_SECONDS */
    TIMEOUT_LONG  /* nobody else has these bytes: LONG_SECONDS, or PROBE_SECONDS if no storage answers */
};

/* An open component. */
struct component_file {
    const struct loaded_map *map;
    const char *path;
    int fd;
    enum timeout timeout;
    int lock; /* of the journals, for writes: lock_abandoned(); -1: none */
};

/* A part of a file that the kernel should fetch. */
struct hint {
    int fd;
    int64_t start, length;
};
void hint_give(const struct hint *);

/* Whether a thread makes the calls on its storage. storage_open() must have opened it before. */
bool storage_remote(const char *path);
/* Like open() with fstat(). -1: errno says why; here and below ETIMEDOUT: the storage did not
 * answer. */
int storage_open(const struct loaded_map *, const char *path, int flags, enum timeout, struct stat *found);
/* Like lstat() with faccessat() for reading and writing. 0 or an errno. */
int storage_examine(const struct loaded_map *, const char *path, enum timeout, struct stat *found);
/* Whether the storage of a directory answers, even if it only refuses. Other processes do not hear of it. */
bool storage_responds(const char *directory, enum timeout);
/* Moves all parts, from `offset` on, after giving the hints. 0 or an errno; after ETIMEDOUT the
 * descriptor must neither be closed nor used any more. */
int storage_read(const struct component_file *, const struct iovec *parts, int count, int64_t offset,
                 const struct hint *, int hints);
int storage_write(const struct component_file *, const struct iovec *parts, int count, int64_t offset);
/* Like fdatasync(), or only starts it. 0 or an errno. It may have much to write: it waits as long
 * as the storage answers other calls within PROBE_SECONDS. */
int storage_sync(const struct component_file *, bool begin);
/* Closes it, or leaves that to the end of the process. */
void storage_close(const struct loaded_map *, const char *path, int fd);

#endif
