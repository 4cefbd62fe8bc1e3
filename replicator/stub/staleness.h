/* The marks of writes to the original: replicas become stale. */
#ifndef PDLA_STALENESS_H
#define PDLA_STALENESS_H

#include "interpose.h"

/* Around every real writing call that MPI does not refuse. Nonblocking writes: begin only; stub_closing ends them. What
 * begin returns is not 0 when the call is not to be made, and then is its result. */
int stub_write_begin(struct file_handle *handle, const struct io_call *call);
void stub_write_end(struct file_handle *handle);
/* Before MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does not; on all ranks. Returns
 * what stub_write_begin() does; stub_write_end() is the end. */
int stub_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);

/* Around a write, or (`call` of no bytes) bringing back: replicas that it touches become stale, all of them where its
 * place is not known, and the others learn the original's new identity. */
void replicas_write_begin(struct file_handle *, const struct io_call *);
/* Replicas that have bytes of [low, high) become stale. */
void replicas_mark(struct file_handle *, int64_t low, int64_t high);
void replicas_write_end(struct file_handle *);

#endif
