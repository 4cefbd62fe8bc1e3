/* Fetches the pages of a file of which only a part will be written. RATIONALE: otherwise the kernel
 * reads each such page when it gets the part, with one request a page, and the writer waits.
 * Fetched before, pages that are close together take one large request. */
#ifndef PDLA_PARTIAL_PAGES_H
#define PDLA_PARTIAL_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct partial_pages {
    int fd;              /* -1: nothing is to be fetched */
    int64_t page;
    int64_t start, stop; /* bytes that are still to be fetched */
    int64_t asked;       /* bytes, in all */
};

/* For a file on a device of this node only: the clients of network file systems keep parts of
 * pages. */
void partial_pages_start(struct partial_pages *, int fd, uint64_t device);
/* Bytes [start, stop) will be written, together with those of the next call if they follow. Their
 * pages are fetched now or later. */
void partial_pages_add(struct partial_pages *, int64_t start, int64_t stop);
/* Fetches the rest. */
void partial_pages_flush(struct partial_pages *);

#endif
