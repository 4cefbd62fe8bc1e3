/* Reads in the place of the MPI library. */
#ifndef PDLA_READ_H
#define PDLA_READ_H

#include "stub.h"

/* A read (not shared), also through an opaque view or from an unknown position, since collective reads have to agree.
 * True when the stub served the whole call: *rc is then what the wrapper returns, and the status or request and the
 * individual file pointer have been set. False: nothing was touched, make the real call. Blocking collective reads
 * agree on the answer over the file's communicator. Nonblocking and split ones cannot, since they do not wait for the
 * other ranks: the buffer is filled, and `call->joins` set. */
bool stub_read(struct io_call *call, int *rc);
/* A read that is not handed over (shared) and passed through: counted under `why`, a literal. */
void stub_passed(struct file_handle *handle, int64_t bytes, const char *why);

#endif
