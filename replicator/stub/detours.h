/* Small reads that are in order in the original, but not in the replica, which was built for another
 * program: the ranks together read the original from its beginning to its end, as storage likes it.
 * After a few of them MPI makes the next ones, as long as they are such reads. */
#ifndef PDLA_DETOURS_H
#define PDLA_DETOURS_H

#include <stdbool.h>
#include <stdint.h>

struct view_range;
struct tally;

/* Of one open file. All members are atomic, and hints. */
struct detours {
    int64_t end; /* in the original, of the last read that was one */
    int many;    /* in a row; MOST: MPI makes the calls */
};

/* Whether MPI is to make a read by one of `ranks`. */
bool detours_avoid(struct detours *, const struct view_range *, int ranks);
/* Notes a read, and what was read from the replica for it. */
void detours_note(struct detours *, const struct view_range *, int ranks, const struct tally *);

#endif
