/* LiU's segments of an open file (PDLA_POLICY=liu): a head, which a replica on SSD servers may have (the segment is
 * lifted), and a body. The first read of a lifted segment asks the kernel for all of its body, while the head comes
 * from the SSD servers: the page cache of the node is the buffer that its processes share. */
#ifndef PDLA_SEGMENT_REQUESTS_H
#define PDLA_SEGMENT_REQUESTS_H

#include "replica_choice.h"

struct ssd_costs;
struct segment_requests;

/* NULL: the variable PDLA_SEGMENTS cannot be read, or there is no memory. */
struct segment_requests *segment_requests_open(const char *path, int ranks, const struct ssd_costs *);
void segment_requests_close(struct segment_requests *);
/* Bytes of a head and of a body. */
void segment_requests_sizes(const struct segment_requests *, int64_t *head, int64_t *body);
/* Where the head or the body ends in which a byte is. */
int64_t segment_requests_end(const struct segment_requests *, int64_t byte);
/* Whether a replica of an earlier run has the head in which a byte is. */
bool segment_requests_lifted(const struct segment_requests *, int64_t byte);
/* Seconds that so many bytes of a head save. */
double segment_requests_saves(const struct segment_requests *, int64_t bytes);
/* Before a read of a fresh original of `size` bytes: loads the lifted segments that it reads from, unless they were
 * loaded lately, the disks are reading another one for this node, or it reads too little of what it loads. Any thread
 * may call this. */
void segment_requests_load(struct segment_requests *, const struct reader *, const struct view_range *, int64_t size);

#endif
