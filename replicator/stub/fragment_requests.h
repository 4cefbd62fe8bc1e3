/* iBridge's judge of an open file: which ends of a request are fragments that an SSD server should have, by return
 * value (pdla/caching/fragments.c). The caller holds the lock of the critical requests. */
#ifndef PDLA_FRAGMENT_REQUESTS_H
#define PDLA_FRAGMENT_REQUESTS_H

#include "caching.h"
#include "service_times.h"

struct ssd_costs;
struct fragment_requests;

/* The room of a cache for writes. */
struct fragment_room {
    int64_t bytes;   /* that this process may use */
    bool short_of;   /* less than half of it is left */
    bool empty;      /* nothing waits there */
};

/* What an SSD server is to have of a request: bytes at its beginning and at its end, and what that returns, in seconds.
 * A random request has no end. */
struct fragment_choice {
    int64_t head, tail;
    double head_returns, tail_returns;
};

/* NULL: it is not known how the file at `path` is striped, and *why says why, or there is no memory. */
struct fragment_requests *fragment_requests_open(const char *path, int ranks, const struct ssd_costs *,
                                                 const char **why);
void fragment_requests_close(struct fragment_requests *);
/* `room` NULL: nothing is written. */
struct fragment_choice fragment_requests_judge(struct fragment_requests *, enum caching_op, int64_t start, int64_t stop,
                                               const struct fragment_room *room);
/* Home servers took so long for bytes [start, stop). */
void fragment_requests_served(struct fragment_requests *, int64_t start, int64_t stop, double seconds);
struct service_times *fragment_requests_times(const struct fragment_requests *);

#endif
