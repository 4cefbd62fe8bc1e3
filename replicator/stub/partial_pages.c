#define _GNU_SOURCE
#include "partial_pages.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    ASK_BYTES = 1 << 20,  /* less makes small requests of it, and the kernel takes not much more at once */
    HOLE_BYTES = 1 << 17  /* are read, too: it takes no longer than another request */
};

void partial_pages_start(struct partial_pages *edges, int fd, uint64_t device)
{
    *edges = (struct partial_pages){.fd = major(device) == 0 ? -1 : fd, .page = sysconf(_SC_PAGESIZE)};
}

static void ask(struct partial_pages *edges, int64_t bytes)
{
    posix_fadvise(edges->fd, edges->start, bytes, POSIX_FADV_WILLNEED);
    edges->start += bytes;
    edges->asked += bytes;
}

void partial_pages_flush(struct partial_pages *edges)
{
    if (edges->start < edges->stop)
        ask(edges, edges->stop - edges->start);
}

static void want(struct partial_pages *edges, int64_t page)
{
    if (page - edges->stop > HOLE_BYTES)
        partial_pages_flush(edges);
    if (edges->start == edges->stop)
        edges->start = page;
    edges->stop = page + edges->page;
    while (edges->stop - edges->start >= ASK_BYTES)
        ask(edges, ASK_BYTES);
}

void partial_pages_add(struct partial_pages *edges, int64_t start, int64_t stop)
{
    const int64_t first = start - start % edges->page, last = stop - stop % edges->page;
    if (edges->fd < 0)
        return;
    if (first < start && first >= edges->stop)
        want(edges, first);
    if (last < stop && last >= edges->stop)
        want(edges, last);
}
