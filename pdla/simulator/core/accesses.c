/* File requests: directly to the original, or by the stages of transfers that pdla/caching decides
 * on. */
#include "engine.h"

#include <string.h>

enum { BITS = 64 };

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

static double work(const struct engine *engine, int64_t bytes)
{
    return engine->in->call_seconds + (double)bytes * engine->in->copy_seconds;
}

bool decides(const struct engine *engine)
{
    return engine->in->caching || engine->in->closing;
}

static void *copied(struct engine *engine, const void *from, size_t size)
{
    return size > 0 ? memcpy(hold(engine, size), from, size) : NULL;
}

static void *grown(struct engine *engine, void *from, size_t size, size_t more)
{
    void *made = hold(engine, size + more);
    if (size > 0)
        memcpy(made, from, size);
    release_memory(engine, from);
    return made;
}

/* Adds transfers. The first one may continue the last one so far. */
static void add_transfers(struct engine *engine, struct access *access, const struct caching_transfer *transfer,
                          int64_t transfers)
{
    size_t size = sizeof *access->transfer;
    if (access->transfers + transfers > access->room) {
        int64_t more = access->transfers + transfers;
        access->transfer = grown(engine, access->transfer, (size_t)access->transfers * size, (size_t)more * size);
        access->room = access->transfers + more;
    }
    for (int64_t i = 0; i < transfers; i++) {
        const struct caching_transfer *one = &transfer[i];
        int64_t object = one->level < 0 ? one->file : engine->in->level_object[one->level];
        struct sim_transfer *last = access->transfers > 0 ? &access->transfer[access->transfers - 1] : NULL;
        if (i == 0 && last && last->stage == one->stage && last->object == object && last->server == one->server
            && last->op == one->op && last->stop == one->start && last->node == one->node)
            last->stop = one->stop;
        else
            access->transfer[access->transfers++] =
                (struct sim_transfer){one->stage, object, one->server, one->op, one->start, one->stop, one->node};
    }
}

static struct access *move_new(struct engine *engine, const struct access *access, const struct caching_step *step,
                               const struct caching_move *made)
{
    struct access *move = access_new(engine, access->rank, access->file, false, access->start, access->stop);
    move->background = !made->urgent;
    move->token = made->token;
    add_transfers(engine, move, step->moved + made->first, made->transfers);
    engine->out->moves++;
    return move;
}

/* What was decided: transfers, moves to wait for, and moves. */
static void add_step(struct engine *engine, struct access *access, int result, const struct caching_step *step,
                     struct access ***last_now)
{
    if (result != CACHING_DONE)
        longjmp(engine->failed, result == CACHING_NO_MEMORY ? SIM_NO_MEMORY : SIM_STOPPED);
    add_transfers(engine, access, step->foreground, step->transfers);
    if (step->waits > 0) {
        size_t had = (size_t)access->waits * sizeof *access->wait, more = (size_t)step->waits * sizeof *access->wait;
        access->wait = grown(engine, access->wait, had, more);
        memcpy(access->wait + access->waits, step->wait, more);
        access->waits += step->waits;
    }
    if (!access->after)
        access->after_end = &access->after;
    for (int64_t i = 0; i < step->moves; i++) {
        /* RATIONALE: bytes have no contents here, so a move that begins when another one ends need not wait. */
        struct access ***last = step->move[i].after && access->rank >= 0 ? &access->after_end : last_now;
        **last = move_new(engine, access, step, &step->move[i]);
        *last = &(**last)->next;
    }
}

static void begin_moves(struct engine *engine, struct access *moves)
{
    for (struct access *next; moves; moves = next) {
        next = moves->next;
        moves->next = NULL;
        if (engine->in->exchange != SIM_TWO_PHASE && moves->transfers > 0)
            homeward_add(engine, moves);
        else
            access_continue(engine, moves);
    }
}

void part_written(struct engine *engine, struct part *part, struct access *moves)
{
    if (!part->moves)
        part->end = &part->moves;
    for (*part->end = moves; *part->end; part->end = &(*part->end)->next)
        ;
    if (--part->pending > 0)
        return;
    begin_moves(engine, part->moves);
    release_memory(engine, part);
}

