/* Ranks, call by call: piece by piece, with data sieving (as in ROMIO), or from replicas. */
#include "engine.h"

#include <math.h>

#include "random.h"

bool call_range(void *of, int64_t *start, int64_t *stop)
{
    struct call *call = of;
    if (!call->more)
        return false;
    *start = call->start;
    *stop = call->stop;
    while ((call->more = pieces_next(&call->pieces, &call->start, &call->stop)) && call->start == *stop)
        *stop = call->stop;
    return true;
}

/* A buffer from the next byte on, or as much of it as the call needs. Holes at its end are in it,
 * too. */
static void sieve(const struct engine *engine, struct call *call, int64_t *start, int64_t *stop)
{
    int64_t end = call->start + engine->in->sieve[call->write];
    *start = call->start;
    *stop = end < call->last ? end : call->last;
    for (int64_t at = call->start; call->more && call->start >= at && call->start < *stop;) {
        if (call->stop > *stop) {
            call->start = *stop;
            return;
        }
        at = call->stop;
        call->more = pieces_next(&call->pieces, &call->start, &call->stop);
    }
}

struct gathered {
    struct engine *engine;
    struct request *request;
    int64_t object, start, stop;
};

static void add_gathered(struct gathered *gathered)
{
    const struct sim_input *in = gathered->engine->in;
    if (gathered->stop > gathered->start && gathered->request->cached && gathered->object < in->files)
        cache_serves(gathered->engine, gathered->request->access, gathered->object, -1, gathered->request->write,
                     gathered->start, gathered->stop);
    else if (gathered->stop > gathered->start)
        request_add(gathered->engine, gathered->request, gathered->object, -1, gathered->start, gathered->stop);
}

static void gather(void *context, int64_t object, int64_t start, int64_t stop)
{
    struct gathered *gathered = context;
    if (gathered->object == object && gathered->stop == start) {
        gathered->stop = stop;
        return;
    }
    add_gathered(gathered);
    gathered->object = object;
    gathered->start = start;
    gathered->stop = stop;
}

/* All of a call at once, from where its bytes are. */
static void serve_mapped(struct engine *engine, struct call *call)
{
    struct access *access = access_new(engine, call->rank, call->file, call->write, 0, 0);
    access->call = call;
    access->pending = 1;
    struct gathered gathered = {.engine = engine, .object = -1,
                                .request = request_new(engine, access, access->node, call->write)};
    gathered.request->cached = engine->in->client_cache;
    access->uncached = engine->in->client_cache ? 0 : call->bytes;
    int64_t start, stop;
    while (call_range(call, &start, &stop))
        map_range(engine, call->rank, call->file, call->write, start, stop, gather, &gathered);
    add_gathered(&gathered);
    request_start(engine, gathered.request);
}

void call_continue(struct engine *engine, struct call *call)
{
    int64_t start, stop;
    if (call->mapped && call->more) {
        serve_mapped(engine, call);
        return;
    }
    if (!call->more) {
        call_ends(engine, call);
        return;
    }
    if (call->sieved)
        sieve(engine, call, &start, &stop);
    else
        call_range(call, &start, &stop);
    struct access *access = access_new(engine, call->rank, call->file, call->write, start, stop);
    access->call = call;
    access->rewrites = call->write && call->sieved; /* ROMIO does not look for holes before it reads */
    access_start(engine, access);
}

/* How many bytes it has, where it ends, and whether there are holes in it. */
static void measure(const struct engine *engine, struct call *call)
{
    struct pieces rest;
    int64_t first = call->start, start, stop;
    call->bytes = call->more ? call->stop - call->start : 0;
    call->last = call->stop;
    pieces_copy(&rest, &call->pieces);
    while (pieces_next(&rest, &start, &stop)) {
        call->bytes += stop - start;
        first = start < first ? start : first;
        call->last = stop > call->last ? stop : call->last;
    }
    call->sieved = engine->in->sieve[call->write] > 0 && call->more && call->bytes < call->last - first;
}

/* What its node has kept of the file goes to the storage. */
static void sync(struct engine *engine, struct call *call)
{
    struct access *access = access_new(engine, call->rank, call->file, true, 0, 0);
    access->call = call;
    access->pending = 1;
    cache_flush(engine, access);
    access_ends_request(engine, access);
}

static void call_begins(struct engine *engine, struct call *call)
{
    call->began = engine->now;
    measure(engine, call);
    call->mapped = is_mapped(engine, call->file, call->write);
    note(engine, SIM_CALL, call->rank, call->file, call->start, call->bytes);
    if (engine->in_calls++ == 0)
        engine->calls_since = engine->now;
    if (call->syncs)
        sync(engine, call);
    else if (call->participants > 1 || call->closes)
        collective_join(engine, call);
    else
        call_continue(engine, call);
}

