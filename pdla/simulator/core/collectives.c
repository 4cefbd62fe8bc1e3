/* Collective calls: all ranks wait for each other, and two-phase collective buffering as in ROMIO.
 *
 * The bytes from the first to the last one asked for are divided evenly among the aggregators, the
 * first rank of each node. In each round an aggregator accesses up to a buffer of its part, and
 * exchanges that with the ranks over the links of the nodes. In each round a node exchanges the
 * same share of its bytes as the round has of all bytes. */
#include "engine.h"

#include <stdlib.h>

static struct collective **bucket_of(struct engine *engine, int64_t number)
{
    return &engine->bucket[(uint64_t)number * 0x9e3779b97f4a7c15u >> 52];
}

_Static_assert(BUCKETS == 1 << 12, "the bucket is the highest 12 bits");

static void run(struct engine *engine, struct collective *collective);

void collective_join(struct engine *engine, struct call *call)
{
    struct collective **place = bucket_of(engine, call->collective), *one = *place;
    while (one && one->number != call->collective)
        one = one->chained;
    if (!one) {
        one = pool_take(engine, &engine->collectives);
        *one = (struct collective){.chained = *place, .number = call->collective, .write = call->write};
        *place = one;
    }
    call->next = NULL;
    if (one->first)
        one->last->next = call;
    else
        one->first = call;
    one->last = call;
    if (++one->arrived == call->participants)
        run(engine, one);
}

/* All its calls end, or each continues by itself. */
static void release_calls(struct engine *engine, struct collective *collective,
                          void (*go)(struct engine *, struct call *))
{
    struct call *call = collective->first;
    if (collective->window) {
        release_memory(engine, collective->window);
        release_memory(engine, collective->node_bytes);
        release_memory(engine, collective->aggregator);
        release_memory(engine, collective->own);
    }
    pool_give(&engine->collectives, collective);
    for (struct call *next; call; call = next) {
        next = call->next;
        go(engine, call);
    }
}

struct span {
    int64_t rank, start, stop;
};

static int by_rank(const void *a, const void *b)
{
    const struct span *one = a, *other = b;
    return (one->rank > other->rank) - (one->rank < other->rank);
}

static bool first_piece(const struct call *call, struct pieces *rest, int64_t *start, int64_t *stop)
{
    if (!call->more)
        return false;
    pieces_copy(rest, &call->pieces);
    *start = call->start;
    *stop = call->stop;
    return true;
}

/* From the first to the last byte of all calls. False: they ask for none, or each for bytes after
 * those of the rank before, for which ROMIO does no collective buffering. */
static bool spans(struct engine *engine, const struct collective *collective, int64_t *low, int64_t *high)
{
    struct span *span = hold(engine, (size_t)collective->arrived * sizeof *span);
    int64_t count = 0, start, stop;
    struct pieces rest;
    *low = INT64_MAX;
    *high = -1;
    for (const struct call *call = collective->first; call; call = call->next) {
        if (!first_piece(call, &rest, &start, &stop))
            continue;
        struct span *one = &span[count++];
        *one = (struct span){call->rank, start, stop};
        while (pieces_next(&rest, &start, &stop)) {
            one->start = start < one->start ? start : one->start;
            one->stop = stop > one->stop ? stop : one->stop;
        }
        *low = one->start < *low ? one->start : *low;
        *high = one->stop > *high ? one->stop : *high;
    }
    bool together = engine->in->always && count > 0;
    qsort(span, (size_t)count, sizeof *span, by_rank);
    for (int64_t i = 1; i < count && !together; i++)
        together = span[i].start < span[i - 1].stop;
    release_memory(engine, span);
    return together;
}

/* Adds a piece to the windows that it is in. */
static void add_piece(struct collective *collective, int64_t low, int64_t domain, int64_t buffer, int64_t start,
                      int64_t stop)
{
    while (start < stop) {
        int64_t aggregator = (start - low) / domain, round = (start - low) % domain / buffer;
        int64_t end = low + aggregator * domain + (round + 1) * buffer;
        int64_t domain_end = low + (aggregator + 1) * domain;
        end = end < domain_end ? end : domain_end;
        end = end < stop ? end : stop;
        struct window *window = &collective->window[round * collective->aggregators + aggregator];
        window->start = window->bytes == 0 || start < window->start ? start : window->start;
        window->stop = end > window->stop ? end : window->stop;
        window->bytes += end - start;
        start = end;
    }
}

/* Which ranks aggregate, and what in which round. */
static void share_out(struct engine *engine, struct collective *collective, int64_t low, int64_t high)
{
    const struct sim_input *in = engine->in;
    size_t nodes = (size_t)in->nodes;
    collective->node_bytes = hold(engine, nodes * sizeof *collective->node_bytes);
    collective->aggregator = hold(engine, nodes * sizeof *collective->aggregator);
    int64_t *first = hold(engine, nodes * sizeof *first); /* of each node the first rank, counted from 1 */
    for (const struct call *call = collective->first; call; call = call->next) {
        int64_t node = call->rank / in->ranks_per_node;
        if (first[node] == 0 || call->rank + 1 < first[node])
            first[node] = call->rank + 1;
        collective->node_bytes[node] += call->bytes;
        collective->bytes += call->bytes;
    }
    int64_t most = in->aggregators > 0 ? in->aggregators : in->nodes;
    for (int64_t node = 0; node < in->nodes; node++) {
        bool aggregates = first[node] > 0 && collective->aggregators < most;
        if (aggregates)
            collective->aggregator[collective->aggregators] = first[node] - 1;
        first[node] = aggregates ? collective->aggregators++ : -1;
    }
    collective->own = hold(engine, (size_t)collective->aggregators * sizeof *collective->own);
    for (const struct call *call = collective->first; call; call = call->next) {
        int64_t a = first[call->rank / in->ranks_per_node];
        if (a >= 0 && collective->aggregator[a] == call->rank)
            collective->own[a] = (double)call->bytes / (double)collective->bytes;
    }
    release_memory(engine, first);

    int64_t domain = (high - low + collective->aggregators - 1) / collective->aggregators;
    collective->rounds = (domain + in->collective_buffer - 1) / in->collective_buffer;
    collective->window =
        hold(engine, (size_t)(collective->rounds * collective->aggregators) * sizeof *collective->window);
    for (const struct call *call = collective->first; call; call = call->next) {
        struct pieces rest;
        int64_t start, stop;
        for (bool more = first_piece(call, &rest, &start, &stop); more; more = pieces_next(&rest, &start, &stop))
            add_piece(collective, low, domain, in->collective_buffer, start, stop);
    }
}

