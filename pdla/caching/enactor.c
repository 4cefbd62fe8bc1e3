/* Carries out what a policy wishes, and serves requests. The rules of all policies are in README.md. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* ---- what a policy sees ---- */

int64_t part_size(const struct caching *core, int64_t size, int64_t server)
{
    int64_t strip = core->setup.home_strip, row = strip * core->setup.home_servers;
    int64_t rest = size % row - server * strip;
    rest = rest < 0 ? 0 : rest < strip ? rest : strip;
    return size / row * strip + rest;
}

double caching_now(const struct caching *core)
{
    return core->now;
}

int64_t caching_size(const struct caching *core, int64_t file, int64_t number)
{
    const struct part *whole = part_known(core, file, -1);
    int64_t size = whole ? whole->size : 0;
    return number < 0 ? size : part_size(core, size, number);
}

int64_t caching_room(const struct caching *core, int64_t space)
{
    return core->cache[space].addresses.left;
}

int64_t caching_peak(const struct caching *core, int64_t space)
{
    return core->cache[space].peak;
}

const struct caching_extent *see(struct caching *core, int64_t file, int64_t number, int64_t start, int64_t stop,
                                 int64_t *count)
{
    sources(core, part_known(core, file, number), start, stop, true, &core->seen);
    core->extents_seen.count = 0;
    for (int64_t i = 0; i < core->seen.count; i++) {
        const struct source *source = (struct source *)core->seen.at + i;
        struct caching_extent *extent = vector_add(&core->memory, &core->extents_seen, sizeof *extent);
        *extent = (struct caching_extent){file, number, source->start, source->stop,
                                          CACHING_HOME, false};
        if (source->copy) {
            const struct copy *copy = copy_at(core, source->copy);
            extent->space = group_of(core, copy)->space;
            extent->dirty = copy->dirty;
        }
    }
    *count = core->extents_seen.count;
    return core->extents_seen.at;
}

bool caching_coldest(const struct caching *core, int64_t space, struct caching_cursor *cursor,
                     struct caching_extent *extent)
{
    const struct copy *copy = clean_next(core, &core->cache[space], cursor);
    if (!copy)
        return false;
    const struct part *part = group_of(core, copy)->part;
    *extent = (struct caching_extent){part->file, part->number, copy->start, stop_of(copy), space, false};
    return true;
}

/* ---- wishes ---- */

static void refuse(struct caching *core, const struct caching_wish *wish, enum caching_why why, int64_t needed,
                   int64_t left)
{
    struct caching_refusal *refusal = vector_add(&core->memory, &core->refused, sizeof *refusal);
    *refusal = (struct caching_refusal){core->now, *wish, why, needed, left};
    int64_t value;
    memcpy(&value, &wish->value, sizeof value);
    table_put(&core->memory, &core->reasons, wish->kind, (intptr_t)wish->reason, value, 0)->number++;
}

int64_t caching_refused(const struct caching *core, int64_t number, struct caching_wish *wish)
{
    const struct entry *one = table_first(&core->reasons);
    while (one && number-- > 0)
        one = table_next(&core->reasons, one);
    if (!one)
        return 0;
    *wish = (struct caching_wish){.kind = one->key[0], .reason = (const char *)(intptr_t)one->key[1]};
    memcpy(&wish->value, &one->key[2], sizeof wish->value);
    return one->number;
}

static bool is_sound(struct caching *core, const struct caching_wish *wish)
{
    if ((wish->part < 0) == (core->setup.by_part != 0))
        refuse(core, wish, core->setup.by_part ? CACHING_NAMES_NO_PART : CACHING_NAMES_A_PART, 0, 0);
    else if (wish->start >= wish->stop)
        refuse(core, wish, CACHING_NO_BYTES, 0, 0);
    else
        return true;
    return false;
}

static void await_write_back(struct caching *core, struct job *job)
{
    if (job && job->kind == BACK)
        await(core, job);
}

/* Copies of [start, stop) are written elsewhere and end here, except in the level `spare`; a
 * write-back in progress must finish first. */
static void end_copies(struct caching *core, struct part *part, int64_t start, int64_t stop, int64_t spare)
{
    for (int64_t i = 0; i < part->levels; i++) {
        struct extents *extents = &part->extents[i];
        if (extents->level == spare)
            continue;
        core->ended.count = 0;
        carve(core, extents, start, stop, NULL, 0, &core->ended);
        for (int64_t j = 0; j < core->ended.count; j++) {
            uint32_t number = number_of(&core->ended, j);
            await_write_back(core, job_moving(core, copy_at(core, number)));
            for (const struct chain *one = keepers_of(core, number); one; one = one->next)
                await_write_back(core, job_known(core, one->token));
            copy_remove(core, extents, number);
        }
    }
}

