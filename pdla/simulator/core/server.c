#include "server.h"

#include <stdlib.h>

#include "random.h"

void line_put(struct line *line, struct sub *sub)
{
    sub->behind = NULL;
    if (line->first)
        line->last->behind = sub;
    else
        line->first = sub;
    line->last = sub;
}

struct sub *line_take(struct line *line)
{
    struct sub *sub = line->first;
    if (sub)
        line->first = sub->behind;
    return sub;
}

static bool nearer(const struct sub *a, const struct sub *b)
{
    return a->address < b->address || (a->address == b->address && a->arrived < b->arrived);
}

bool sweep_put(struct sweep *sweep, struct sub *sub)
{
    if (sweep->count == sweep->room) {
        size_t room = sweep->room ? 2 * sweep->room : 64;
        struct sub **at = realloc(sweep->at, room * sizeof(struct sub *));
        if (!at)
            return false;
        sweep->at = at;
        sweep->room = room;
    }
    size_t place = sweep->count++;
    for (size_t parent; place > 0 && nearer(sub, sweep->at[parent = (place - 1) / 2]); place = parent)
        sweep->at[place] = sweep->at[parent];
    sweep->at[place] = sub;
    return true;
}

static struct sub *sweep_take(struct sweep *sweep)
{
    struct sub *taken = sweep->at[0], *moved = sweep->at[--sweep->count];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < sweep->count; place = child) {
        if (child + 1 < sweep->count && nearer(sweep->at[child + 1], sweep->at[child]))
            child++;
        if (!nearer(sweep->at[child], moved))
            break;
        sweep->at[place] = sweep->at[child];
    }
    sweep->at[place] = moved;
    return taken;
}

bool server_begin(struct server *server, const struct sim_server *spec, int64_t processes, uint64_t seed)
{
    *server = (struct server){.spec = spec, .active = -1, .first_turn = -1, .random = seed};
    if (spec->queue == SIM_CFQ)
        server->process = calloc((size_t)processes, sizeof *server->process);
    if (spec->read_ahead > 0)
        server->stream = malloc((size_t)processes * sizeof *server->stream);
    if (spec->overlap)
        server->read_to = malloc((size_t)processes * sizeof *server->read_to);
    if (spec->clients_points > 0)
        server->known = calloc((size_t)processes / 64 + 1, sizeof *server->known);
    for (int64_t i = 0; server->stream && i < processes; i++)
        server->stream[i] = (struct stream){.next = -1, .front = -1};
    for (int64_t i = 0; server->read_to && i < processes; i++)
        server->read_to[i] = -1;
    return (!spec->overlap || server->read_to) && (spec->queue != SIM_CFQ || server->process)
        && (spec->read_ahead == 0 || server->stream) && (spec->clients_points == 0 || server->known);
}

void server_end(struct server *server)
{
    free(server->process);
    free(server->stream);
    free(server->read_to);
    free(server->known);
    free(server->flight);
    free(server->sweep[0].at);
    free(server->sweep[1].at);
    free(server->background_sweep[0].at);
    free(server->background_sweep[1].at);
    for (int i = 0; i < 4; i++)
        free(server->dirty_sweep[i / 2][i % 2].at);
}

static void turn_put(struct server *server, int64_t process)
{
    server->process[process].after = -1;
    if (server->first_turn < 0)
        server->first_turn = process;
    else
        server->process[server->last_turn].after = process;
    server->last_turn = process;
}

static bool queue_put(struct server *server, struct sub *sub)
{
    server->inside++;
    if (server->spec->queue == SIM_ELEVATOR)
        return sweep_put(&server->sweep[sub->address < server->head], sub);
    if (server->spec->queue == SIM_CFQ) {
        struct line *own = &server->process[sub->process].line;
        if (!own->first && sub->process != server->active)
            turn_put(server, sub->process);
        line_put(own, sub);
    } else {
        line_put(&server->line, sub);
    }
    return true;
}

bool server_put(struct server *server, struct sub *sub)
{
    int64_t depth = server->spec->depth;
    if (!sub->background && (depth == 0 || server->inside < depth))
        return queue_put(server, sub);
    if (sub->background && server->spec->queue == SIM_ELEVATOR)
        return sweep_put(&server->background_sweep[sub->address < server->head], sub);
    line_put(sub->background ? &server->background : &server->outside, sub);
    return true;
}

/* The slice of a process ends with its time, or when the process has no more requests. If it still
 * has some, it gets another turn. */
static enum taken take_slice(struct server *server, double now, struct sub **sub, double *until)
{
    if (server->active >= 0) {
        struct line *own = &server->process[server->active].line;
        double idle_end = server->last_done + server->spec->idle;
        idle_end = idle_end < server->slice_end ? idle_end : server->slice_end;
        if (own->first && now < server->slice_end) {
            *sub = line_take(own);
            return TAKEN;
        }
        if (!own->first && now < idle_end) {
            *until = idle_end;
            return WAIT;
        }
        if (own->first)
            turn_put(server, server->active);
        server->active = -1;
    }
    if (server->first_turn < 0)
        return NOTHING;
    server->active = server->first_turn;
    server->first_turn = server->process[server->active].after;
    server->slice_end = now + server->spec->slice;
    *sub = line_take(&server->process[server->active].line);
    return TAKEN;
}

static struct sub *take_swept(struct sweep sweep[2])
{
    if (sweep[0].count == 0 && sweep[1].count > 0) {
        struct sweep swept = sweep[0];
        sweep[0] = sweep[1];
        sweep[1] = swept;
    }
    return sweep[0].count ? sweep_take(&sweep[0]) : NULL;
}

