/* The critical requests of an open file: those that a policy wants on SSD servers, by Eqs. 1 to 8 of S4D-Cache
 * (PDLA_POLICY=s4d; pdla/caching/identifier.c), or the fragments and small random requests of iBridge
 * (PDLA_POLICY=ibridge; fragment_requests.h). What was read is left in a log at the close, from which pdla fetches it
 * for the next opens. With LiU (PDLA_POLICY=liu; segment_requests.h) the log has all requests: from it pdla finds
 * out which segments are worth it. */
#ifndef PDLA_CRITICAL_REQUESTS_H
#define PDLA_CRITICAL_REQUESTS_H

#include "caching.h"
#include "fragment_requests.h"
#include "replica_choice.h"
#include "segment_requests.h"

struct critical_requests;

/* NULL: the policy is another one, or *why says why nothing is judged: its variable PDLA_SSD_COSTS cannot be read, it
 * is not known how the file is striped, or there is no memory. */
struct critical_requests *critical_requests_open(const struct file_handle *, const char *path, int rank,
                                                 const char **why);
/* Judges the requests that the MPI library would make for a call. Whether most of its bytes belong to critical
 * ones. Any thread may call this. */
bool critical_requests_judge(struct critical_requests *, const struct io_call *, enum caching_op,
                             const struct view_range *);
/* A part of a call, in the order of its data. */
struct call_part {
    int64_t position, bytes; /* of the view's data */
    bool on_ssd;
};
struct call_parts {
    struct call_part *each; /* to be freed */
    int64_t count, room;
    int64_t on_ssd; /* bytes */
};
/* iBridge, LiU: which parts of a write an SSD server is to have. NULL, or why none of it is for one: a literal. */
const char *critical_requests_divide(struct critical_requests *, const struct io_call *, const struct view_range *,
                                     const struct fragment_room *, struct call_parts *);
/* iBridge: a call has been served, with replicas or (not `redirected`) by the home servers alone. What it took is
 * measured from its judgement on, by the same thread. NULL: nothing is measured. */
void critical_requests_served(struct critical_requests *, bool redirected);
/* Likewise for parts of a divided write, which took so long. Those with gaps in the file are not measured. */
void critical_requests_part_served(struct critical_requests *, const struct view_range *, bool on_ssd,
                                   int64_t nanoseconds);
/* iBridge: whether the node leaves the home servers idle; and an exchange of what it measured with other nodes,
 * collective. S4D-Cache, LiU: true, and nothing. */
bool critical_requests_idle(const struct critical_requests *);
bool critical_requests_measures(const struct critical_requests *); /* NULL: false */
void critical_requests_exchange(struct critical_requests *, mpi_handle comm);
/* LiU: its segments. NULL: another policy. */
struct segment_requests *critical_requests_segments(const struct critical_requests *);
/* Leaves the log. */
void critical_requests_close(struct critical_requests *);

/* The cost model: PDLA_SSD_COSTS. The curves are in `numbers`, to be freed. False: it cannot be read. */
struct ssd_costs {
    int64_t home_strip, home_servers;
    double way_home; /* seconds of all home servers for a byte, in the order of the file */
    struct caching_s4d model;
    void *numbers;
};
bool ssd_costs_read(struct ssd_costs *);

#endif
