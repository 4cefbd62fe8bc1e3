/* Collective calls: all ranks wait for each other, and two-phase collective buffering as in ROMIO.
 *
 * The bytes from the first to the last one asked for are divided evenly among the aggregators. In
 * each round an aggregator accesses a buffer of its part, and exchanges that with the ranks over the
 * links of the nodes. In each round a node exchanges the same share of its bytes as the round has of
 * all bytes. */
#include "engine.h"

#include <stdlib.h>

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static int64_t most(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

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

static void forget(struct engine *engine, struct collective *collective)
{
    release_memory(engine, collective->window);
    release_memory(engine, collective->node_bytes);
    release_memory(engine, collective->gathered);
    release_memory(engine, collective->run);
    pool_give(&engine->collectives, collective);
}

/* All its calls end, or each continues by itself. */
static void release_calls(struct engine *engine, struct collective *collective,
                          void (*go)(struct engine *, struct call *))
{
    struct call *call = collective->first;
    forget(engine, collective);
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

/* The aggregators' parts of the file: of `domain` bytes each from `low` on, and in each what is wanted of it. */
struct parts {
    int64_t low, domain, buffer;
    struct range *wanted;
};

static void widen(struct range *range, int64_t start, int64_t stop)
{
    range->start = range->stop == 0 ? start : least(range->start, start);
    range->stop = most(range->stop, stop);
}

/* Of a piece what is wanted of each part. */
static void want(struct collective *collective, const struct parts *parts, int64_t start, int64_t stop)
{
    (void)collective;
    while (start < stop) {
        const int64_t a = (start - parts->low) / parts->domain;
        const int64_t end = least(parts->low + (a + 1) * parts->domain, stop);
        widen(&parts->wanted[a], start, end);
        start = end;
    }
}

/* Adds a piece to the windows that it is in. A window is a whole buffer, as in ROMIO: it ends earlier only where the
 * part does. */
static void add_piece(struct collective *collective, const struct parts *parts, int64_t start, int64_t stop)
{
    while (start < stop) {
        const int64_t a = (start - parts->low) / parts->domain;
        const struct range *wanted = &parts->wanted[a];
        const int64_t round = (start - wanted->start) / parts->buffer;
        const int64_t first = wanted->start + round * parts->buffer, last = least(first + parts->buffer, wanted->stop);
        struct window *window = &collective->window[round * collective->aggregators + a];
        window->start = first;
        window->stop = last;
        window->bytes += least(last, stop) - start;
        start = least(last, stop);
    }
}

typedef void piece_found(struct collective *, const struct parts *, int64_t start, int64_t stop);

static void each_piece(struct collective *collective, const struct parts *parts, piece_found *found)
{
    for (const struct call *call = collective->first; call; call = call->next) {
        struct pieces rest;
        int64_t start, stop;
        for (bool more = first_piece(call, &rest, &start, &stop); more; more = pieces_next(&rest, &start, &stop))
            found(collective, parts, start, stop);
    }
}

static void count_bytes(struct engine *engine, struct collective *collective)
{
    size_t nodes = (size_t)engine->in->nodes;
    collective->node_bytes = hold(engine, nodes * sizeof *collective->node_bytes);
    collective->gathered = hold(engine, nodes * sizeof *collective->gathered);
    for (const struct call *call = collective->first; call; call = call->next) {
        collective->node_bytes[call->rank / engine->in->ranks_per_node] += call->bytes;
        collective->bytes += call->bytes;
    }
}

static void set_aggregator(const struct collective *collective, struct window *window, const struct call *call)
{
    window->rank = call->rank;
    window->own = (double)call->bytes / (double)collective->bytes;
}

static int by_its_rank(const void *a, const void *b)
{
    const struct call *one = *(const struct call *const *)a, *other = *(const struct call *const *)b;
    return (one->rank > other->rank) - (one->rank < other->rank);
}

/* The calls of the ranks that aggregate: the first one of each node. If more are wanted than there are nodes, they are
 * the first ranks (ROMIO's cb_config_list "*:*"). */
static const struct call **aggregators(struct engine *engine, struct collective *collective)
{
    const struct sim_input *in = engine->in;
    const struct call **call = hold(engine, (size_t)collective->arrived * sizeof *call);
    const int64_t most = in->aggregators > 0 ? in->aggregators : in->nodes;
    int64_t count = 0, last = -1;
    for (const struct call *one = collective->first; one; one = one->next)
        call[count++] = one;
    qsort(call, (size_t)count, sizeof *call, by_its_rank);
    for (int64_t i = 0; i < count && collective->aggregators < most; i++) {
        const int64_t node = call[i]->rank / in->ranks_per_node;
        if (most > in->nodes || node != last)
            call[collective->aggregators++] = call[i];
        last = node;
    }
    return call;
}

/* Which ranks aggregate, and what in which round. */
static void share_out(struct engine *engine, struct collective *collective, int64_t low, int64_t high)
{
    const struct sim_input *in = engine->in;
    const struct call **of = aggregators(engine, collective);
    struct parts parts = {.low = low, .domain = (high - low + collective->aggregators - 1) / collective->aggregators,
                          .buffer = in->collective_buffer,
                          .wanted = hold(engine, (size_t)collective->aggregators * sizeof *parts.wanted)};
    collective->rounds = (parts.domain + parts.buffer - 1) / parts.buffer;
    int64_t windows = collective->rounds * collective->aggregators;
    collective->window = hold(engine, (size_t)windows * sizeof *collective->window);
    for (int64_t i = 0; i < windows; i++)
        set_aggregator(collective, &collective->window[i], of[i % collective->aggregators]);
    each_piece(collective, &parts, want);
    each_piece(collective, &parts, add_piece);
    release_memory(engine, parts.wanted);
    release_memory(engine, of);
}

static void one_round(struct engine *engine, struct collective *collective);

static void two_phase(struct engine *engine, struct collective *collective)
{
    int64_t low, high;
    if (!spans(engine, collective, &low, &high)) {
        release_calls(engine, collective, call_continue);
        return;
    }
    share_out(engine, collective, low, high);
    one_round(engine, collective);
}

static void write_to_caches(struct engine *engine, struct collective *collective);

static void run(struct engine *engine, struct collective *collective)
{
    struct collective **place = bucket_of(engine, collective->number);
    while (*place != collective)
        place = &(*place)->chained;
    *place = collective->chained;
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
    } else if (call->mapped || engine->in->collective_buffer == 0) {
        release_calls(engine, collective, call_continue);
    } else {
        count_bytes(engine, collective);
        if (collective->write && engine->in->caching && engine->in->exchange != SIM_TWO_PHASE)
            write_to_caches(engine, collective);
        else
            two_phase(engine, collective);
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
    for (int64_t node = 0; node < in->nodes; node++)
        collective->gathered[node] = 0;
    for (int64_t a = 0; a < collective->aggregators; a++) {
        round += (double)window[a].bytes;
        collective->gathered[window[a].rank / in->ranks_per_node] += (double)window[a].bytes;
    }
    double share = round / (double)collective->bytes;
    bool out = !collective->write;
    for (int64_t node = 0; node < in->nodes; node++) {
        double gathered = collective->gathered[node];
        double own = (double)collective->node_bytes[node] / (double)collective->bytes;
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
        double others = (double)window[a].bytes * (1 - window[a].own);
        double moved = processed(engine, window[a].rank / in->ranks_per_node, others * in->exchange_seconds);
        done = moved > done ? moved : done;
    }
    later(engine, done, 0, SHUFFLED, collective);
}

/* ---- writes to caches on the nodes ---- */

/* A piece of a call, or what is contiguous of a node. */
struct piece {
    int64_t start, stop, node;
};

static int by_start(const void *a, const void *b)
{
    const struct piece *one = a, *other = b;
    return (one->start > other->start) - (one->start < other->start);
}

/* What all calls write, in order; overlapping pieces are one. Returns how many they are without gaps of a node. */
static int64_t join(struct engine *engine, struct collective *collective)
{
    const struct call *call;
    struct pieces rest;
    int64_t count = 0, start, stop, node_runs = 0;
    for (call = collective->first; call; call = call->next)
        for (bool more = first_piece(call, &rest, &start, &stop); more; more = pieces_next(&rest, &start, &stop))
            count++;
    struct piece *piece = hold(engine, (size_t)count * sizeof *piece);
    int64_t *end = hold(engine, (size_t)engine->in->nodes * sizeof *end); /* of each node's last piece, + 1 */
    count = 0;
    for (call = collective->first; call; call = call->next)
        for (bool more = first_piece(call, &rest, &start, &stop); more; more = pieces_next(&rest, &start, &stop))
            piece[count++] = (struct piece){start, stop, call->rank / engine->in->ranks_per_node};
    qsort(piece, (size_t)count, sizeof *piece, by_start);
    collective->run = hold(engine, (size_t)count * sizeof *collective->run);
    for (int64_t i = 0; i < count; i++) {
        struct range *last = collective->run + collective->runs - 1;
        node_runs += end[piece[i].node] <= piece[i].start;
        end[piece[i].node] = piece[i].stop + 1;
        if (collective->runs > 0 && piece[i].start <= last->stop)
            last->stop = piece[i].stop > last->stop ? piece[i].stop : last->stop;
        else
            collective->run[collective->runs++] = (struct range){piece[i].start, piece[i].stop};
    }
    release_memory(engine, piece);
    release_memory(engine, end);
    return node_runs;
}

/* Whether a call begins between the pieces of those that passed the caches by (replicator/stub/exchange.c). */
static bool fills_gaps(const struct range *pass, int64_t start)
{
    return start > pass->start && start < pass->stop;
}

static void note_passed(struct range *pass, const struct range *call)
{
    if (pass->stop == 0 || call->start <= pass->start)
        *pass = *call;
    else
        pass->stop = most(pass->stop, call->stop);
}

/* Whether the library would exchange the pieces first, and in which units, or leave them to the MPI library. */
static struct caching_exchange decide(struct engine *engine, struct collective *collective, int64_t node_runs)
{
    const struct sim_input *in = engine->in;
    struct written *written = &engine->written[collective->first->file];
    struct range *pass = &written->pass, *cached = &written->cached;
    const struct range call = {collective->run[0].start, collective->run[collective->runs - 1].stop};
    engine->fills = engine->fills || fills_gaps(pass, call.start);
    const bool in_gaps = cached->start < call.stop && call.start < cached->stop;
    struct caching_collective made = {
        .ranks = collective->arrived, .bytes = collective->bytes, .piece = collective->bytes / node_runs,
        .joined = collective->runs > 1 ? collective->bytes / (collective->runs - 1) : call.stop - call.start,
        .span = call.stop - call.start, .fills = engine->fills || in_gaps, .compute = engine->computed};
    for (int64_t node = 0; node < in->nodes; node++)
        made.nodes += collective->node_bytes[node] > 0;
    const double *cost = in->exchange_costs;
    const struct caching_costs costs = {cost[0], cost[1], cost[2], cost[3], cost[4], cost[5]};
    struct caching_exchange found;
    caching_exchange(&made, &costs, &found);
    if (in->exchange != SIM_AUTO) {
        found.exchanges = in->exchange == SIM_ALWAYS && made.nodes > 1;
        found.sieves = 0;
    }
    if (found.sieves)
        note_passed(pass, &call);
    else
        *cached = cached->stop == 0 ? call
                                    : (struct range){least(cached->start, call.start), most(cached->stop, call.stop)};
    return found;
}

static struct part *part_of(struct engine *engine, struct collective *collective, int64_t rank)
{
    struct part **part = &collective->part[rank / engine->in->ranks_per_node];
    if (!*part)
        *part = hold(engine, sizeof **part);
    (*part)->pending++;
    return *part;
}

/* Each rank writes its own pieces. */
static void write_apart(struct engine *engine, struct collective *collective)
{
    struct part **part = collective->part;
    for (const struct call *call = collective->first; call; call = call->next)
        part_of(engine, collective, call->rank);
    struct call *call = collective->first;
    forget(engine, collective);
    for (struct call *next; call; call = next) {
        next = call->next;
        struct access *access = access_new(engine, call->rank, call->file, true, 0, 0);
        access->call = call;
        access->part = part[access->node];
        access_place(engine, access, call_range, call);
    }
    release_memory(engine, part);
}

/* The ranks to which units belong in turn: neighbours are on different nodes. */
static const struct call **in_turn(struct engine *engine, const struct collective *collective)
{
    int64_t per_node = engine->in->ranks_per_node, count = 0;
    const struct call **order = hold(engine, (size_t)collective->arrived * sizeof *order);
    const struct call **of = hold(engine, (size_t)engine->in->ranks * sizeof *of);
    for (const struct call *call = collective->first; call; call = call->next)
        of[call->rank] = call;
    for (int64_t i = 0; i < per_node; i++)
        for (int64_t rank = i; rank < engine->in->ranks; rank += per_node)
            if (of[rank])
                order[count++] = of[rank];
    release_memory(engine, of);
    return order;
}

/* The windows of an exchange are units of the file. */
static void share_units(struct engine *engine, struct collective *collective, const struct caching_exchange *found)
{
    const struct range *run = collective->run, *last = run + collective->runs - 1;
    const struct call **order = in_turn(engine, collective);
    int64_t unit = found->unit, first = run->start / unit, units = (last->stop - 1) / unit + 1 - first;
    collective->aggregators = found->at_a_time;
    collective->rounds = (units + found->at_a_time - 1) / found->at_a_time;
    collective->window =
        hold(engine, (size_t)(collective->rounds * collective->aggregators) * sizeof *collective->window);
    for (int64_t i = 0; i < collective->rounds * collective->aggregators; i++) {
        struct window *window = &collective->window[i];
        int64_t number = first + i;
        set_aggregator(collective, window, order[number % collective->arrived]);
        window->start = number * unit;
        window->stop = window->start + unit;
        while (run <= last && run->stop <= window->start)
            run++;
        window->run = run - collective->run;
        for (const struct range *one = run; one <= last && one->start < window->stop; one++)
            window->bytes += least(one->stop, window->stop) - most(one->start, window->start);
    }
    release_memory(engine, order);
    for (const struct call *call = collective->first; call; call = call->next)
        if (!collective->part[call->rank / engine->in->ranks_per_node])
            part_of(engine, collective, call->rank); /* until all rounds are over */
}

struct runs {
    const struct collective *collective;
    const struct window *window;
    int64_t next;
};

static bool next_run(void *of, int64_t *start, int64_t *stop)
{
    struct runs *runs = of;
    const struct range *run = runs->collective->run + runs->next++;
    if (runs->next > runs->collective->runs || run->start >= runs->window->stop)
        return false;
    *start = most(run->start, runs->window->start);
    *stop = least(run->stop, runs->window->stop);
    return true;
}

static void place_window(struct engine *engine, struct collective *collective, const struct window *window,
                         struct access *access)
{
    access->part = part_of(engine, collective, window->rank);
    access_place(engine, access, next_run, &(struct runs){collective, window, window->run});
}

static void end_exchange(struct engine *engine, struct collective *collective)
{
    for (int64_t node = 0; collective->part && node < engine->in->nodes; node++)
        if (collective->part[node])
            part_written(engine, collective->part[node], NULL);
}

static void write_past_caches(struct engine *engine, struct collective *collective)
{
    struct written *written = &engine->written[collective->first->file];
    written->passing_since = written->passing == 0 ? engine->now : written->passing_since;
    for (struct call *call = collective->first; call; call = call->next) {
        call->passes = true;
        written->passing++;
    }
    release_memory(engine, collective->run);
    collective->run = NULL;
    collective->passes = true;
    two_phase(engine, collective);
}

/* As pdla's library (replicator/stub/cache.c). */
static void write_to_caches(struct engine *engine, struct collective *collective)
{
    engine->written[collective->first->file].calls++;
    struct caching_exchange found = {0};
    if (collective->bytes > 0 && engine->in->exchange != SIM_NEVER)
        found = decide(engine, collective, join(engine, collective));
    if (found.sieves) {
        write_past_caches(engine, collective);
        return;
    }
    collective->part = hold(engine, (size_t)engine->in->nodes * sizeof(struct part *));
    if (found.exchanges) {
        share_units(engine, collective, &found);
        one_round(engine, collective);
    } else {
        write_apart(engine, collective);
    }
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
        struct access *access = access_new(engine, window[a].rank, file, collective->write, window[a].start,
                                           window[a].stop);
        access->collective = collective;
        collective->pending++;
        if (collective->run) {
            place_window(engine, collective, &window[a], access);
            continue;
        }
        access->rewrites = collective->write && window[a].bytes < window[a].stop - window[a].start;
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
    if (collective->round == collective->rounds) {
        end_exchange(engine, collective);
        release_memory(engine, collective->part);
        release_calls(engine, collective, call_ends);
    } else if (collective->write) {
        shuffle(engine, collective);
    } else {
        access_windows(engine, collective);
    }
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
