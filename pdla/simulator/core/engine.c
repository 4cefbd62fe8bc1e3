/* The loop: takes the next event and calls the part that it concerns. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, SMALL = 1024 };

void *pool_take(struct engine *engine, struct pool *pool)
{
    void *item = pool->free;
    if (item) {
        pool->free = *(void **)item;
        return item;
    }
    if (pool->next == pool->end) {
        /* The first item of a chunk leads to the chunk before. */
        char *chunk = malloc(CHUNK * pool->size);
        if (!chunk)
            longjmp(engine->failed, SIM_NO_MEMORY);
        *(void **)chunk = pool->chunks;
        pool->chunks = chunk;
        pool->next = chunk + pool->size;
        pool->end = chunk + CHUNK * pool->size;
    }
    item = pool->next;
    pool->next += pool->size;
    return item;
}

void pool_give(struct pool *pool, void *item)
{
    *(void **)item = pool->free;
    pool->free = item;
}

static void pool_end(struct pool *pool)
{
    for (void *chunk = pool->chunks, *before; chunk; chunk = before) {
        before = *(void **)chunk;
        free(chunk);
    }
}

void *hold(struct engine *engine, size_t size)
{
    /* RATIONALE: the C library reuses small pieces that were freed at once, but not for calloc(). */
    size_t whole = sizeof(struct held) + size;
    struct held *held = whole <= SMALL ? malloc(whole) : calloc(1, whole);
    if (!held)
        longjmp(engine->failed, SIM_NO_MEMORY);
    if (whole <= SMALL)
        memset(held, 0, whole);
    held->next = engine->held;
    held->at = &engine->held;
    if (held->next)
        held->next->at = &held->next;
    engine->held = held;
    return held + 1;
}

void release_memory(struct engine *engine, void *memory)
{
    (void)engine;
    if (!memory)
        return;
    struct held *held = (struct held *)memory - 1;
    *held->at = held->next;
    if (held->next)
        held->next->at = held->at;
    free(held);
}

void later(struct engine *engine, double time, unsigned priority, enum kind kind, void *what)
{
    if (!events_add(&engine->events, time, priority, kind, what))
        longjmp(engine->failed, SIM_NO_MEMORY);
}

void note(struct engine *engine, enum sim_logged what, int64_t rank, int64_t server, int64_t address, int64_t length)
{
    if (engine->out->logged < engine->in->log_room)
        engine->in->log[engine->out->logged++] =
            (struct sim_event){engine->now, what, rank, server, address, length};
}

double processed(struct engine *engine, int64_t node, double seconds)
{
    int64_t cores = engine->in->cores;
    if (cores == 0 || seconds == 0)
        return engine->now + seconds;
    double **free = &engine->node[node].core_free, *first;
    if (!*free)
        *free = hold(engine, (size_t)cores * sizeof **free);
    first = *free;
    for (int64_t i = 1; i < cores; i++)
        first = (*free)[i] < *first ? &(*free)[i] : first;
    *first = (*first > engine->now ? *first : engine->now) + seconds;
    return *first;
}

static void tick(struct engine *engine)
{
    access_tick(engine);
    engine->ticks = engine->running > 0;
    if (engine->ticks)
        later(engine, engine->now + engine->in->period, 1, TICK, NULL);
}

/* Nothing happens any more, but for ticks, although programs are running. */
static bool is_stuck(const struct engine *engine)
{
    return engine->running > 0 && engine->events.count == (engine->ticks ? 1 : 0);
}

static void handle(struct engine *engine, const struct event *event)
{
    switch ((enum kind)event_kind(event)) {
    case RANK_READY:
        rank_ready(engine, event->what);
        break;
    case ARRIVAL:
        rank_arrives(engine, event->what);
        break;
    case CONNECTED:
        request_connected(engine, event->what);
        break;
    case TRANSFERRED:
        request_transferred(engine, event->what);
        break;
    case SERVED:
        sub_served(engine, event->what);
        break;
    case IDLE:
        server_next(engine, event->what);
        break;
    case SHUFFLED:
        collective_shuffled(engine, event->what);
        break;
    case CACHED:
        access_ends_request(engine, event->what);
        break;
    case FLUSHED:
        cache_flushed(engine, event->what);
        break;
    case PROCESSED:
        access_processed(engine, event->what);
        break;
    case HOMEWARD:
        homeward_due(engine, event->what);
        break;
    case TICK:
        tick(engine);
        break;
    }
}

