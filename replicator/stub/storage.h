/* Components on storage that may be gone. What does not answer one process in time is asked by no other one of the node for
 * AWAY_SECONDS, which the state file tells, and never again by a program that was there. It is the storage of a directory: a
 * pool's, or that of one of its servers; with the second directory it is all storage by network.
 *
 * RATIONALE: a call on a mounted file system whose server is gone ends when its client gives up, after minutes or never, and
 * cannot be cancelled. So a thread makes it, which is left behind with memory of its own. Where the file system is a node's own,
 * which is looked at once, there is no thread. */
#ifndef PDLA_STORAGE_H
#define PDLA_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "loadedmap.h"

struct iovec;
struct stat;

enum { ANSWER_SECONDS = 5, PATIENT_SECONDS = 8, PROBE_SECONDS = 2, AWAY_SECONDS = 60 };

/* How long an answer is waited for. */
enum patience {
    HURRIED, /* the original will do: ANSWER_SECONDS */
    PATIENT  /* nobody else has these bytes: PATIENT_SECONDS, or where no storage answers PROBE_SECONDS */
};

/* An open component. */
struct component_file {
    const struct loaded_map *map;
    const char *path;
    int fd;
    enum patience patience;
    int lock; /* of the journals, for writes: lock_left(); -1: none */
};

/* A part of a file that the kernel should be asked for. */
struct hint {
    int fd;
    int64_t start, length;
};
void hint_give(const struct hint *);

/* Whether calls on its storage are made by a thread. To be asked of what storage_open() has opened. */
bool storage_remote(const char *path);
/* As open() with fstat(). -1: errno; as in all that follow, ETIMEDOUT: there is no answer. */
int storage_open(const struct loaded_map *, const char *path, int flags, enum patience, struct stat *found);
/* As lstat() with faccessat() for reading and writing. 0 or an errno. */
int storage_look(const struct loaded_map *, const char *path, enum patience, struct stat *found);
/* All of the parts, from `offset` on; the hints are given before. 0 or an errno; ETIMEDOUT: the descriptor is not to
 * be closed any more, nor its number to be used. */
int storage_read(const struct component_file *, const struct iovec *parts, int count, int64_t offset, const struct hint *,
                 int hints);
int storage_write(const struct component_file *, const struct iovec *parts, int count, int64_t offset);
/* As fdatasync(), or only begins it. 0 or an errno. As long as the storage tells of a file within PROBE_SECONDS it is
 * waited for: it may be much. */
int storage_sync(const struct component_file *, bool begin);
/* Closes it, or leaves that to the end of the process. */
void storage_close(const struct loaded_map *, const char *path, int fd);

#endif
