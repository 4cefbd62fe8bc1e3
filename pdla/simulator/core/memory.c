/* What the memory of a server does for its device: the server's page cache, or the cache of the
 * device itself.
 *
 * Sequential reads, by one process or by several in turns, are read ahead. Those bytes are there
 * once, for the next process that reads them. A write returns as soon as memory has it. The device
 * writes it later, in the order of addresses (of so many writes at a time), when there is nothing
 * to read or no more room. Writes of requests go before writes of the background. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, BITS = 64 };

static bool is(const struct marks *marks, int64_t page)
{
    return page / BITS < marks->words && marks->word[page / BITS] >> page % BITS & 1;
}

static void set(struct engine *engine, struct marks *marks, int64_t page)
{
    int64_t word = page / BITS;
    if (word >= marks->words) {
        int64_t words = 2 * word + 64;
        uint64_t *more = hold(engine, (size_t)words * sizeof *more);
        if (marks->words > 0)
            memcpy(more, marks->word, (size_t)marks->words * sizeof *more);
        release_memory(engine, marks->word);
        marks->word = more;
        marks->words = words;
    }
    marks->word[word] |= (uint64_t)1 << page % BITS;
}

static void unset(struct marks *marks, int64_t page)
{
    if (page / BITS < marks->words)
        marks->word[page / BITS] &= ~((uint64_t)1 << page % BITS);
}

/* The first flight that ends after `address`. */
static size_t flight_after(const struct server *server, int64_t address)
{
    size_t low = 0, high = server->flights;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (server->flight[middle].stop <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void start_flight(struct engine *engine, struct server *server, struct sub *sub, int64_t start, int64_t stop)
{
    if (server->flights == server->flight_room) {
        size_t room = 2 * server->flight_room + 16;
        struct flight *flight = realloc(server->flight, room * sizeof *flight);
        if (!flight)
            longjmp(engine->failed, SIM_NO_MEMORY);
        server->flight = flight;
        server->flight_room = room;
    }
    struct flight *at = &server->flight[flight_after(server, start)];
    memmove(at + 1, at, (size_t)(server->flight + server->flights++ - at) * sizeof *at);
    *at = (struct flight){start, stop, sub};
}

void memory_was_read(struct engine *engine, struct server *server, struct sub *sub)
{
    struct flight *at = &server->flight[flight_after(server, sub->address + sub->length)];
    memmove(at, at + 1, (size_t)(server->flight + --server->flights - at) * sizeof *at);
    for (struct sub *follower; (follower = line_take(&sub->followers));)
        sub_done(engine, follower);
}

/* Takes the pages of [start, stop) that were read ahead, from the first byte on. Returns where they
 * end. */
static int64_t take_ahead(struct server *server, int64_t start, int64_t stop)
{
    for (int64_t page = start / PAGE; start < stop && is(&server->ahead, page); page++) {
        start = (page + 1) * PAGE;
        if (start <= stop)
            unset(&server->ahead, page);
    }
    return start < stop ? start : stop;
}

/* Where reading ahead from `stop` on ends: before bytes that were read ahead already, or are being
 * read. */
static int64_t read_ahead(struct engine *engine, struct server *server, int64_t stop)
{
    int64_t page = stop / PAGE, end = (stop + server->spec->read_ahead) / PAGE;
    size_t next = flight_after(server, stop);
    if (next < server->flights && server->flight[next].start < end * PAGE)
        end = server->flight[next].start / PAGE;
    for (; page < end && !is(&server->ahead, page); page++)
        set(engine, &server->ahead, page);
    return page * PAGE > stop ? page * PAGE : stop;
}

static void move_front(struct engine *engine, struct server *server, struct stream *stream, int64_t page)
{
    if (stream->front >= 0)
        unset(&server->fronts, stream->front);
    set(engine, &server->fronts, stream->front = page);
}

bool memory_has(struct engine *engine, struct server *server, struct sub *sub)
{
    sub->skipped = sub->ahead = 0;
    if (sub->write || sub->process < 0 || server->spec->read_ahead == 0)
        return false;
    struct stream *stream = &server->stream[sub->process];
    int64_t start = sub->address, stop = start + sub->length;
    /* RATIONALE: Linux looks at the pages that are there, not at who has read them. So reads by
     * processes in turns are a sequence. */
    bool in_sequence = stream->next == start || (start > 0 && is(&server->fronts, (start - 1) / PAGE));
    stream->next = stop;
    int64_t from = take_ahead(server, start, stop);
    if (from == stop) {
        size_t number = flight_after(server, stop - 1);
        if (number < server->flights && server->flight[number].start < stop)
            line_put(&server->flight[number].sub->followers, sub);
        else
            sub_done(engine, sub);
        return true;
    }
    int64_t end = stop;
    if (in_sequence || from > start) {
        sub->skipped = from - start;
        end = read_ahead(engine, server, stop);
        sub->ahead = end - stop;
        if (sub->ahead > 0)
            start_flight(engine, server, sub, stop, end);
    }
    move_front(engine, server, stream, (end - 1) / PAGE);
    return false;
}

static bool has_room(const struct server *server, const struct sub *sub)
{
    return server->dirty == 0 || server->dirty + sub->length <= server->spec->memory;
}

static void order(struct engine *engine, struct server *server, struct sub *copy)
{
    server->ordered[copy->background]++;
    if (!sweep_put(&server->dirty_sweep[copy->background][copy->address < server->head], copy))
        longjmp(engine->failed, SIM_NO_MEMORY);
}

static void take(struct engine *engine, struct server *server, struct sub *sub)
{
    struct sub *copy = pool_take(engine, &engine->subs);
    *copy = *sub;
    copy->request = NULL;
    server->dirty += sub->length;
    int64_t depth = server->spec->memory_depth;
    if (depth > 0 && server->ordered[sub->background] >= depth)
        line_put(&server->dirty_line[sub->background], copy);
    else
        order(engine, server, copy);
    sub_done(engine, sub);
}

bool memory_takes(struct engine *engine, struct server *server, struct sub *sub)
{
    if (!sub->write || server->spec->memory == 0)
        return false;
    /* Writes of the background get only half of it, and then wait for the device. */
    if (sub->background && (server->full.first || server->dirty + sub->length > server->spec->memory / 2))
        return false;
    if (!server->full.first && has_room(server, sub))
        take(engine, server, sub);
    else
        line_put(&server->full, sub);
    return true;
}

void memory_cleaned(struct engine *engine, struct server *server, struct sub *copy)
{
    server->dirty -= copy->length;
    server->ordered[copy->background]--;
    struct sub *next = line_take(&server->dirty_line[copy->background]);
    if (next)
        order(engine, server, next);
    engine->out->settled = engine->now;
    pool_give(&engine->subs, copy);
    while (server->full.first && has_room(server, server->full.first))
        take(engine, server, line_take(&server->full));
}
