/* Write-back: newer bytes go from replicas to the originals. */
#ifndef PDLA_WRITEBACK_H
#define PDLA_WRITEBACK_H

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
/* The worst error of any rank. */
int agree_error(const struct writer *, int error);

#endif