/* Does what was decided: the transfers of an access, once it need not wait any more, and moves.
 * RATIONALE: what starts here may finish at once, and then the next step is decided. The present one is no longer
 * needed. */
static void carry_out(struct engine *engine, struct access *access, struct access *now)
{
    bool waits = access->waits > 0;
    access->waited = 0;
    if (waits) {
        access->waited = engine->now;
        append(&engine->waiting, &access->turn, access);
    }
    begin_moves(engine, now);
    if (waits)
        homeward_hurry(engine);
    else
        access_continue(engine, access);
}

static void enact(struct engine *engine, struct access *access, int result, const struct caching_step *step)
{
    struct access *now = NULL, **last = &now;
    add_step(engine, access, result, step, &last);
    carry_out(engine, access, now);
}

static int serve_by_core(struct engine *engine, const struct access *access, struct caching_step *step)
{
    const struct caching_request request = {
        .time = engine->now, .rank = access->rank, .node = access->node, .file = access->file, .op = access->write,
        .start = access->start, .stop = access->stop, .collective = access->jointly};
    *step = (struct caching_step){0};
    return caching_serve(engine->in->caching, &request, step);
}

void access_place(struct engine *engine, struct access *access, range_next *next, void *context)
{
    struct access *now = NULL, **last = &now;
    struct caching_step step;
    access->jointly = true;
    while (next(context, &access->start, &access->stop)) {
        access->uncached += access->stop - access->start;
        int result = serve_by_core(engine, access, &step);
        add_step(engine, access, result, &step, &last);
    }
    carry_out(engine, access, now);
}

static void request_transfers(struct engine *engine, struct access *access)
{
    if (!engine->in->caching) {
        struct request *request = request_new(engine, access, access->node, access->write);
        request_add(engine, request, access->file, -1, access->start, access->stop);
        access->pending = 1;
        request_start(engine, request);
        return;
    }
    struct caching_step step;
    int result = serve_by_core(engine, access, &step);
    enact(engine, access, result, &step);
}

void access_tick(struct engine *engine)
{
    struct caching_step step = {0};
    int result = caching_tick(engine->in->caching, engine->now, &step);
    enact(engine, access_new(engine, -1, -1, false, 0, 0), result, &step);
}

/* How long the program has computed since it wrote. RATIONALE: what one checkpoint has seen is the best guess for the
 * next one (replicator/stub/exchange.c). */
static void note_wait(struct engine *engine, int64_t file)
{
    struct written *written = file >= 0 ? &engine->written[file] : NULL;
    if (!written || written->calls == 0)
        return;
    engine->computed = (engine->now - written->since) / (double)written->calls;
    *written = (struct written){
        .pass = written->pass, .passing = written->passing, .passing_since = written->passing_since};
}

