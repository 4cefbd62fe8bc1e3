/* Write-back: newer bytes go from replicas to the originals. */
#ifndef PDLA_WRITEBACK_H
#define PDLA_WRITEBACK_H

#include "mover.h"
#include "writer.h"

/* Writes back what a journal lists of bytes [low, high) of the original. 0 or an errno; after an
 * error it is still in the journal. */
int write_back_journal(struct file_handle *handle, struct journal *journal, int64_t low, int64_t high);
/* The same for this process's own journal. */
int write_back_own(struct file_handle *handle);
/* Makes the original as long as this process has written it. The mutex is held. 0 or an errno. */
int extend_original(struct file_handle *handle);
/* Makes it `high` bytes long; a replica has the last of these. */
int extend_original_to(struct file_handle *handle, int64_t high);
/* Writes back what any rank has; all ranks take part. */
int write_back_together(struct file_handle *handle);
/* Writes back what the journals of ended programs list; all ranks take part. */
int write_back_pending(struct file_handle *handle, struct range *ranges, uint64_t count);
/* Makes the bytes that the journals list durable in the replicas. 0 or an errno, the same on all
 * ranks. */
int make_durable_together(struct file_handle *handle);
/* The replicas' devices begin with what their page caches have, while the program writes on. */
enum mover_next begin_durable(struct file_handle *handle);
/* To be called around the writes of a write-back. The redirected writes have already marked the
 * replicas for reading, which need only learn the original's new identity. */
void original_begin(struct file_handle *handle);
void original_end(struct file_handle *handle);
/* To be called before each of these writes. 0, or an errno if it must not be made. */
int note_write(struct writer *);
/* RATIONALE: an MPI library that reads, changes and writes a block of a file locks it, so that
 * writes of others to the rest of the block are not lost. These others may be ranks of this handle
 * or of another open. A write-back is such a write. The wait has a limit, because the program
 * itself may hold such a lock. */
bool lock_original(const struct writer *, int64_t low, int64_t high);
void unlock_original(const struct writer *, int64_t low, int64_t high, bool locked);
/* The worst error of any rank. */
int agree_error(const struct writer *, int error);

#endif
