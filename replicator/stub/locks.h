/* Locks of open files (OFD locks). RATIONALE: those of the process vanish when anybody in it closes any descriptor of
 * the file. */
#ifndef PDLA_LOCKS_H
#define PDLA_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum lock_kind { LOCK_NONE, LOCK_SHARED, LOCK_ALONE };

/* Locks bytes [low, high) at once, or not. Other processes' locks of either sort, and other descriptors' of this one,
 * are in the way. */
bool lock_bytes(int fd, enum lock_kind, int64_t low, int64_t high);
/* Whether it could be locked like that; true also where there are no locks. */
bool lock_free(int fd, enum lock_kind, int64_t low, int64_t high);
/* A descriptor of the journals' lock file that tells, until it is closed, that a write to the replicas was left behind
 * and may still arrive; -1: there cannot be one. Quiet: nobody tells that. */
enum { LOCK_LEFT = 3 /* the byte for it */ };
int lock_left(int lock);
bool lock_is_quiet(int lock);

#endif
