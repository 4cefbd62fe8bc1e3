/* Bringing back to the originals what is in replicas. */
#ifndef PDLA_WRITEBACK_H
#define PDLA_WRITEBACK_H

#include "writer.h"

/* What a journal tells of, in bytes [low, high) of the original, goes there. 0 or an errno, and then it is still in the
 * journal. */
int bring_back_journal(struct file_handle *handle, struct journal *journal, int64_t low, int64_t high);
/* What this process has in its journal, likewise. */
int bring_back_own(struct file_handle *handle);
/* The original becomes as long as this process has written it; with the mutex held. 0 or an errno. */
int lengthen(struct file_handle *handle);
/* Up to byte `high`, which a replica has. */
int lengthen_to(struct file_handle *handle, int64_t high);
/* What any rank has, by all of them. */
int bring_back_together(struct file_handle *handle);
/* What journals told that were left; with all ranks. */
int bring_back_left(struct file_handle *handle, struct range *ranges, uint64_t count);
/* Makes what is in the journals durable where it is. 0 or an errno, the same on all ranks. */
int keep_together(struct file_handle *handle);
/* The worst error of any rank. */
int agree_error(const struct stub_writer *, int error);

#endif
