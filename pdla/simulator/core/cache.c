/* The page caches of client nodes: what a node has read of a file once is there, for all its ranks, and stays. */
#include "engine.h"

#include <string.h>

enum { PAGE = 4096, BITS = 64 };

static bool has(const struct pages *pages, int64_t page)
{
    return page / BITS < pages->words && pages->word[page / BITS] >> page % BITS & 1;
}

static void add(struct engine *engine, struct pages *pages, int64_t page)
{
    int64_t word = page / BITS;
    if (word >= pages->words) {
        int64_t words = 2 * word + 64;
        uint64_t *more = hold(engine, (size_t)words * sizeof *more);
        if (pages->words > 0)
            memcpy(more, pages->word, (size_t)pages->words * sizeof *more);
        let_go(engine, pages->word);
        pages->word = more;
        pages->words = words;
    }
    pages->word[word] |= (uint64_t)1 << page % BITS;
}

bool cache_has(struct engine *engine, struct access *access)
{
    if (!engine->in->client_cache || access->write || access->node < 0)
        return false;
    if (!engine->pages)
        engine->pages = hold(engine, (size_t)(engine->in->nodes * engine->in->files) * sizeof *engine->pages);
    struct pages *pages = &engine->pages[access->node * engine->in->files + access->file];
    int64_t first = access->start / PAGE, last = (access->stop - 1) / PAGE;
    while (first <= last && has(pages, first))
        first++;
    while (last > first && has(pages, last))
        last--;
    if (first > last)
        return true;
    access->start = access->start > first * PAGE ? access->start : first * PAGE;
    access->stop = access->stop < (last + 1) * PAGE ? access->stop : (last + 1) * PAGE;
    for (; first <= last; first++)
        add(engine, pages, first);
    return false;
}
