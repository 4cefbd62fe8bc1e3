/* A request: connections from its node to its servers, then the links, then the devices (for reads
 * the devices come first).
 *
 * Each step ends when the last of those who take part is done, as in the model (pdla.layouts.cost).
 * A node or a server makes one connection at a time, in the order of the requests, and a link moves
 * bytes likewise. So these times are known in advance and need no event for each server. Background
 * requests are known to the devices only. */
#include "engine.h"

static double latest(double a, double b)
{
    return a > b ? a : b;
}

struct request *request_new(struct engine *engine, struct access *access, int64_t node, bool write)
{
    struct request *request = pool_take(engine, &engine->requests);
    *request = (struct request){.access = access, .node = node, .write = write, .background = access->background};
    return request;
}

static void add_sub(struct engine *engine, struct request *request, int64_t object, int64_t place, int64_t start,
                    int64_t length, bool further)
{
    const struct sim_input *in = engine->in;
    if (request->cached) {
        struct access *access = request->access;
        access->node = request->node;
        cache_serves(engine, access, object, place, request->write, start, start + length);
        return;
    }
    struct sub *last = request->last;
    int64_t server = in->server_of[place], address = in->bases[place] + start;
    server = request->write ? in->server[server].writer : server;
    request->bytes += length;
    if (!further && last && last->server == server && last->address + last->length == address) {
        last->length += length;
        return;
    }
    struct sub *sub = pool_take(engine, &engine->subs);
    int64_t rank = request->access->rank;
    *sub = (struct sub){.request = request, .server = server, .address = address, .length = length,
                        .process = request->background ? -1 : rank < 0 ? 0 : rank, .write = request->write,
                        .background = request->background, .further = further};
    if (last)
        last->sibling = sub;
    else
        request->first = sub;
    request->last = sub;
    request->subs++;
}

/* Of the first `z` bytes of a cycle: those on a server before whose strip there are `before` bytes.
 */
static int64_t share(int64_t z, int64_t before, int64_t strip)
{
    int64_t held = z - before;
    return held < 0 ? 0 : held < strip ? held : strip;
}

/* A range inside a section is one range on each of its servers (pdla.layouts.striping). */
static void add_section(struct engine *engine, struct request *request, int64_t number, int64_t section, int64_t start,
                        int64_t stop)
{
    const struct sim_input *in = engine->in;
    const struct sim_object *object = &in->object[number];
    const int64_t *strip = in->strips + object->strips, *before = strip + object->width;
    int64_t width = object->width, cycle = before[width - 1] + strip[width - 1];
    int64_t cycles = object->section / cycle + (object->section % cycle > 0);
    int64_t first = object->first + section % object->groups * width, row = section / object->groups * cycles;
    int64_t from = start / cycle, from_z = start % cycle, to = stop / cycle, to_z = stop % cycle;
    int64_t j = 0, servers = width;
    if (strip[0] * width == cycle && strip[0] == strip[width - 1]) {
        int64_t last = (stop - 1) / strip[0];
        j = start / strip[0] % width;
        servers = last - start / strip[0] + 1;
        servers = servers < width ? servers : width;
    }
    for (; servers > 0; servers--, j = j + 1 < width ? j + 1 : 0) {
        int64_t low = from * strip[j] + share(from_z, before[j], strip[j]);
        int64_t high = to * strip[j] + share(to_z, before[j], strip[j]);
        for (int64_t at = low, next; at < high; at = next) {
            int64_t end = at - at % strip[j] + strip[j];
            next = object->strip_by_strip && end < high ? end : high;
            add_sub(engine, request, number, first + j, row * strip[j] + at, next - at, at > low);
        }
    }
}

void request_add(struct engine *engine, struct request *request, int64_t number, int64_t server, int64_t start,
                 int64_t stop)
{
    const struct sim_object *object = &engine->in->object[number];
    if (!request->cached)
        engine->out->space_bytes[4 * object->space + 2 * request->background + request->write] += stop - start;
    if (server >= 0) {
        add_sub(engine, request, number, object->first + server, start, stop - start, false);
        return;
    }
    while (start < stop) {
        int64_t section = start / object->section, y = start % object->section;
        int64_t length = object->section - y < stop - start ? object->section - y : stop - start;
        add_section(engine, request, number, section, y, y + length);
        start += length;
    }
}

/* Whether a sub-request crosses the network. */
static bool is_remote(const struct engine *engine, const struct request *request, const struct sub *sub)
{
    return request->node >= 0 && engine->server[sub->server].spec->node != request->node;
}

static struct server *host_of(struct engine *engine, const struct sub *sub)
{
    return &engine->server[engine->server[sub->server].spec->host];
}

