/* Pages of a file of which only a part is going to be written. RATIONALE: the kernel reads such a page before it takes
 * the part, a request for each page, and the writer waits for it. So it is asked for them before, as far as they are
 * close together in large requests. */
#ifndef PDLA_PARTIAL_PAGES_H
#define PDLA_PARTIAL_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct partial_pages {
    int fd;              /* -1: nothing is to be asked for */
    int64_t page;
    int64_t start, stop; /* bytes that are yet to be asked for */
    int64_t asked;       /* bytes, in all */
};

/* Of a file on a device of this node; others are left alone, for the clients of network file systems keep parts of
 * pages. */
void partial_pages_start(struct partial_pages *, int fd, uint64_t device);
/* Bytes [start, stop) are going to be written, with those of the next call after them; now or then the kernel is asked
 * for their pages. */
void partial_pages_add(struct partial_pages *, int64_t start, int64_t stop);
/* The kernel has been asked for all of them. */
void partial_pages_flush(struct partial_pages *);

#endif
