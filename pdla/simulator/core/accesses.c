/* File requests: directly to the original, or by the stages of transfers that an online policy answers with. */
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

static bool meets(const struct list *list, const struct access *access)
{
    for (const struct link *one = list->first; one; one = one->next)
        if (overlap(one->access, access))
            return true;
    return false;
}

static void goes_on(struct engine *engine, struct access *access);

static void asked(struct engine *engine, struct access *access)
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
        .op = access->write, .start = access->start, .stop = access->stop, .collective = access->collective != NULL};
    ask(engine, &question, access);
}

static void *copied(struct engine *engine, const void *from, size_t size)
{
    return size > 0 ? memcpy(hold(engine, size), from, size) : NULL;
}

/* The move of these transfers; it starts now, or after `access`. */
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
        goes_on(engine, move);
    }
}

void ask(struct engine *engine, struct sim_question *question, struct access *access)
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
    /* RATIONALE: what starts below may finish at once, and the policy is asked again: its answer is needed no more. */
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
    let_go(engine, moves);
    if (answer.waits == 0)
        goes_on(engine, access);
}

void access_start(struct engine *engine, struct access *access)
{
    if (access->rewrites) {
        /* RATIONALE: what is read must not change before it is written back: ROMIO locks the range meanwhile. */
        if (meets(&engine->locked, access)) {
            append(&engine->wants_lock, &access->lock, access);
            return;
        }
        access->locked = true;
        append(&engine->locked, &access->lock, access);
        access->write = false;
    } else if (cache_has(engine, access)) {
        later(engine, engine->now, 0, CACHED, access);
        return;
    }
    asked(engine, access);
}

static void unlock(struct engine *engine, struct access *access)
{
    take_out(&engine->locked, &access->lock);
    for (struct link *one = engine->wants_lock.first, *next; one; one = next) {
        next = one->next;
        if (!meets(&engine->locked, one->access)) {
            take_out(&engine->wants_lock, one);
            access_start(engine, one->access);
        }
    }
}

/* Those who waited for it last go on, and so does the policy. */
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
    ask(engine, &question, access_new(engine, -1, -1, false, 0, 0));
    for (struct link *one = ready.first, *next; one; one = next) {
        next = one->next;
        goes_on(engine, one->access);
    }
}

static void finish(struct engine *engine, struct access *access)
{
    let_go(engine, access->transfer);
    let_go(engine, access->wait);
    access->transfer = NULL;
    access->wait = NULL;
    struct access *after = access->after;
    access->after = NULL;
    for (struct access *next; after; after = next) {
        next = after->next;
        goes_on(engine, after);
    }
    if (access->rewrites && !access->write) {
        access->write = true;
        asked(engine, access);
        return;
    }
    if (access->locked)
        unlock(engine, access);
    if (access->token)
        moved(engine, access->token);
    engine->running -= access->ends;
    struct call *call = access->call;
    struct collective *collective = access->collective;
    pool_give(&engine->accesses, access);
    if (collective)
        collective_accessed(engine, collective);
    else if (call)
        call_goes_on(engine, call);
}

/* Its next stage that takes time. */
static void goes_on(struct engine *engine, struct access *access)
{
    while (access->done < access->transfers) {
        const struct sim_transfer *first = &access->transfer[access->done], *end = access->transfer + access->transfers;
        /* One more than there are, so that none of them ends the stage while others are still to be started. */
        access->pending = 1;
        for (const struct sim_transfer *row = first; row < end && row->stage == first->stage; row++) {
            struct request *request = request_new(engine, access, row->node, row->op);
            request_add(engine, request, row->object, row->server, row->start, row->stop);
            access->pending++;
            access->done++;
            request_start(engine, request);
        }
        if (--access->pending > 0)
            return;
    }
    finish(engine, access);
}

void access_ends_request(struct engine *engine, struct access *access)
{
    if (--access->pending == 0)
        goes_on(engine, access);
}

void access_was_cached(struct engine *engine, struct access *access)
{
    finish(engine, access);
}