static int64_t mover(const struct caching *core, const struct part *part, const struct caching_wish *wish)
{
    if (part->number >= 0)
        return part->number;
    if (wish->node >= 0)
        return wish->node;
    int64_t server = core->cache[wish->space].space->server;
    return core->request ? core->request->node : server < 0 ? 0 : server;
}

static bool has_room(struct caching *core, const struct caching_wish *wish)
{
    int64_t needed = 0, left = caching_room(core, wish->space);
    for (int64_t i = 0; i < core->place_gaps.count; i++) {
        const struct range *gap = (struct range *)core->place_gaps.at + i;
        needed += gap->stop - gap->start;
    }
    if (needed > left)
        refuse(core, wish, CACHING_NO_ROOM, needed, left);
    return needed <= left;
}

/* Takes addresses for [start, stop): one copy for each piece of them. */
static void add_copies(struct caching *core, struct part *part, int64_t level, struct range gap,
                       const struct caching_wish *wish, const struct job *job)
{
    struct cache *cache = &core->cache[wish->space];
    int64_t node = mover(core, part, wish);
    for (int64_t start = gap.start, address; start < gap.stop;) {
        int64_t most = ((int64_t)1 << LONGEST_BITS) - 1, left = gap.stop - start;
        int64_t length = addresses_take(core, &cache->addresses, left < most ? left : most, &address);
        struct copy *copy = copy_new(core, part, extents_made(part, level), wish->space, start, length, address, node);
        copy->dirty = !job;
        copy->moving = job ? job->number : 0;
        copy->urgent = job && job->kind == LOAD;
        start += length;
    }
    int64_t used = cache->space->capacity - cache->addresses.left;
    cache->peak = used > cache->peak ? used : cache->peak;
}

static bool stays(const struct caching *core, const struct copy *copy, int64_t space)
{
    return group_of(core, copy)->space == space && !is_incoming(copy);
}

/* Copies for what the request writes, if there are none yet in this space. */
static void place_written(struct caching *core, struct part *part, int64_t start, int64_t stop,
                          const struct caching_wish *wish)
{
    const struct caching_space *space = core->cache[wish->space].space;
    if (!space->writes) {
        refuse(core, wish, CACHING_NO_WRITES, 0, 0);
        return;
    }
    core->carved.count = core->place_gaps.count = 0;
    overlapping(core, extents_made(part, space->level), start, stop, &core->carved);
    int64_t kept = 0;
    for (int64_t i = 0; i < core->carved.count; i++)
        if (stays(core, copy_of(core, &core->carved, i), wish->space))
            ((uint32_t *)core->carved.at)[kept++] = number_of(&core->carved, i);
    core->carved.count = kept;
    between(core, &core->carved, start, stop, &core->place_gaps);
    if (!has_room(core, wish))
        return;
    for (int64_t i = 0; i < core->place_gaps.count; i++) {
        struct range gap = ((struct range *)core->place_gaps.at)[i];
        end_copies(core, part, gap.start, gap.stop, -1);
        add_copies(core, part, space->level, gap, wish, NULL);
    }
}

/* A copy of what the request reads, or of what is fetched. */
static void place_copy(struct caching *core, struct part *part, int64_t start, int64_t stop,
                       const struct caching_wish *wish)
{
    int64_t level = core->cache[wish->space].space->level;
    core->carved.count = core->place_gaps.count = 0;
    overlapping(core, extents_made(part, level), start, stop, &core->carved);
    between(core, &core->carved, start, stop, &core->place_gaps);
    if (core->place_gaps.count == 0 || !has_room(core, wish))
        return;
    enum move_kind kind = !wish->fetch ? PASS : wish->wait ? LOAD : FETCH;
    struct job *job = job_new(core, part, level, start, stop, mover(core, part, wish), kind);
    for (int64_t i = 0; i < core->place_gaps.count; i++)
        add_copies(core, part, level, ((struct range *)core->place_gaps.at)[i], wish, job);
    job_queue(core, job);
}

