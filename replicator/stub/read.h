/* Reads in place of the MPI library. */
#ifndef PDLA_READ_H
#define PDLA_READ_H

#include "redirection.h"

/* A read (not shared). A view that cannot be flattened or an unknown position is allowed, since
 * collective reads have to agree. True: the redirector served the whole call, *rc is what the
 * wrapper returns, and the status or request and the individual file pointer have been set. False:
 * nothing was changed, and the real call is to be made.
 *
 * Blocking collective reads agree over the file's communicator. Nonblocking and split ones cannot,
 * since they do not wait for the other ranks: the buffer is filled, and `call->joins` set. */
bool redirector_read(struct io_call *call, int *rc);
/* Counts a read by the shared file pointer, which the MPI library makes, under `why`, a literal. */
void redirector_passed(struct file_handle *handle, int64_t bytes, const char *why);

#endif
