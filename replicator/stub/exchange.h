/* The exchange of the pieces of a collective write, before they go to the caches of several nodes. Units
 * of the file belong to the ranks in turn: each rank sends its pieces to those whose turn it is, as
 * two-phase I/O does. What a node then brings home are whole units. A model of the costs decides whether
 * that pays, or whether the MPI library had better write the pieces, which sieves (caching_exchange()). */
#ifndef PDLA_EXCHANGE_H
#define PDLA_EXCHANGE_H

#include "cache_hints.h"
#include "replica_choice.h"
#include "writer.h"

struct exchange;

/* Of a cache whose peers are known. NULL: out of memory. */
struct exchange *exchange_make(const struct writer *, const struct cache_hints *);
/* On all ranks: each node has the next `block` ranks. 1: this is not known. */
void exchange_take_turns(struct exchange *, int block);
/* Whether several nodes have caches. */
bool exchange_is_possible(const struct writer *);
void exchange_free(struct exchange *);

/* Before a collective write that all ranks can redirect (`range` NULL: of no bytes); on all ranks.
 * PIECES_STAY: each writes its pieces to its own cache. PIECES_SIEVED: the MPI library had better write them.
 * PIECES_FAIL: nobody can redirect the call. */
enum pieces { PIECES_STAY, PIECES_GO, PIECES_SIEVED, PIECES_FAIL };
enum pieces exchange_decide(const struct io_call *, const struct view_range *range);
/* Exchanges the pieces of a call, and writes those that come to the cache; on all ranks. NULL, or on all ranks
 * why the MPI library is to write them: a literal. */
const char *exchange_write(const struct io_call *, const struct view_range *, const struct typemap *memory,
                           uint64_t *requests);

/* Whether it was decided, or there is no choice, that pieces stay. */
bool exchange_stays(const struct writer *);
/* Whether exchanged bytes may wait in caches of other nodes. */
bool exchange_waits(const struct writer *);
/* The end of them in the file, and the last one. */
int64_t exchange_end(const struct writer *, char *last);
/* A blocking collective write has been written to the caches, or is now left to the MPI library. */
void exchange_called(const struct writer *);
/* Around what the MPI library does then. */
void exchange_passes(const struct writer *);
void exchange_passed(const struct writer *);
/* The program waits for what was written, until all of it is home. */
void exchange_awaited(const struct writer *);
void exchange_home(const struct writer *);

#endif