/* What of the wished bytes the request accesses. */
static void clip(const struct caching *core, const struct caching_wish *wish, int64_t *start, int64_t *stop)
{
    const struct own *own = core->own.at;
    for (int64_t i = 0; core->request && i < core->own.count; i++)
        if (own[i].part->file == wish->file && own[i].part->number == wish->part) {
            *start = own[i].start > *start ? own[i].start : *start;
            *stop = own[i].stop < *stop ? own[i].stop : *stop;
            return;
        }
    *stop = *start;
}

static void place(struct caching *core, const struct caching_wish *wish)
{
    int64_t start = wish->start, stop = wish->stop;
    bool writing = core->request && core->request->op == CACHING_WRITE && !wish->fetch;
    if (wish->fetch) {
        int64_t size = caching_size(core, wish->file, wish->part);
        start = start < 0 ? 0 : start;
        stop = stop < size ? stop : size;
    } else {
        clip(core, wish, &start, &stop);
    }
    bool exists = wish->space >= 0 && wish->space < core->setup.spaces;
    if (start >= stop)
        refuse(core, wish, wish->fetch ? CACHING_NOT_OF_THE_FILE : CACHING_NOT_OF_THE_REQUEST, 0, 0);
    else if (wish->space == CACHING_HOME && writing)
        end_copies(core, part_of(core, wish->file, wish->part), start, stop, -1);
    else if (!exists)
        refuse(core, wish, CACHING_NO_SUCH_SPACE, 0, 0);
    else if (core->setup.by_part && core->cache[wish->space].space->server != wish->part)
        refuse(core, wish, CACHING_OTHER_SERVER, 0, 0);
    else if (writing)
        place_written(core, part_of(core, wish->file, wish->part), start, stop, wish);
    else
        place_copy(core, part_of(core, wish->file, wish->part), start, stop, wish);
}

static bool is_in(const struct caching *core, const struct copy *copy, int64_t space)
{
    return space < 0 || group_of(core, copy)->space == space;
}

static void drop(struct caching *core, const struct caching_wish *wish)
{
    struct part *part = part_known(core, wish->file, wish->part);
    if (!part || !extents_of(part, wish->level) || wish->space == CACHING_NOWHERE)
        return;
    struct extents *extents = extents_made(part, wish->level);
    int64_t dirty = 0;
    core->carved.count = 0;
    carve(core, extents, wish->start, wish->stop, is_in, wish->space, &core->carved);
    for (int64_t i = 0; i < core->carved.count; i++) {
        uint32_t number = number_of(&core->carved, i);
        struct copy *copy = copy_at(core, number);
        if (copy->dirty) {
            copy->doomed = true;
            ((uint32_t *)core->carved.at)[dirty++] = number;
        } else {
            copy_remove(core, extents, number);
        }
    }
    core->carved.count = dirty;
    write_back(core, part, wish->level, &core->carved);
}

static bool is_dirty(const struct caching *core, const struct copy *copy, int64_t of)
{
    (void)core;
    (void)of;
    return copy->dirty;
}

/* Write-backs of one part are made together. */
static void write_backs(struct caching *core, const struct vector *wishes)
{
    const struct caching_wish *one = wishes->at;
    struct part *part = wishes->count > 0 ? part_known(core, one->file, one->part) : NULL;
    for (int64_t i = 0; part && i < part->levels; i++) {
        struct vector *copies = &core->carved, *until = &core->until;
        copies->count = until->count = 0;
        for (int64_t j = 0; j < wishes->count; j++) {
            carve(core, &part->extents[i], one[j].start, one[j].stop, is_dirty, 0, copies);
            int64_t *end = vector_add(&core->memory, until, sizeof *end);
            *end = copies->count;
        }
        write_back(core, part, part->extents[i].level, copies);
        for (int64_t j = 0, at = 0; j < wishes->count; j++)
            for (; at < ((int64_t *)until->at)[j]; at++)
                if (one[j].wait)
                    await(core, job_at(core, copy_of(core, copies, at)->moving));
    }
}

static void write_together(struct caching *core)
{
    write_backs(core, &core->together);
    core->together.count = 0;
}

static void wish_add(struct caching *core, struct vector *wishes, const struct caching_wish *wish)
{
    struct caching_wish *into = vector_add(&core->memory, wishes, sizeof *into);
    *into = *wish;
}

/* Carries a wish out; a write-back together with those of the same part after it. */
static void enact(struct caching *core, const struct caching_wish *wish)
{
    const struct caching_wish *one = core->together.at;
    if (wish->kind != CACHING_WRITE_BACK ||
        (core->together.count > 0 && (one->file != wish->file || one->part != wish->part)))
        write_together(core);
    if (!is_sound(core, wish))
        return;
    if (wish->kind == CACHING_PLACE)
        place(core, wish);
    else if (wish->kind == CACHING_DROP)
        drop(core, wish);
    else
        wish_add(core, &core->together, wish);
}

