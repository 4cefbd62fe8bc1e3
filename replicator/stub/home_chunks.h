/* The chunks of an original that have bytes in some journals. RATIONALE: a node may have millions of small pieces. What
 * is known of all of them is how many each chunk has; a thread knows the pieces of a few chunks at a time. */
#ifndef PDLA_HOME_CHUNKS_H
#define PDLA_HOME_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal.h"

struct home_chunk {
    int64_t number; /* it begins at `number` * HOME_CHUNK */
    size_t pieces;
};

struct home_chunks {
    struct home_chunk *at;
    size_t count, room;
};

/* Counts the pieces that homeward_add() makes of an entry. False: out of memory. */
bool home_chunks_add(struct home_chunks *, const struct journal_entry *, int64_t length);
/* Puts the chunks into the order of the original, each once. */
void home_chunks_sort(struct home_chunks *);
/* How many pieces a thread knows at a time: all, or `most`, or those of one chunk that has more. */
size_t home_chunks_at_a_time(const struct home_chunks *, size_t most);
/* Where the chunks end that begin with `first` and have at most so many pieces together. */
size_t home_chunks_until(const struct home_chunks *, size_t first, size_t at_a_time);
void home_chunks_free(struct home_chunks *);

#endif