/* Closes all files. What is done for that, and waited for, belongs to the run. */
static bool closes(struct engine *engine)
{
    if ((!decides(engine) && !engine->in->client_cache) || engine->closing)
        return false;
    engine->closing = true;
    struct access *access = access_new(engine, -1, -1, true, 0, INT64_MAX);
    access->ends = true;
    engine->running++;
    access_close(engine, access);
    return true;
}

static void run(struct engine *engine)
{
    const struct sim_input *in = engine->in;
    for (int64_t i = 0; i < in->servers; i++)
        if (!server_begin(&engine->server[i], &in->server[i], in->ranks, (uint64_t)in->seed << 32 | (uint64_t)i))
            longjmp(engine->failed, SIM_NO_MEMORY);
    engine->ticks = in->period > 0;
    if (engine->ticks)
        later(engine, in->period, 1, TICK, NULL);
    for (int64_t i = 0; i < in->ranks; i++)
        rank_begin(engine, &engine->rank[i]);
    struct event event;
    bool more = true;
    while (more) {
        while (engine->running > 0 || engine->closing || !decides(engine)) {
            if (is_stuck(engine) || !events_take(&engine->events, &event))
                break;
            bool ran = engine->running > 0;
            engine->now = event.time;
            handle(engine, &event);
            if (*engine->in->stop)
                longjmp(engine->failed, SIM_STOPPED);
            if (ran) {
                engine->out->closing += engine->closing ? engine->now - engine->out->seconds : 0;
                engine->out->seconds = engine->now;
            }
        }
        /* Releases ranks that wait for calls which nobody will make. */
        more = engine->running > 0 && collective_release(engine);
        engine->out->stuck += more;
        more = more || closes(engine);
    }
}

__attribute__((visibility("default"))) int sim_fits(const int64_t *sizes, int64_t count)
{
    const int64_t own[] = {sizeof(struct sim_server),   sizeof(struct sim_object),   sizeof(struct sim_map),
                           sizeof(struct sim_loop),     sizeof(struct sim_nest),     sizeof(struct sim_call),
                           sizeof(struct sim_item),     sizeof(struct sim_pattern),  sizeof(struct sim_part),
                           sizeof(struct sim_transfer), sizeof(struct sim_close),    sizeof(struct sim_event),
                           sizeof(struct sim_input),    sizeof(struct sim_output),   sizeof(struct caching_setup),
                           sizeof(struct caching_wish), sizeof(struct caching_step), sizeof(struct caching_transfer)};
    return (size_t)count * sizeof *sizes == sizeof own && memcmp(own, sizes, sizeof own) == 0;
}

__attribute__((visibility("default"))) int sim_run(const struct sim_input *in, struct sim_output *out)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return SIM_NO_MEMORY;
    engine->in = in;
    engine->out = out;
    engine->subs.size = sizeof(struct sub);
    engine->requests.size = sizeof(struct request);
    engine->accesses.size = sizeof(struct access);
    engine->calls.size = sizeof(struct call);
    engine->collectives.size = sizeof(struct collective);
    cache_begin(engine);
    engine->server = calloc((size_t)in->servers, sizeof *engine->server);
    engine->node = calloc((size_t)in->nodes, sizeof *engine->node);
    engine->rank = calloc((size_t)in->ranks, sizeof *engine->rank);
    engine->written = calloc((size_t)in->files + 1, sizeof *engine->written);
    bool begun = engine->server && engine->node && engine->rank && engine->written;
    int result = begun ? setjmp(engine->failed) : SIM_NO_MEMORY;
    if (result == SIM_DONE)
        run(engine);
    while (engine->held)
        release_memory(engine, engine->held + 1);
    for (int64_t i = 0; engine->server && i < in->servers; i++)
        server_end(&engine->server[i]);
    pool_end(&engine->subs);
    pool_end(&engine->requests);
    pool_end(&engine->accesses);
    pool_end(&engine->calls);
    pool_end(&engine->collectives);
    pool_end(&engine->fetches);
    pool_end(&engine->readings);
    free(engine->events.at);
    free(engine->server);
    free(engine->node);
    free(engine->rank);
    free(engine->written);
    free(engine);
    return result;
}
