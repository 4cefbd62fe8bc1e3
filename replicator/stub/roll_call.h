/* Whether all ranks of MPI_COMM_WORLD run with this library. RATIONALE: the ranks agree on what is
 * redirected, and those that have the library would wait for ever for one that does not.
 *
 * Before MPI_Init each rank makes a file with its number in a directory of the run. After MPI_Init,
 * which no rank leaves before all have begun it, a rank looks for those of its neighbours in a
 * binomial tree of all ranks, and the tree passes on what is missing, by messages between ranks
 * that have made their files. A rank that finds no file makes a directory of that name. So it is
 * decided once, for all who ask, which ranks are there: a rank that comes later finds the name
 * taken. */
#ifndef PDLA_ROLL_CALL_H
#define PDLA_ROLL_CALL_H

#include <stdbool.h>

/* Around MPI_Init. */
void roll_call_begin(void);
void roll_call_end(void);

/* Who is missing, the same on all ranks that run with the library: a text that stays. NULL: nobody,
 * or it cannot be known. */
const char *roll_call_missing(void);

/* All ranks are known to run with the library. */
bool roll_call_complete(void);

#endif