static void one_round(struct engine *engine, struct collective *collective);

static void run(struct engine *engine, struct collective *collective)
{
    struct collective **place = bucket_of(engine, collective->number);
    while (*place != collective)
        place = &(*place)->chained;
    *place = collective->chained;
    int64_t low, high;
    const struct call *call = collective->first;
    if (call->closes) {
        if (decides(engine) || engine->in->client_cache) {
            struct access *access = access_new(engine, -1, call->file, true, 0, INT64_MAX);
            access->collective = collective;
            collective->pending = 1;
            access_close(engine, access);
        } else {
            release_calls(engine, collective, call_ends);
        }
    } else if (call->mapped || engine->in->collective_buffer == 0 || !spans(engine, collective, &low, &high)) {
        release_calls(engine, collective, call_continue);
    } else {
        share_out(engine, collective, low, high);
        one_round(engine, collective);
    }
}

static const struct window *windows_of(const struct collective *collective)
{
    return &collective->window[collective->round * collective->aggregators];
}

/* When the links have moved the bytes between all nodes and this round's aggregators. */
static void shuffle(struct engine *engine, struct collective *collective)
{
    const struct sim_input *in = engine->in;
    const struct window *window = windows_of(collective);
    double done = engine->now, round = 0;
    for (int64_t a = 0; a < collective->aggregators; a++)
        round += (double)window[a].bytes;
    double share = round / (double)collective->bytes;
    bool out = !collective->write;
    for (int64_t node = 0, a = 0; node < in->nodes; node++) {
        double gathered = 0, own = (double)collective->node_bytes[node] / (double)collective->bytes;
        if (a < collective->aggregators && collective->aggregator[a] / in->ranks_per_node == node)
            gathered = (double)window[a++].bytes;
        double *link = engine->node[node].link_free;
        /* The bytes of the node's own ranks do not leave it. */
        double given = (double)collective->node_bytes[node] * share - gathered * own;
        double amounts[2] = {given, gathered - gathered * own};
        for (int way = 0; way < 2; way++) {
            double *free = &link[way ^ out];
            if (amounts[way] > 0 && in->seconds_per_byte > 0) {
                *free = (*free > engine->now ? *free : engine->now) + amounts[way] * in->seconds_per_byte;
                done = *free > done ? *free : done;
            }
        }
    }
    /* A processor of an aggregator moves the bytes of other ranks. */
    for (int64_t a = 0; a < collective->aggregators; a++) {
        double others = (double)window[a].bytes * (1 - collective->own[a]);
        double moved = processed(engine, collective->aggregator[a] / in->ranks_per_node, others * in->exchange_seconds);
        done = moved > done ? moved : done;
    }
    later(engine, done, 0, SHUFFLED, collective);
}

static void access_windows(struct engine *engine, struct collective *collective)
{
    const struct window *window = windows_of(collective);
    int64_t file = collective->first->file;
    /* One more than there are, so that the round cannot end while accesses are still to be started. */
    collective->pending = 1;
    for (int64_t a = 0; a < collective->aggregators; a++) {
        if (window[a].bytes == 0)
            continue;
        struct access *access = access_new(engine, collective->aggregator[a], file, collective->write, window[a].start,
                                           window[a].stop);
        access->collective = collective;
        access->rewrites = collective->write && window[a].bytes < window[a].stop - window[a].start;
        collective->pending++;
        access_start(engine, access);
    }
    collective_accessed(engine, collective);
}

static bool is_empty(const struct collective *collective)
{
    for (int64_t a = 0; a < collective->aggregators; a++)
        if (windows_of(collective)[a].bytes > 0)
            return false;
    return true;
}

static void one_round(struct engine *engine, struct collective *collective)
{
    while (collective->round < collective->rounds && is_empty(collective))
        collective->round++;
    if (collective->round == collective->rounds)
        release_calls(engine, collective, call_ends);
    else if (collective->write)
        shuffle(engine, collective);
    else
        access_windows(engine, collective);
}

void collective_accessed(struct engine *engine, struct collective *collective)
{
    if (--collective->pending > 0)
        return;
    if (!collective->window) {
        release_calls(engine, collective, call_ends); /* of a file that is closed */
    } else if (collective->write) {
        collective->round++;
        one_round(engine, collective);
    } else {
        shuffle(engine, collective);
    }
}

void collective_shuffled(struct engine *engine, struct collective *collective)
{
    if (collective->write) {
        access_windows(engine, collective);
    } else {
        collective->round++;
        one_round(engine, collective);
    }
}

bool collective_release(struct engine *engine)
{
    struct collective *first = NULL;
    for (int64_t i = 0; i < BUCKETS; i++)
        for (struct collective *one = engine->bucket[i]; one; one = one->chained)
            first = !first || one->number < first->number ? one : first;
    if (first)
        run(engine, first);
    return first != NULL;
}