static enum taken take_foreground(struct server *server, double now, struct sub **sub, double *until)
{
    switch (server->spec->queue) {
    case SIM_CFQ:
        return take_slice(server, now, sub, until);
    case SIM_ELEVATOR:
        *sub = take_swept(server->sweep);
        break;
    default:
        *sub = line_take(&server->line);
    }
    return *sub ? TAKEN : NOTHING;
}

static struct sub *take_background(struct server *server)
{
    struct sub *sub = take_swept(server->dirty_sweep[1]);
    if (!sub)
        sub = take_swept(server->background_sweep);
    return sub ? sub : line_take(&server->background);
}

static bool waits(const struct sweep sweep[2])
{
    return sweep[0].count > 0 || sweep[1].count > 0;
}

static bool background_waits(const struct server *server)
{
    return server->background.first || waits(server->background_sweep) || waits(server->dirty_sweep[1]);
}

static bool foreground_waits(const struct server *server)
{
    return server->inside > 0 || waits(server->dirty_sweep[0]);
}

enum taken server_take(struct server *server, double now, struct sub **sub, double *until)
{
    *sub = server->spec->share > 0 && server->owed >= 0 ? take_background(server) : NULL;
    for (int i = 0; i < 2 && !*sub && server->full.first; i++)
        *sub = take_swept(server->dirty_sweep[i]);
    if (*sub)
        return TAKEN;
    enum taken taken = take_foreground(server, now, sub, until);
    if (taken != NOTHING)
        return taken;
    *sub = take_swept(server->dirty_sweep[0]);
    if (!*sub)
        *sub = take_background(server);
    return *sub ? TAKEN : NOTHING;
}

/* Compares what the background has had of the device with what requests have had, while requests
 * waited. */
static void account(struct server *server, const struct sub *sub, double seconds)
{
    double share = server->spec->share;
    if (!sub->background)
        server->owed += share * seconds;
    else if (foreground_waits(server))
        server->owed -= (1 - share) * seconds;
    /* RATIONALE: the background is owed nothing for time in which it had nothing to do. */
    if (server->owed > 0 && !background_waits(server))
        server->owed = 0;
}

bool server_served(struct server *server, const struct sub *sub, double now)
{
    account(server, sub, now - sub->started);
    if (sub->background || !sub->request)
        return true;
    server->inside--;
    return !server->outside.first || queue_put(server, line_take(&server->outside));
}

/* A curve: linear between its points, constant beyond them (pdla.layouts.devices.startup). */
static double on_curve(const struct sim_input *in, int64_t first, int64_t points, int64_t place)
{
    const int64_t *at = in->curve_place + first;
    const double *seconds = in->curve_seconds + first;
    int64_t after = 0;
    while (after < points && at[after] <= place)
        after++;
    if (after == 0)
        return seconds[0];
    if (after == points)
        return seconds[points - 1];
    double share = (double)(place - at[after - 1]) / (double)(at[after] - at[after - 1]);
    return seconds[after - 1] + (seconds[after] - seconds[after - 1]) * share;
}

/* RATIONALE: if start-up and transfer overlap, requests are counted and no head moves. Reading
 * ahead makes one request of several, for each reader by itself: to continue where another reader
 * stopped is not free (pdla.layouts.contiguity). */
static int64_t distance_to(struct server *server, const struct sub *sub, int64_t address, int64_t length)
{
    /* Before the first request the place of the head is not known: the head is assumed to be at
     * that request. */
    int64_t distance = server->moved ? llabs(address - server->head) : 0;
    if (!server->read_to)
        return distance;
    if (sub->write)
        return sub->further ? INT64_MAX : distance;
    int64_t *read_to = &server->read_to[sub->process < 0 ? 0 : sub->process];
    bool goes_on = *read_to == address && !sub->further;
    *read_to = address + length;
    return goes_on || !server->moved ? 0 : distance == 0 ? INT64_MAX : distance;
}

double server_handles(struct server *server, const struct sim_input *in, int64_t rank)
{
    const struct sim_server *spec = server->spec;
    if (spec->clients_points == 0)
        return 0;
    if (rank >= 0 && !(server->known[rank / 64] >> rank % 64 & 1)) {
        server->known[rank / 64] |= UINT64_C(1) << rank % 64;
        server->clients++;
    }
    return on_curve(in, spec->clients_curve, spec->clients_points, server->clients);
}

double server_serve(struct server *server, const struct sim_input *in, const struct sub *sub, double now,
                    int64_t *moved)
{
    const struct sim_server *spec = server->spec;
    int64_t address = sub->address + sub->skipped, length = sub->length - sub->skipped + sub->ahead;
    int64_t distance = distance_to(server, sub, address, length);
    *moved = server->moved ? llabs(address - server->head) : 0;
    double start = on_curve(in, spec->curve[sub->write], spec->points[sub->write], distance);
    if (distance > 0 && spec->rotation > 0)
        start += spec->rotation * random_share(&server->random);
    server->moved = true;
    server->head = address + length;
    double transfer = (double)length * spec->seconds_per_byte[sub->write];
    /* Channels start up in parallel and share the way to and from the device. */
    double ready = spec->overlap ? now : now + start;
    double begin = ready > server->bus_free ? ready : server->bus_free;
    server->bus_free = begin + transfer;
    return spec->overlap && now + start > server->bus_free ? now + start : server->bus_free;
}