void call_ends(struct engine *engine, struct call *call)
{
    struct sim_output *out = engine->out;
    double took = engine->now - call->began;
    out->rank_seconds[call->rank] += took;
    if (!call->closes && !call->syncs) {
        out->calls++;
        out->bytes[call->write] += call->bytes;
        out->call_seconds += took;
        out->longest_call = took > out->longest_call ? took : out->longest_call;
    }
    note(engine, SIM_RETURNED, call->rank, call->file, call->start, call->bytes);
    struct written *written = &engine->written[call->file];
    if (call->passes && --written->passing == 0)
        written->since = written->calls == 1 ? engine->now : written->since + engine->now - written->passing_since;
    else if (written->calls == 1 && written->since == 0)
        written->since = engine->now;
    if (--engine->in_calls == 0)
        out->io_seconds += engine->now - engine->calls_since;
    struct rank *rank = &engine->rank[call->rank];
    pool_give(&engine->calls, call);
    if (engine->in->open_loop)
        engine->running--;
    else
        rank_next(engine, rank);
}

/* The next call of a pattern, if the rank is in the middle of the pattern's accesses. */
static void next_of_part(struct engine *engine, struct rank *rank, const struct sim_pattern *pattern, struct call *call)
{
    struct cursor *cursor = &rank->cursor;
    call->file = pattern->file;
    call->write = pattern->flags & SIM_WRITES;
    call->collective = pattern->collective + rank->number;
    call->participants = pattern->participants;
    if (pattern->pieces > 1) {
        struct pieces from = {.in = engine->in, .left = pattern->pieces, .cursor = *cursor};
        pieces_copy(&call->pieces, &from);
        call->more = pieces_next(&call->pieces, &call->start, &call->stop);
    } else {
        call->start = cursor->offset[cursor->depth];
        call->stop = call->start + cursor->length[cursor->depth];
        call->pieces.left = 0;
        call->more = true;
    }
    rank->number++;
    for (int64_t i = 0; i < pattern->pieces && rank->in_part; i++)
        rank->in_part = cursor_next(cursor);
    if (!rank->in_part)
        rank->part++;
}

/* The next call of the rank, and the seconds before it. NULL: there is none. */
static struct call *next_call(struct engine *engine, struct rank *rank, double *think, double *start)
{
    const struct sim_input *in = engine->in;
    int64_t number = rank - engine->rank;
    struct call *call = pool_take(engine, &engine->calls);
    call->next = NULL;
    call->rank = number;
    call->passes = call->closes = call->syncs = call->mapped = call->more = false;
    call->start = call->stop = 0;
    call->pieces.in = in;
    call->pieces.item = call->pieces.end = NULL;
    call->pieces.left = 0;
    call->pieces.in_nest = false;
    *think = *start = 0;
    while (rank->part < in->first_part[number + 1]) {
        const struct sim_part *part = &in->part[rank->part];
        const struct sim_pattern *pattern = &in->pattern[part->pattern];
        if (!rank->in_part) {
            rank->number = 0;
            rank->in_part = cursor_begin(&rank->cursor, in, &in->nest[pattern->nest], pattern->rank_loops,
                                         part->position);
        }
        if (rank->in_part) {
            next_of_part(engine, rank, pattern, call);
            return call;
        }
        rank->part++;
    }
    if (rank->call < in->first_call[number + 1]) {
        const struct sim_call *made = &in->call[rank->call++];
        call->file = made->file;
        call->write = made->flags & SIM_WRITES;
        call->closes = made->flags & SIM_CLOSES;
        call->syncs = made->flags & SIM_SYNCS;
        call->collective = made->collective;
        call->participants = made->participants;
        call->pieces.item = in->item + made->item;
        call->pieces.end = in->item + made[1].item;
        call->more = pieces_next(&call->pieces, &call->start, &call->stop);
        *think = made->think;
        *start = made->start;
        return call;
    }
    pool_give(&engine->calls, call);
    return NULL;
}

void rank_begin(struct engine *engine, struct rank *rank)
{
    int64_t number = rank - engine->rank;
    rank->part = engine->in->first_part[number];
    rank->call = engine->in->first_call[number];
    rank->random = (uint64_t)engine->in->seed << 32 ^ ~(uint64_t)number;
    engine->running++;
    rank_next(engine, rank);
}

void rank_next(struct engine *engine, struct rank *rank)
{
    double think, start;
    rank->next = next_call(engine, rank, &think, &start);
    if (!rank->next) {
        engine->running--;
        return;
    }
    /* Exponentially distributed: most are a little late, a few very late. */
    if (engine->in->jitter > 0)
        think -= engine->in->jitter * log1p(-random_share(&rank->random));
    if (engine->in->open_loop)
        later(engine, start, 0, ARRIVAL, rank);
    else if (think > 0)
        later(engine, engine->now + think, 0, RANK_READY, rank);
    else
        rank_ready(engine, rank);
}

void rank_ready(struct engine *engine, struct rank *rank)
{
    call_begins(engine, rank->next);
}

void rank_arrives(struct engine *engine, struct rank *rank)
{
    struct call *call = rank->next;
    engine->running++;
    rank_next(engine, rank);
    call_begins(engine, call);
}
