/* Marks replicas as stale when the original is written. */
#ifndef PDLA_STALENESS_H
#define PDLA_STALENESS_H

#include "interpose.h"

/* To be called around every real writing call that MPI does not refuse. Nonblocking writes only
 * begin; redirector_closing() ends them. If the begin does not return 0, the call is not made, and
 * that is its result. */
int redirector_write_begin(struct file_handle *handle, const struct io_call *call);
void redirector_write_end(struct file_handle *handle);
/* Before MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does not; on
 * all ranks. Returns what redirector_write_begin() does; redirector_write_end() ends it. */
int redirector_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);

/* To be called before a write, wherever it goes. Replicas that it touches become stale; all do if its
 * place is not known. */
void replicas_mark_written(struct file_handle *, const struct io_call *);
/* Replicas that have bytes of [low, high) become stale. */
void replicas_mark(struct file_handle *, int64_t low, int64_t high);

#endif