void wish(struct caching *core, const struct caching_wish *wish)
{
    if (!core->request || wish->kind != CACHING_WRITE_BACK)
        enact(core, wish);
    else if (wish->wait)
        refuse(core, wish, CACHING_WAITS_FOR_ITSELF, 0, 0);
    else
        wish_add(core, &core->later, wish);
}

/* ---- requests ---- */

static void own_add(struct caching *core, int64_t file, int64_t number, int64_t start, int64_t stop)
{
    struct own *own = vector_add(&core->memory, &core->own, sizeof *own);
    *own = (struct own){part_of(core, file, number), start, stop};
    overlapping_fetch(core, own->part, start);
}

/* What the request accesses; of parts, each is contiguous. */
static void find_own(struct caching *core, const struct caching_request *request)
{
    int64_t strip = core->setup.home_strip, servers = core->setup.home_servers;
    core->own.count = 0;
    if (!core->setup.by_part) {
        own_add(core, request->file, -1, request->start, request->stop);
        return;
    }
    int64_t first = request->start / strip, count = (request->stop + strip - 1) / strip - first;
    for (int64_t number = first; number < first + (count < servers ? count : servers); number++) {
        int64_t server = number % servers;
        own_add(core, request->file, server, part_size(core, request->start, server),
                part_size(core, request->stop, server));
    }
}

/* The copy is used by the present request. */
static void use(struct caching *core, uint32_t number)
{
    struct copy *copy = copy_at(core, number);
    if (used_of(copy) == core->clock)
        return;
    unlist(core, number);
    copy_used(core, copy);
    settle(core, number);
}

static void read(struct caching *core, struct part *part, int64_t start, int64_t stop, int64_t node)
{
    sources(core, part, start, stop, true, &core->sources);
    for (int64_t i = 0; i < core->sources.count; i++) {
        struct source source = ((struct source *)core->sources.at)[i];
        const struct copy *copy = source.copy ? copy_at(core, source.copy) : NULL;
        const struct caching_space *space = copy ? cache_of(core, copy)->space : NULL;
        if (copy && !space->reads) {
            core->carved.count = 0;
            carve(core, extents_made(part, space->level), source.start, source.stop, NULL, 0, &core->carved);
            write_back(core, part, space->level, &core->carved);
            for (int64_t j = 0; j < core->carved.count; j++)
                await(core, job_at(core, copy_of(core, &core->carved, j)->moving));
            copy = NULL;
        } else if (copy && is_incoming(copy)) {
            await(core, job_at(core, copy->moving));
        } else if (copy) {
            use(core, source.copy);
        }
        transfer(core, &core->foreground, CACHING_READ, part, copy, source.start, source.stop, node);
    }
}

/* The copy is written: a write-back in progress has older bytes. */
static void soil(struct caching *core, uint32_t number)
{
    struct copy *copy = copy_at(core, number);
    const struct job *job = job_moving(core, copy);
    unlist(core, number);
    copy_used(core, copy);
    copy->dirty = true;
    copy->moving = 0;
    if (job)
        keep(core, number, job->token);
    if (!copy->doomed)
        return;
    copy->doomed = false;
    const struct group *group = group_of(core, copy);
    struct caching_wish drop = {
        .kind = CACHING_DROP, .file = group->part->file, .part = group->part->number, .start = copy->start,
        .stop = stop_of(copy), .space = group->space, .level = core->cache[group->space].space->level, .node = -1,
        .reason = "wished before"};
    refuse(core, &drop, CACHING_WRITTEN_AGAIN, 0, 0);
}

static bool takes_writes(const struct caching *core, const struct copy *copy, int64_t of)
{
    (void)of;
    return !is_incoming(copy) && cache_of(core, copy)->space->writes;
}

