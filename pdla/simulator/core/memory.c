/* What the memory of a server does for its device: its page cache, or the cache of the device itself.
 *
 * What a process reads in sequence is read ahead. A write returns as soon as memory has it; the device takes what was
 * written in the order of its addresses, when nothing is to be read or when there is no more room; what requests wrote
 * before what was written in the background.
 */
#include "engine.h"

bool memory_has(struct server *server, struct sub *sub)
{
    sub->skipped = sub->ahead = 0;
    if (sub->write || sub->process < 0 || server->spec->read_ahead == 0)
        return false;
    struct stream *stream = &server->stream[sub->process];
    bool in_sequence = stream->next == sub->address;
    stream->next = sub->address + sub->length;
    if (!in_sequence) {
        stream->stop = stream->next;
        return false;
    }
    if (stream->next <= stream->stop)
        return true;
    sub->skipped = stream->stop - sub->address;
    sub->ahead = server->spec->read_ahead;
    stream->stop = stream->next + sub->ahead;
    return false;
}

static bool has_room(const struct server *server, const struct sub *sub)
{
    return server->dirty == 0 || server->dirty + sub->length <= server->spec->memory;
}

static void take(struct engine *engine, struct server *server, struct sub *sub)
{
    struct sub *copy = pool_take(engine, &engine->subs);
    *copy = *sub;
    copy->request = NULL;
    server->dirty += sub->length;
    if (!sweep_put(&server->dirty_sweep[sub->background][copy->address < server->head], copy))
        longjmp(engine->failed, SIM_NO_MEMORY);
    sub_done(engine, sub);
}

bool memory_takes(struct engine *engine, struct server *server, struct sub *sub)
{
    if (!sub->write || server->spec->memory == 0)
        return false;
    /* Half of it is kept free of what is written in the background, which then waits for the device. */
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
    engine->out->settled = engine->now;
    pool_give(&engine->subs, copy);
    while (server->full.first && has_room(server, server->full.first))
        take(engine, server, line_take(&server->full));
}
