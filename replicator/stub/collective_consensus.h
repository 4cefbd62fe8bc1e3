/* Agreements between the ranks that opened a file together. */
#ifndef PDLA_COLLECTIVE_CONSENSUS_H
#define PDLA_COLLECTIVE_CONSENSUS_H

#include "interpose.h"

/* What the ranks agreed on at a collective read or write. */
struct agreement {
    bool redirects;
    unsigned views;      /* the handle's count of set_view calls at that time */
    int64_t span, calls; /* collective calls that it was made for; how many of them are left */
};

/* Collective helpers: a reduction of 8-byte words, and a broadcast from rank 0. MPI_COMM_NULL stands for a
 * single rank. The result is false if MPI failed. RATIONALE: there is no gathering. What a rank gets would grow
 * with the number of ranks. */
bool agree_reduce(const void *mine, void *all, int words, mpi_handle op, mpi_handle comm);
bool agree_broadcast(void *data, int bytes, mpi_handle comm);
/* A communicator of the same ranks for agreements on an open file, while other calls of the program
 * are under way. Collective. False: MPI failed. */
bool agree_apart(mpi_handle comm, mpi_handle *apart);
void agree_apart_free(mpi_handle *apart);

/* Bytes in memory of malloc(). */
struct parcel {
    void *memory;
    int bytes;
};
/* Brings the parcels of all ranks together on rank 0. Along a binomial tree each rank adds to its own, by `add`, what
 * other ranks send, and sends all of that on. Returns false on rank 0 if `add` did so on some rank, or if MPI failed;
 * what other ranks have then, and get as the result, tells nothing. */
typedef bool add_parcel(struct parcel *, const void *more, int bytes);
bool agree_merge(struct parcel *, add_parcel *add, int rank, int ranks, mpi_handle comm);

/* From here on until it is called with NULL, an agreement of this thread that takes a minute says
 * that `rank` waits for others that open `file`. */
void agree_opening(const char *file, int rank);

/* Whether the last agreement also holds for this collective call, and if so counts the call. It
 * does not hold after a set_view, nor for reads of a file that ranks on several nodes may write to.
 */
bool agreement_holds(struct agreement *, unsigned views);
/* Whether all ranks redirect this collective call. They do if no rank has an objection (a literal;
 * NULL: none). Then no rank makes the library's collective call: a rank that cannot redirect reads
 * or writes independently.
 *
 * A `lasting` agreement holds for more calls the more often the answer was the same. It ends with
 * the fewest calls that any rank has left before the end of the file: there the MPI library must
 * read, with all ranks. */
bool agreement_make(struct agreement *, mpi_handle comm, bool lasting, unsigned views, const char *objection,
                    int64_t calls_left);
/* Why a collective call is not redirected: this rank's own reason, or that the ranks agreed on it
 * now or (`held`) at an earlier call. */
const char *agreement_why(bool held, const char *objection);

#endif
