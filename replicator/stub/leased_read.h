/* Reads of a file whose newest bytes lie in replicas under a lease (ADR 27). */
#ifndef PDLA_LEASED_READ_H
#define PDLA_LEASED_READ_H

#include "interpose.h"

/* A read (not shared) on a handle that is `leased`. True: it was done, or must not be made, and *rc
 * is its result. False: the MPI library or a replica for reads finds the newest bytes. */
bool redirector_read_leased(struct io_call *call, int *rc);
/* Before a read by the shared file pointer, which the MPI library makes. True: it must not be made,
 * and *rc is its result. */
bool redirector_read_leased_shared(struct io_call *call, int *rc);

#endif