static void close_file(struct engine *engine, struct access *access)
{
    note_wait(engine, access->file);
    if (engine->in->closes)
        engine->in->closes[engine->out->closes++] = (struct sim_close){engine->now, access->file};
    if (engine->in->caching) {
        struct caching_step step = {0};
        int result = caching_close(engine->in->caching, engine->now, access->file, &step);
        enact(engine, access, result, &step);
        return;
    }
    struct sim_answer answer = {0};
    if (engine->in->closing(access->file, &answer) != 0)
        longjmp(engine->failed, SIM_STOPPED);
    access->transfers = answer.transfers;
    access->transfer = copied(engine, answer.transfer, (size_t)answer.transfers * sizeof *answer.transfer);
    access_continue(engine, access);
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
    access->jointly = access->collective && !access->collective->passes;
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

/* An access of a page cache to the storage, by the object that the pages are of. */
static void pass(struct engine *engine, struct access *access, int64_t object, int64_t place)
{
    if (place < 0) {
        access->file = object;
        request_transfers(engine, access);
        return;
    }
    struct request *request = request_new(engine, access, access->node, access->write);
    int64_t server = place - engine->in->object[object].first;
    request_add(engine, request, object, server, access->start, access->stop);
    access->pending = 1;
    request_start(engine, request);
}

void access_fetch(struct engine *engine, const struct access *reader, int64_t object, int64_t place, int64_t start,
                  int64_t stop, struct fetch *fetch)
{
    struct access *access = access_new(engine, reader->rank, reader->file, false, start, stop);
    access->fetch = fetch;
    access->node = reader->node;
    access->jointly = reader->jointly;
    pass(engine, access, object, place);
}

void access_write_through(struct engine *engine, struct access *writer, int64_t object, int64_t place, int64_t start,
                          int64_t stop)
{
    struct access *access = access_new(engine, writer->rank, writer->file, true, start, stop);
    access->through = writer;
    access->node = writer->node;
    access->jointly = writer->jointly;
    writer->pending++;
    pass(engine, access, object, place);
}

void access_flush(struct engine *engine, int64_t node, int64_t file, int64_t object, int64_t place, int64_t start,
                  int64_t stop, struct flush *flush)
{
    struct access *access = access_new(engine, node * engine->in->ranks_per_node, file, true, start, stop);
    access->flush = flush;
    pass(engine, access, object, place);
}

void access_close(struct engine *engine, struct access *access)
{
    int64_t stage = access->closing++;
    if (stage == 1 && decides(engine)) {
        close_file(engine, access);
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

static bool has_ended(const struct engine *engine, int64_t token)
{
    return token / BITS < engine->ended_words && engine->ended[token / BITS] >> token % BITS & 1;
}

static void set_ended(struct engine *engine, int64_t token)
{
    if (token / BITS >= engine->ended_words) {
        int64_t words = 2 * (token / BITS) + BITS;
        size_t had = (size_t)engine->ended_words * sizeof *engine->ended;
        engine->ended = grown(engine, engine->ended, had, (size_t)words * sizeof *engine->ended - had);
        engine->ended_words = words;
    }
    engine->ended[token / BITS] |= (uint64_t)1 << token % BITS;
}

/* The accesses that waited for it continue, and other moves begin. */
static void moved(struct engine *engine, int64_t token)
{
    engine->out->settled = engine->now;
    struct list ready = {0};
    set_ended(engine, token);
    for (struct link *one = engine->waiting.first, *next; one; one = next) {
        struct access *access = one->access;
        next = one->next;
        while (access->waits > 0 && has_ended(engine, access->wait[access->waits - 1]))
            access->waits--;
        if (access->waits == 0) {
            take_out(&engine->waiting, one);
            access->waited = engine->now - access->waited;
            append(&ready, one, access);
        }
    }
    struct caching_step step = {0};
    int result = caching_finished(engine->in->caching, token, engine->now, &step);
    enact(engine, access_new(engine, -1, -1, false, 0, 0), result, &step);
    for (struct link *one = ready.first, *next; one; one = next) {
        next = one->next;
        access_continue(engine, one->access);
    }
}

enum { CLOSED = 3 }; /* dirty pages flushed; then what is moved at a close; then what they wrote flushed */

void access_end(struct engine *engine, struct access *access)
{
    if (access->uncached > 0 && work(engine, access->uncached) > 0) {
        later(engine, processed(engine, access->node, work(engine, access->uncached)), 0, PROCESSED, access);
        return;
    }
    release_memory(engine, access->transfer);
    release_memory(engine, access->wait);
    access->transfer = NULL;
    access->wait = NULL;
    access->transfers = access->room = access->done = 0;
    struct access *after = access->after;
    struct part *part = access->part;
    access->after = NULL;
    access->part = NULL;
    if (part)
        part_written(engine, part, after);
    else
        begin_moves(engine, after);
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
    struct home *home = access->home;
    struct access *through = access->through;
    pool_give(&engine->accesses, access);
    if (through)
        access_ends_request(engine, through);
    else if (home)
        homeward_taken(engine, home);
    else if (fetch)
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
    /* RATIONALE: the replicas of a plan are files on mounts like the original's. The copies of a
     * policy are not. */
    bool cached = engine->in->client_cache && !engine->in->caching && row->node >= 0;
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

void access_continue(struct engine *engine, struct access *access)
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
    access_end(engine, access);
}

void access_ends_request(struct engine *engine, struct access *access)
{
    if (--access->pending == 0)
        access_continue(engine, access);
}

void access_processed(struct engine *engine, struct access *access)
{
    access->uncached = 0;
    access_end(engine, access);
}