static void queue(struct engine *engine, struct request *request)
{
    request->pending = request->subs;
    for (struct sub *sub = request->first, *next; sub; sub = next) {
        struct server *server = &engine->server[sub->server];
        next = sub->sibling;
        sub->arrived = engine->now;
        note(engine, SIM_QUEUED, sub->process, sub->server, sub->address, sub->length);
        if (!memory_has(engine, server, sub) && !memory_takes(engine, server, sub) && !server_put(server, sub))
            longjmp(engine->failed, SIM_NO_MEMORY);
        server_next(engine, server);
    }
}

static void transfer(struct engine *engine, struct request *request)
{
    double v = engine->in->seconds_per_byte, done = engine->now;
    if (v > 0 && request->node >= 0) {
        /* Out of the node and into the servers, or the other way. */
        bool out = request->write;
        int64_t bytes = 0;
        for (const struct sub *sub = request->first; sub; sub = sub->sibling) {
            if (!is_remote(engine, request, sub))
                continue;
            double *link = &host_of(engine, sub)->link_free[out];
            *link = latest(*link, engine->now) + (double)sub->length * v;
            done = latest(done, *link);
            bytes += sub->length;
        }
        double *link = &engine->node[request->node].link_free[!out];
        if (bytes > 0)
            *link = latest(*link, engine->now) + (double)bytes * v;
        done = bytes > 0 ? latest(done, *link) : done;
    }
    if (done > engine->now)
        later(engine, done, request->background, TRANSFERRED, request);
    else
        request_transferred(engine, request);
}

static void finish(struct engine *engine, struct request *request)
{
    struct access *access = request->access;
    for (struct sub *sub = request->first, *next; sub; sub = next) {
        next = sub->sibling;
        pool_give(&engine->subs, sub);
    }
    pool_give(&engine->requests, request);
    access_ends_request(engine, access);
}

void request_start(struct engine *engine, struct request *request)
{
    if (request->cached) {
        finish(engine, request);
        return;
    }
    double e = engine->in->connect, done = engine->now;
    int64_t rank = request->access->rank;
    engine->out->requests++;
    engine->out->subrequests += request->subs;
    if (request->node >= 0) {
        struct node *node = &engine->node[request->node];
        for (const struct sub *sub = request->first; sub; sub = sub->sibling) {
            if (!is_remote(engine, request, sub))
                continue;
            struct server *server = host_of(engine, sub);
            double handled = server_handles(server, engine->in, rank);
            server->accept_free = latest(server->accept_free, engine->now) + e + handled;
            node->connect_free = latest(node->connect_free, engine->now) + e;
            done = latest(done, latest(server->accept_free, node->connect_free));
        }
    }
    if (done > engine->now)
        later(engine, done, request->background, CONNECTED, request);
    else
        request_connected(engine, request);
}

void request_connected(struct engine *engine, struct request *request)
{
    if (request->write)
        transfer(engine, request);
    else
        queue(engine, request);
}

void request_transferred(struct engine *engine, struct request *request)
{
    if (request->write && !request->served)
        queue(engine, request);
    else
        finish(engine, request);
}

void sub_served(struct engine *engine, struct sub *sub)
{
    struct server *server = &engine->server[sub->server];
    bool is_copy = !sub->request;
    server->busy--;
    server->last_done = engine->now;
    note(engine, SIM_SERVED, sub->process, sub->server, sub->address, sub->length);
    if (!server_served(server, sub, engine->now))
        longjmp(engine->failed, SIM_NO_MEMORY);
    if (is_copy)
        memory_cleaned(engine, server, sub);
    if (!is_copy && sub->ahead > 0)
        memory_was_read(engine, server, sub);
    server_next(engine, server);
    if (!is_copy)
        sub_done(engine, sub);
}

void sub_done(struct engine *engine, struct sub *sub)
{
    struct request *request = sub->request;
    const struct access *access = request->access;
    if (access->token == 0 && !access->home && access->file >= 0) {
        engine->out->file_latency[access->file] += access->waited + engine->now - sub->arrived;
        engine->out->file_requests[access->file]++;
    }
    if (--request->pending > 0)
        return;
    request->served = true;
    if (request->write)
        finish(engine, request);
    else
        transfer(engine, request);
}

void server_next(struct engine *engine, struct server *server)
{
    struct sub *sub;
    double until;
    while (server->busy < server->spec->channels) {
        enum taken taken = server_take(server, engine->now, &sub, &until);
        if (taken == WAIT)
            later(engine, until, 0, IDLE, server);
        if (taken != TAKEN)
            return;
        int64_t moved;
        double done = server_serve(server, engine->in, sub, engine->now, &moved);
        sub->started = engine->now;
        server->busy++;
        engine->out->server_distance[sub->server] += (double)moved;
        engine->out->server_busy[sub->server] += done - engine->now;
        engine->out->server_waited[sub->server] += engine->now - sub->arrived;
        engine->out->server_served[sub->server]++;
        note(engine, SIM_STARTED, sub->process, sub->server, sub->address, sub->length);
        later(engine, done, sub->background, SERVED, sub);
    }
}
