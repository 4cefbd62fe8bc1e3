/* Compares the bytes of a replica with the original. */
#ifndef PDLA_READ_VERIFICATION_H
#define PDLA_READ_VERIFICATION_H

#include "replica_choice.h"

/* Whether redirected reads are to be compared (PDLA_VERIFY=1). */
bool verification_wanted(void);
/* Reads a range from replica `chosen` and from the original. NULL: they have the same bytes;
 * otherwise why the MPI library must make the call. A difference is reported, and the replica is
 * not used from then on. */
const char *verify_read(struct reader *, const char *call, int chosen, const struct view_range *, int64_t size);

#endif
