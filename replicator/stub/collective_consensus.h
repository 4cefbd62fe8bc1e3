/* Deciding together with the other ranks of a file. */
#ifndef PDLA_COLLECTIVE_CONSENSUS_H
#define PDLA_COLLECTIVE_CONSENSUS_H

#include "interpose.h"

/* What the ranks agreed on at a collective read or write, and for how many more it holds. */
struct agreement {
    bool redirects;
    unsigned views;      /* the handle's set_view calls at that time */
    int64_t span, calls; /* such calls that it was made for; left of them */
};

/* Reductions of 8-byte words, broadcasts from rank 0, and gathering bytes, as many of every rank (`counts` NULL) or
 * not; MPI_COMM_NULL is a single rank. False when MPI failed. */
bool agree_reduce(const void *mine, void *all, int words, mpi_handle op, mpi_handle comm);
bool agree_broadcast(void *data, int bytes, mpi_handle comm);
bool agree_gather(const void *mine, int bytes, void *all, const int *counts, const int *places, mpi_handle comm);

/* For collective reads and writes, on all ranks alike. Whether the last agreement is good for this call, which then
 * counts. It is not after a set_view, nor for reads of a file that ranks on several nodes may write to. */
bool agreement_holds(struct agreement *, unsigned views);
/* Whether all ranks redirect this collective call, because none has an objection (a literal; NULL: none): those that do
 * not make the library's collective call either, but read or write by themselves. With `lasting` it holds the longer
 * the more often the answer was the same, but not beyond the calls that any rank has left before the end of the file:
 * what is read there is for the MPI library to say, by all ranks together. */
bool agreement_make(struct agreement *, mpi_handle comm, bool lasting, unsigned views, const char *objection,
                    int64_t calls_left);
/* Why a collective call is not redirected, which was agreed on now or (`held`) before: this rank's own reason, where it
 * has one. */
const char *agreement_why(bool held, const char *objection);

#endif
