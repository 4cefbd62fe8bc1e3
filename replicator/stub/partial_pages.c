#define _GNU_SOURCE
#include "partial_pages.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    ASK_BYTES = 1 << 20,  /* less makes small requests, and the kernel fetches little more at once */
    HOLE_BYTES = 1 << 17  /* are fetched, too: it takes no longer than another request */
};

void partial_pages_start(struct partial_pages *pages, int fd, uint64_t device)
{
    *pages = (struct partial_pages){.fd = major(device) == 0 ? -1 : fd, .page = sysconf(_SC_PAGESIZE)};
}

static void request_pages(struct partial_pages *pages, int64_t bytes)
{
    posix_fadvise(pages->fd, pages->start, bytes, POSIX_FADV_WILLNEED);
    pages->start += bytes;
    pages->asked += bytes;
}

void partial_pages_flush(struct partial_pages *pages)
{
    if (pages->start < pages->stop)
        request_pages(pages, pages->stop - pages->start);
}

static void add_page(struct partial_pages *pages, int64_t page)
{
    if (page - pages->stop > HOLE_BYTES)
        partial_pages_flush(pages);
    if (pages->start == pages->stop)
        pages->start = page;
    pages->stop = page + pages->page;
    while (pages->stop - pages->start >= ASK_BYTES)
        request_pages(pages, ASK_BYTES);
}

void partial_pages_add(struct partial_pages *pages, int64_t start, int64_t stop)
{
    const int64_t first = start - start % pages->page, last = stop - stop % pages->page;
    if (pages->fd < 0)
        return;
    if (first < start && first >= pages->stop)
        add_page(pages, first);
    if (last < stop && last >= pages->stop)
        add_page(pages, last);
}
