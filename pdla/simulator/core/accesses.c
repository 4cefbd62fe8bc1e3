/* File requests: directly to the original, or by the stages of transfers that an online policy
 * gives. */
#include "engine.h"

#include <string.h>

struct access *access_new(struct engine *engine, int64_t rank, int64_t file, bool write, int64_t start, int64_t stop)
{
    struct access *access = pool_take(engine, &engine->accesses);
    int64_t node = rank >= 0 ? rank / engine->in->ranks_per_node : -1;
    *access = (struct access){.rank = rank, .node = node, .file = file, .write = write, .start = start, .stop = stop};
    return access;
}

static bool overlap(const struct access *a, const struct access *b)
{
        return a->file == b->file && a->start < b->stop && b->start < a->stop;
}

static void append(struct list *list, struct link *link, struct access *access)
{
    struct link **end = list->first ? list->end : &list->first;
    *link = (struct link){.at = end, .access = access};
    *end = link;
    list->end = &link->next;
}

static void take_out(struct list *list, struct link *link)
{
    *link->at = link->next;
    if (link->next)
        link->next->at = link->at;
    else
        list->end = link->at;
}

static bool overlaps_any(const struct list *list, const struct access *access)
{
    for (const struct link *one = list->first; one; one = one->next)
        if (overlap(one->access, access))
            return true;
    return false;
}

static void continue_access(struct engine *engine, struct access *access);

static double work(const struct engine *engine, int64_t bytes)
{
    return engine->in->call_seconds + (double)bytes * engine->in->copy_seconds;
}

static void request_transfers(struct engine *engine, struct access *access)
{
    if (!engine->in->policy || engine->in->only_closes) {
        struct request *request = request_new(engine, access, access->node, access->write);
        request_add(engine, request, access->file, -1, access->start, access->stop);
        access->pending = 1;
        request_start(engine, request);
        return;
    }
    struct sim_question question = {
        .time = engine->now, .what = SIM_REQUEST, .rank = access->rank, .node = access->node, .file = access->file,
        .op = access->write, .start = access->start, .stop = access->stop, .collective = access->jointly};
    ask_policy(engine, &question, access);
}

static void *copied(struct engine *engine, const void *from, size_t size)
{
    return size > 0 ? memcpy(hold(engine, size), from, size) : NULL;
}

/* The move of these transfers. It starts now, or after `access`. */
static void add_move(struct engine *engine, struct access *access, const struct sim_transfer *first, int64_t transfers)
{
    struct access *move = access_new(engine, access->rank, access->file, false, access->start, access->stop);
    move->background = !first->urgent;
    move->token = first->token;
    move->transfer = copied(engine, first, (size_t)transfers * sizeof *first);
    move->transfers = transfers;
    engine->out->moves++;
    if (first->after) {
        struct access **last = &access->after;
        while (*last)
            last = &(*last)->next;
        *last = move;
    } else {
        continue_access(engine, move);
    }
}

void ask_policy(struct engine *engine, struct sim_question *question, struct access *access)
{
    struct sim_answer answer = {0};
    if (engine->in->policy(question, &answer) != 0)
        longjmp(engine->failed, SIM_STOPPED);
    int64_t rows = answer.transfers, own = 0;
    while (own < rows && answer.transfer[own].token == 0)
        own++;
    access->done = 0;
    access->transfers = own;
    access->transfer = copied(engine, answer.transfer, (size_t)own * sizeof *answer.transfer);
    access->waits = answer.waits;
    access->wait = copied(engine, answer.wait, (size_t)answer.waits * sizeof *answer.wait);
    /* RATIONALE: what starts below may finish at once and call the policy again. Its present answer
     * is no longer needed then. */
    struct sim_transfer *moves = copied(engine, answer.transfer + own, (size_t)(rows - own) * sizeof *moves);
    rows -= own;
    access->waited = 0;
    if (access->waits > 0) {
        access->waited = engine->now;
        append(&engine->waiting, &access->turn, access);
    }
    for (int64_t first = 0, next; first < rows; first = next) {
        for (next = first + 1; next < rows && moves[next].token == moves[first].token; next++)
            ;
        add_move(engine, access, &moves[first], next - first);
    }
    release_memory(engine, moves);
    if (answer.waits == 0)
        continue_access(engine, access);
}

/* Accesses the storage, or the pages of the node. */
static void serve(struct engine *engine, struct access *access)
{
    if (engine->in->client_cache && access->node >= 0) {
        access->pending = 0;
        cache_serves(engine, access, access->file, -1, access->write, access->start, access->stop);
        return;
    }
    access->uncached = access->stop - access->start;
    request_transfers(engine, access);
}

void access_start(struct engine *engine, struct access *access)
{
    access->jointly = access->collective != NULL;
    if (access->rewrites) {
        /* RATIONALE: ROMIO locks the range, since what is read must not change before it is written
         * again. */
        if (overlaps_any(&engine->locked, access)) {
            append(&engine->wants_lock, &access->lock, access);
            return;
        }
        access->locked = true;
        append(&engine->locked, &access->lock, access);
        access->write = false;
    }
    serve(engine, access);
}

void access_fetch(struct engine *engine, const struct access *reader, int64_t object, int64_t place, int64_t start,
                  int64_t stop, struct fetch *fetch)
{
    struct access *access = access_new(engine, reader->rank, reader->file, false, start, stop);
    access->node = reader->node;
    access->jointly = reader->jointly;
    access->fetch = fetch;
    if (place < 0) {
        access->file = object;
        request_transfers(engine, access);
        return;
    }
    struct request *request = request_new(engine, access, access->node, false);
    request_add(engine, request, object, place - engine->in->object[object].first, start, stop);
    access->pending = 1;
    request_start(engine, request);
}

