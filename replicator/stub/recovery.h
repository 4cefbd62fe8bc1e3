/* Recovery: the write-back of bytes that earlier programs left in replicas, because of a lease or
 * because they were killed. It is made before anybody sees the file: all ranks do it before an open
 * by MPI, one process before a POSIX call. A file is found by its name and by its inode. So it is
 * found under another name, too, and by a process that has no map. */
#ifndef PDLA_RECOVERY_H
#define PDLA_RECOVERY_H

#include "stale_journals.h"
#include "redirection.h"

/* Whether redirected bytes wait, or waited, for the file with this inode. */
bool recovery_noted(uint64_t inode);

/* On all ranks of `comm`, or on a single one (`ranks` 1). Afterwards the file at `path` has its
 * newest bytes. NULL: the file may be opened; otherwise a literal says why not, the same on all
 * ranks.
 *
 * *lock: rank 0's lock of the journals in directory `keep`, for the open: alone, or shared with others
 * that have the file open. -1 if `keep` is NULL.
 *
 * `leased` NULL: everything is written back. Otherwise the file is opened for reading only, and its
 * newest bytes may stay where they are; then *leased is not NULL, on any rank.
 *
 * *word: the other ranks get rank 0's with what they get anyway. */
const char *recovery_before_open(mpi_handle comm, int rank, int ranks, const char *path, const char *keep, int *lock,
                                 struct leased **leased, uint32_t *word);

/* The same for this process alone, which need not have MPI. 0, or an errno for the call that was
 * about to see the file. */
int recovery_by_one_process(const char *path);
/* The last name of the file at its path was removed. Nobody can open it any more, so its waiting bytes go. */
void recovery_deleted(const struct original_state *);

/* The target for writes to the file at `path`. NULL: there are no replicas for them. */
const struct map_target *recovery_target(const struct loaded_map *, const char *path);
/* The directory of the journals of caches of the file at `path`. False: its name is too long. */
bool recovery_cache_directory(const char *path, char directory[4096]);
/* Notes that journals for this inode are about to be made in the directory. False: the note cannot
 * be written. */
bool recovery_note(const char *directory, uint64_t inode);

/* The lock file of a directory of journals. A process that has it alone is the only one that reads
 * or writes the journals. Their writers share it, and so does one rank of each open of the file.
 * The result is a descriptor, or -1: programs are writing to the file; LOCK_HELD: another process
 * has had it alone for long; LOCK_IMPOSSIBLE: the file cannot exist, or cannot be locked. */
enum { LOCK_IMPOSSIBLE = -2, LOCK_HELD = -3 };
bool recovery_lock_take_alone(int lock);
/* The open has begun: others may have the file open, too. */
bool recovery_lock_share(int lock);
/* For its other ranks. */
int recovery_lock_shared(const char *directory);
/* For a rank that reads the bytes of a lease where they are; whoever has the lock alone does so for
 * it. */
int recovery_lock_readers(const char *directory);
/* Whether there are such ranks. */
bool recovery_lock_has_readers(int lock);
/* Nobody else has the file open, and nobody can open it until the lock is released. */
bool recovery_lock_last(int lock);
/* Nobody else has the file open now. */
bool recovery_lock_is_only(int lock);

#endif