/* Writes into the copies that exist, and to the original if there are none; all other copies end. */
static void write(struct caching *core, struct part *part, int64_t start, int64_t stop, int64_t node)
{
    core->write_gaps.count = 0;
    range_add(core, &core->write_gaps, start, stop);
    for (int64_t level = 0; level < part->levels; level++) {
        struct extents *extents = &part->extents[level];
        core->write_rest.count = 0;
        for (int64_t i = 0; i < core->write_gaps.count; i++) {
            struct range gap = ((struct range *)core->write_gaps.at)[i];
            core->carved.count = 0;
            carve(core, extents, gap.start, gap.stop, takes_writes, 0, &core->carved);
            for (int64_t j = 0; j < core->carved.count; j++) {
                const struct copy *copy = copy_of(core, &core->carved, j);
                end_copies(core, part, copy->start, stop_of(copy), extents->level);
                soil(core, number_of(&core->carved, j));
                transfer(core, &core->foreground, CACHING_WRITE, part, copy, copy->start, stop_of(copy), node);
            }
            between(core, &core->carved, gap.start, gap.stop, &core->write_rest);
        }
        struct vector gaps = core->write_gaps;
        core->write_gaps = core->write_rest;
        core->write_rest = gaps;
    }
    for (int64_t i = 0; i < core->write_gaps.count; i++) {
        struct range gap = ((struct range *)core->write_gaps.at)[i];
        end_copies(core, part, gap.start, gap.stop, -1);
        transfer(core, &core->foreground, CACHING_WRITE, part, NULL, gap.start, gap.stop, node);
    }
}

/* ---- the calls ---- */

struct called {
    struct caching *core;
    const struct caching_request *request;
    const struct caching_wish *wish;
    int64_t file, number, token, start, stop;
    double now;
    struct caching_step *step;
    begin_policy *begin;
    const void *parameters;
    const struct caching_extent **extent;
    int64_t *extents;
};

static void begin(struct caching *core, double now)
{
    core->now = now;
    core->after = 0;
    core->steps++;
    core->foreground.count = core->moves.count = core->moved.count = 0;
    core->wait.count = core->refused.count = 0;
}

static int end(const struct caching *core, int result, struct caching_step *step)
{
    *step = (struct caching_step){
        .foreground = core->foreground.at, .transfers = core->foreground.count, .move = core->moves.at,
        .moves = core->moves.count, .moved = core->moved.at, .wait = core->wait.at, .waits = core->wait.count,
        .refused = core->refused.at, .refusals = core->refused.count};
    return result;
}

static int called(struct caching *core, int (*body)(void *called), struct called *with)
{
    if (core->broken)
        return core->broken;
    with->core = core;
    int result = guarded(&core->memory, body, with);
    /* A policy that stops since a wish of its own had no memory has not stopped by itself. */
    core->broken = core->broken ? core->broken : result;
    return core->broken;
}

static int serve(void *context)
{
    struct called *with = context;
    struct caching *core = with->core;
    const struct caching_request *request = with->request;
    begin(core, request->time);
    if (++core->clock >> USED_BITS)
        return CACHING_NO_MEMORY;
    core->later.count = 0;
    find_own(core, request);
    core->request = request;
    int result = core->policy.request ? core->policy.request(core->policy.state, core, request) : 0;
    for (int64_t i = 0; result == 0 && i < core->own.count; i++) {
        struct own own = ((struct own *)core->own.at)[i];
        (request->op == CACHING_READ ? read : write)(core, own.part, own.start, own.stop, request->node);
    }
    struct part *whole = part_of(core, request->file, -1);
    if (request->op == CACHING_WRITE && request->stop > whole->size)
        whole->size = request->stop;
    core->request = NULL;
    core->after = core->clock;
    for (int64_t i = 0; i < core->later.count; i++)
        enact(core, (struct caching_wish *)core->later.at + i);
    write_together(core);
    return end(core, result ? CACHING_STOPPED : CACHING_DONE, with->step);
}

static int tick(void *context)
{
    struct called *with = context;
    struct caching *core = with->core;
    begin(core, with->now);
    int result = core->policy.tick ? core->policy.tick(core->policy.state, core) : 0;
    write_together(core);
    return end(core, result ? CACHING_STOPPED : CACHING_DONE, with->step);
}

static int close(void *context)
{
    struct called *with = context;
    struct caching *core = with->core;
    begin(core, with->now);
    int result = core->policy.close ? core->policy.close(core->policy.state, core, with->file) : 0;
    write_together(core);
    return end(core, result ? CACHING_STOPPED : CACHING_DONE, with->step);
}

static int finished(void *context)
{
    struct called *with = context;
    struct caching *core = with->core;
    begin(core, with->now);
    if (job_known(core, with->token))
        job_finish(core, with->token);
    return end(core, CACHING_DONE, with->step);
}

int caching_serve(struct caching *core, const struct caching_request *request, struct caching_step *step)
{
    return called(core, serve, &(struct called){.request = request, .step = step});
}