void access_flush(struct engine *engine, int64_t node, int64_t file, int64_t start, int64_t stop, struct flush *flush)
{
    struct access *access = access_new(engine, node * engine->in->ranks_per_node, file, true, start, stop);
    access->flush = flush;
    request_transfers(engine, access);
}

void access_close(struct engine *engine, struct access *access)
{
    int64_t stage = access->closing++;
    if (stage == 1 && engine->in->policy) {
        struct sim_question question = {.time = engine->now, .what = SIM_CLOSE, .rank = access->closer, .node = -1,
                                        .file = access->file, .stop = INT64_MAX};
        ask_policy(engine, &question, access);
        return;
    }
    access->pending = 1;
    if (stage != 1)
        cache_flush(engine, access);
    access_ends_request(engine, access);
}

static void unlock(struct engine *engine, struct access *access)
{
    take_out(&engine->locked, &access->lock);
    for (struct link *one = engine->wants_lock.first, *next; one; one = next) {
        next = one->next;
        if (!overlaps_any(&engine->locked, one->access)) {
            take_out(&engine->wants_lock, one);
            access_start(engine, one->access);
        }
    }
}

/* The accesses that waited for it continue, and so does the policy. */
static void moved(struct engine *engine, int64_t token)
{
    engine->out->settled = engine->now;
    struct list ready = {0};
    for (struct link *one = engine->waiting.first, *next; one; one = next) {
        struct access *access = one->access;
        next = one->next;
        for (int64_t i = 0; i < access->waits; i++)
            if (access->wait[i] == token)
                access->wait[i--] = access->wait[--access->waits];
        if (access->waits == 0) {
            take_out(&engine->waiting, one);
            access->waited = engine->now - access->waited;
            append(&ready, one, access);
        }
    }
    struct sim_question question = {.time = engine->now, .what = SIM_FINISHED, .rank = -1, .node = -1, .file = -1,
                                    .token = token};
    ask_policy(engine, &question, access_new(engine, -1, -1, false, 0, 0));
    for (struct link *one = ready.first, *next; one; one = next) {
        next = one->next;
        continue_access(engine, one->access);
    }
}

enum { CLOSED = 3 }; /* dirty pages flushed; then the policy's moves done; then what they wrote flushed */

static void finish(struct engine *engine, struct access *access)
{
    if (access->uncached > 0 && work(engine, access->uncached) > 0) {
        later(engine, processed(engine, access->node, work(engine, access->uncached)), 0, PROCESSED, access);
        return;
    }
    release_memory(engine, access->transfer);
    release_memory(engine, access->wait);
    access->transfer = NULL;
    access->wait = NULL;
    struct access *after = access->after;
    access->after = NULL;
    for (struct access *next; after; after = next) {
        next = after->next;
        continue_access(engine, after);
    }
    if (access->closing > 0 && access->closing < CLOSED) {
        access_close(engine, access);
        return;
    }
    if (access->rewrites && !access->write) {
        access->write = true;
        serve(engine, access);
        return;
    }
    if (access->locked)
        unlock(engine, access);
    if (access->token)
        moved(engine, access->token);
    engine->running -= access->ends;
    struct call *call = access->call;
    struct collective *collective = access->collective;
    struct fetch *fetch = access->fetch;
    struct flush *flush = access->flush;
    pool_give(&engine->accesses, access);
    if (fetch)
        cache_fetched(engine, fetch);
    else if (flush)
        later(engine, engine->now, 0, FLUSHED, flush);
    else if (collective)
        collective_accessed(engine, collective);
    else if (call)
        call_continue(engine, call);
}

static void transfer(struct engine *engine, struct access *access, const struct sim_transfer *row)
{
    /* RATIONALE: the replicas of a plan are files on mounts like the original's. An online policy
     * has copies of its own. */
    bool cached = engine->in->client_cache && engine->in->only_closes && row->node >= 0;
    if (cached && row->object < engine->in->files) {
        access->node = row->node;
        cache_serves(engine, access, row->object, -1, row->op, row->start, row->stop);
        return;
    }
    struct request *request = request_new(engine, access, row->node, row->op);
    request->cached = cached;
    access->pending++;
    request_add(engine, request, row->object, row->server, row->start, row->stop);
    request_start(engine, request);
}

/* Its next stage that takes time. */
static void continue_access(struct engine *engine, struct access *access)
{
    while (access->done < access->transfers) {
        const struct sim_transfer *first = &access->transfer[access->done], *end = access->transfer + access->transfers;
        /* One more than there are, so that the stage cannot end while transfers are still to be
         * started. */
        access->pending = 1;
        for (const struct sim_transfer *row = first; row < end && row->stage == first->stage; row++) {
            if (row->start == row->stop) {
                access->done++;
                continue;
            }
            access->done++;
            transfer(engine, access, row);
        }
        if (--access->pending > 0)
            return;
    }
    finish(engine, access);
}

void access_ends_request(struct engine *engine, struct access *access)
{
    if (--access->pending == 0)
        continue_access(engine, access);
}

void access_processed(struct engine *engine, struct access *access)
{
    access->uncached = 0;
    finish(engine, access);
}
