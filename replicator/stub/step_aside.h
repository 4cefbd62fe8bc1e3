/* Reads of an original that is in memory: redirection steps aside where MPI's own call is quicker.
 *
 * It does so for each open file, each rank and each size of calls, and only for reads that are one
 * run of bytes of the original. Of others a replica makes fewer. What is quicker is measured
 * (quicker_way.h), while the original's bytes are in memory. Reading the original is always right. */
#ifndef PDLA_STEP_ASIDE_H
#define PDLA_STEP_ASIDE_H

#include "redirection.h"

/* Prepares a reader. */
void step_aside_start(struct reader *);
/* Whether MPI is to make the independent read `call`, which has a known place. Then
 * step_aside_read() is to be called after it by the same thread, otherwise step_aside_redirected(). */
bool step_aside(struct reader *, const struct io_call *call);
void step_aside_read(const struct reader *);
void step_aside_redirected(bool served);

#endif
