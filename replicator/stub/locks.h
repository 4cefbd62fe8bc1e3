/* Locks that belong to an open file (OFD locks). RATIONALE: locks of the process vanish when
 * anything in the process closes any descriptor of the file. */
#ifndef PDLA_LOCKS_H
#define PDLA_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum lock_kind { LOCK_NONE, LOCK_SHARED, LOCK_ALONE };

/* Closes a file (-1: none) with the locks of its descriptor. RATIONALE: the child of a fork has a copy of
 * the descriptor, which would keep them. */
void lock_close(int fd);
/* Locks bytes [low, high) without waiting. False: another process, or another descriptor of this
 * one, has a lock in the way. */
bool lock_bytes(int fd, enum lock_kind, int64_t low, int64_t high);
/* The same, but waits for up to two seconds. */
bool lock_patiently(int fd, enum lock_kind, int64_t low, int64_t high);
/* A lock that moves on with writes that ascend in a file. RATIONALE: an MPI library that sieves locks
 * one block after another without a pause between them. A lock of all bytes that are written would have to
 * wait until it is done. */
struct moving_lock {
    int fd;
    int64_t end;       /* of the last write */
    int64_t low, high; /* what is locked, or would be; empty at first */
    bool locked;
    bool given_up;     /* a wait took too long; there are no more */
};
/* To be called before bytes [low, high) are written, and after the last write. */
void moving_lock_reach(struct moving_lock *, int64_t low, int64_t high);
void moving_lock_leave(struct moving_lock *);
/* Whether another lock would make lock_bytes() fail; `unknown` if the file system does not answer. */
bool lock_held(int fd, enum lock_kind, int64_t low, int64_t high, bool unknown);
/* Whether others share these bytes. */
bool lock_shared(int fd, int64_t low, int64_t high);
/* lock_abandoned() opens the journals' lock file again and marks, until that descriptor is closed,
 * that an abandoned write to the replicas may still arrive; -1: not possible.
 * lock_none_abandoned(): nobody has set that mark. */
enum { LOCK_ABANDONED = 3 /* the byte for it */ };
int lock_abandoned(int lock);
bool lock_none_abandoned(int lock);
/* The byte that whoever reads leased bytes where they are shares: the replicas must not be written
 * to meanwhile. */
enum { LOCK_READERS = LOCK_ABANDONED + 1 };

#endif
