/* Comparing what a replica has with the original. */
#ifndef PDLA_READ_VERIFICATION_H
#define PDLA_READ_VERIFICATION_H

#include "read_plan.h"

/* Redirected reads are to be compared (PDLA_VERIFY=1). */
bool compare_wanted(void);
/* Reads a request from replica `chosen` and from the original. NULL: the same; else why it is to be left to the MPI
 * library. A difference is reported, and the replica refused from then on. */
const char *compare_read(struct stub_file *, const char *call, int chosen, const struct request *, int64_t size);

#endif
