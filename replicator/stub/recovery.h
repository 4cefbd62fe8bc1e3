/* Bringing home what earlier programs left in replicas (leases, killed programs), before anybody sees the file: an
 * open by MPI, by all of its ranks together, or a POSIX call of one process. A file is found by its name, and by its
 * inode: under another name, and by who has no map. */
#ifndef PDLA_RECOVERY_H
#define PDLA_RECOVERY_H

#include "stale_journals.h"
#include "stub.h"

/* Whether writes wait, or waited, for the file with this inode. */
bool recovery_noted(uint64_t inode);

/* On all ranks of `comm`, or a single one (`ranks` 1). What waits for the file at `path` is in it afterwards. NULL:
 * nothing is in the way of opening it; else why it must not be, on all ranks alike: a literal. *lock: rank 0's lock of
 * the journals of the target of this name for the open, if `keep`: alone, or beside others that have the file open; -1
 * otherwise. */
const char *recovery_before_open(mpi_handle comm, int rank, int ranks, const char *path, bool keep, int *lock);

/* The same for this process alone, which need not have MPI. 0, or an errno for the call that was about to see the
 * file. */
int recovery_alone(const char *path);
/* The file at `path` was deleted, which had this inode. */
void recovery_deleted(const char *path, uint64_t inode);

/* NULL: there are no replicas for writes to the file at `path`. */
const struct map_target *recovery_target(const struct loaded_map *, const char *path);
/* Journals are about to be made in the directory of a target's, for writes to this inode. */
void recovery_note(const char *directory, uint64_t inode);

/* A descriptor of the lock file of a directory of journals. Alone: nobody else reads or writes them. Shared: their
 * writers do, and of each open of the file one rank says that it is open. -1: programs are writing to the file;
 * LOCK_HELD: somebody has been alone with them for long; LOCK_IMPOSSIBLE: there cannot be such a file, or no locks on
 * it. */
enum { LOCK_IMPOSSIBLE = -2, LOCK_HELD = -3 };
bool recovery_lock_is_alone(int lock);
/* The open has begun: others may have the file open, too. */
bool recovery_lock_share(int lock);
/* Of its other ranks. */
int recovery_lock_shared(const char *directory);
/* Nobody else has the file open, and nobody opens it until the lock is given back. */
bool recovery_lock_last(int lock);

#endif
