#define _GNU_SOURCE
#include "edges.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    ASK_BYTES = 1 << 20,  /* less makes small requests of it, and the kernel takes not much more at once */
    HOLE_BYTES = 1 << 17  /* are read, too: it takes no longer than another request */
};

void edges_start(struct edges *edges, int fd, uint64_t device)
{
    *edges = (struct edges){.fd = major(device) == 0 ? -1 : fd, .page = sysconf(_SC_PAGESIZE)};
}

static void ask(struct edges *edges, int64_t bytes)
{
    posix_fadvise(edges->fd, edges->start, bytes, POSIX_FADV_WILLNEED);
    edges->start += bytes;
    edges->asked += bytes;
}

void edges_flush(struct edges *edges)
{
    if (edges->start < edges->stop)
        ask(edges, edges->stop - edges->start);
}

static void want(struct edges *edges, int64_t page)
{
    if (page - edges->stop > HOLE_BYTES)
        edges_flush(edges);
    if (edges->start == edges->stop)
        edges->start = page;
    edges->stop = page + edges->page;
    while (edges->stop - edges->start >= ASK_BYTES)
        ask(edges, ASK_BYTES);
}

void edges_add(struct edges *edges, int64_t start, int64_t stop)
{
    const int64_t first = start - start % edges->page, last = stop - stop % edges->page;
    if (edges->fd < 0)
        return;
    if (first < start && first >= edges->stop)
        want(edges, first);
    if (last < stop && last >= edges->stop)
        want(edges, last);
}
