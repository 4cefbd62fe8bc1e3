/* The critical requests of an open file (PDLA_POLICY=s4d): those that SSD servers would serve sooner than
 * the home servers, by Eqs. 1 to 8 of S4D-Cache (pdla/caching/identifier.c). What was read is left
 * in a log at the close, from which pdla fetches it for the next opens. */
#ifndef PDLA_CRITICAL_REQUESTS_H
#define PDLA_CRITICAL_REQUESTS_H

#include "caching.h"
#include "replica_choice.h"

struct critical_requests;

/* NULL: the policy is another one, its variable PDLA_S4D cannot be read, or there is no memory. */
struct critical_requests *critical_requests_open(const struct file_handle *, const char *path, int rank);
/* Judges the requests that the MPI library would make for a call. Whether most of its bytes belong to critical
 * ones. Any thread may call this. */
bool critical_requests_judge(struct critical_requests *, const struct io_call *, enum caching_op,
                             const struct view_range *);
/* Leaves the log. */
void critical_requests_close(struct critical_requests *);

/* The cost model: PDLA_S4D. The curves are in `numbers`, to be freed. False: it cannot be read. */
struct s4d_costs {
    int64_t home_strip, home_servers;
    double way_home; /* seconds of all home servers for a byte, in the order of the file */
    struct caching_s4d model;
    void *numbers;
};
bool s4d_costs_read(struct s4d_costs *);

#endif
