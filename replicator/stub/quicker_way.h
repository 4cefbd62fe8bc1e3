/* Which of two ways is quicker for calls of like size: the replica, or MPI's own call on the
 * original. There is no clock here: users time the calls.
 *
 * A trial times a few calls of either way in turns. The one of the least time is used until the next
 * trial, which comes after twice as many calls each time that the answer stays the same. In between,
 * the original's calls are timed by a clock that ticks seldom. If they seem to become slow, there is
 * a trial at once. */
#ifndef PDLA_QUICKER_WAY_H
#define PDLA_QUICKER_WAY_H

#include <stdbool.h>
#include <stdint.h>

enum way { REPLICA, ORIGINAL, WAYS };

enum {
    TRIED_CALLS = 4,     /* of either way in a trial */
    SECOND_WAIT = 512,   /* calls after the first trial, of which the next one may slow down TRIED_CALLS */
    LONGEST_WAIT = 1 << 20,
    TOO_SLOW = 4,        /* times the way in use: ends a trial, ... */
    COLD_CALLS = 2       /* ... after this many calls: the first one finds its code and data in no cache */
};
#define SLOW_NANOSECONDS INT64_C(16000000) /* some ticks of the clock: what is told from chance */

struct quicker_way {
    enum way way;            /* of the calls until the next trial; atomic */
    uint32_t left;           /* calls until then; 0: a trial is due, or under way; atomic */
    uint32_t wait;           /* calls between the trials */
    uint32_t since;          /* `left` when ... */
    int64_t ticked;          /* ... the calls of the original began to take this long, in ns */
    bool tried;              /* a trial is under way */
    int needed[WAYS];        /* calls of the trial that are still to be timed */
    int64_t least[WAYS];     /* ns, of the last trial */
};

/* The replica is used at first; `wait`: calls before the first trial. */
void quicker_start(struct quicker_way *, uint32_t wait);
/* Counts a call. True: *way is its way. False: a trial is due or under way. Safe to call from
 * several threads; the others need a lock. */
bool quicker_known(struct quicker_way *, enum way *);
/* Whether a trial is due that has not begun. Then it is to begin or, where the original cannot be
 * quicker, to be declined: the replica is used until the next one. */
bool quicker_is_due(const struct quicker_way *);
void quicker_begin(struct quicker_way *);
void quicker_decline(struct quicker_way *);
/* The way of the trial's next call. */
enum way quicker_tries(const struct quicker_way *);
/* A call took that many ns; it counts if it belongs to the trial that is under way. */
void quicker_timed(struct quicker_way *, enum way, int64_t nanoseconds);
/* The clock ticked by so many ns during a call of the original that belongs to no trial. */
void quicker_ticked(struct quicker_way *, int64_t nanoseconds);

#endif