int caching_tick(struct caching *core, double now, struct caching_step *step)
{
    return called(core, tick, &(struct called){.now = now, .step = step});
}

int caching_close(struct caching *core, double now, int64_t file, struct caching_step *step)
{
    return called(core, close, &(struct called){.now = now, .file = file, .step = step});
}

int caching_finished(struct caching *core, int64_t token, double now, struct caching_step *step)
{
    return called(core, finished, &(struct called){.token = token, .now = now, .step = step});
}

static int made_wish(void *context)
{
    struct called *with = context;
    wish(with->core, with->wish);
    return CACHING_DONE;
}

int caching_wish(struct caching *core, const struct caching_wish *wish)
{
    return called(core, made_wish, &(struct called){.wish = wish});
}

static int seen(void *context)
{
    struct called *with = context;
    *with->extent = see(with->core, with->file, with->number, with->start, with->stop, with->extents);
    return CACHING_DONE;
}

int caching_extents(struct caching *core, int64_t file, int64_t part, int64_t start, int64_t stop,
                    const struct caching_extent **extent, int64_t *extents)
{
    return called(core, seen, &(struct called){.file = file, .number = part, .start = start, .stop = stop,
                                               .extent = extent, .extents = extents});
}

static int dirty(void *context)
{
    struct called *with = context;
    struct caching *core = with->core;
    core->extents_seen.count = 0;
    for (const struct entry *entry = table_first(&core->parts); entry; entry = table_next(&core->parts, entry)) {
        const struct part *part = entry->more;
        for (int64_t i = 0; i < part->levels; i++)
            for (struct place_in at = ordered_first(&core->nodes, &part->extents[i].copies); at.leaf;
                 at = ordered_next(at)) {
                const struct copy *copy = copy_at(core, at.leaf->value[at.index]);
                if (!copy->dirty)
                    continue;
                struct caching_extent *extent = vector_add(&core->memory, &core->extents_seen, sizeof *extent);
                *extent = (struct caching_extent){part->file, part->number, copy->start, stop_of(copy),
                                                  group_of(core, copy)->space, true};
            }
    }
    *with->extent = core->extents_seen.at;
    *with->extents = core->extents_seen.count;
    return CACHING_DONE;
}

int caching_dirty(struct caching *core, const struct caching_extent **extent, int64_t *extents)
{
    return guarded(&core->memory, dirty, &(struct called){.core = core, .extent = extent, .extents = extents});
}

static int sized(void *context)
{
    struct called *with = context;
    part_of(with->core, with->file, -1)->size = with->number;
    return CACHING_DONE;
}

int caching_file(struct caching *core, int64_t file, int64_t size)
{
    return called(core, sized, &(struct called){.file = file, .number = size});
}

/* ---- a core ---- */

static int begin_core(void *context)
{
    struct caching *core = context;
    const struct caching_setup *setup = &core->setup;
    core->cache = memory_take(&core->memory, (size_t)(setup->spaces + 1) * sizeof *core->cache);
    for (int64_t i = 0; i < setup->spaces; i++) {
        core->cache[i].space = &setup->space[i];
        core->cache[i].returned.wide = true;
        addresses_begin(&core->cache[i].addresses, setup->space[i].capacity);
    }
    return CACHING_DONE;
}

struct caching *caching_new(const struct caching_setup *setup)
{
    struct caching *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    core->memory.left = setup->limit;
    core->setup = *setup;
    nodes_begin(&core->nodes);
    core->copies.size = sizeof(struct copy);
    core->copies.beside = sizeof(struct links);
    core->groups.size = sizeof(struct group);
    core->chains.size = sizeof(struct chain);
    core->jobs.size = sizeof(struct job);
    core->spans.size = sizeof(struct span);
    core->queues.size = sizeof(struct queue);
    core->parts_memory.size = sizeof(struct part) + (size_t)setup->levels * sizeof(struct extents);
    if (guarded(&core->memory, begin_core, core) != CACHING_DONE) {
        caching_free(core);
        return NULL;
    }
    return core;
}

void caching_free(struct caching *core)
{
    if (core)
        memory_end(&core->memory);
    free(core);
}

int caching_use(struct caching *core, const struct caching_policy *policy)
{
    core->policy = *policy;
    return CACHING_DONE;
}

static int began(void *context)
{
    struct called *with = context;
    return with->begin(with->core, with->parameters);
}

int use_policy(struct caching *core, begin_policy *begin, const void *parameters)
{
    return called(core, began, &(struct called){.begin = begin, .parameters = parameters});
}
