/* LiU: heads of segments on SSDs, so that reading them hides the disk's latency
 * (pdla/policies/liu.py describes it). */
#include "core.h"

enum { FLAG = 512, BITS = 64 }; /* bytes of a segment that have one flag: a sector */

/* A segment in the stack: the flags of what was requested; whether it is in the buffer or a ghost. */
struct segment {
    bool regular;
    uint64_t flags[];
};

struct name {
    int64_t file, server, number;
};

struct liu {
    struct caching_liu with;
    struct table *stack;    /* of each server: struct segment by file and number, the bottom first */
    struct table *lifted;   /* likewise: the segments whose heads may be on the SSD */
    struct table locality;  /* as last measured, by file, server and number */
    struct pool segments;
    int64_t words; /* of flags */
};

struct bounds {
    int64_t start, body, stop;
};

/* Where its head and its body begin, and where it ends; within the present size of the file. */
static struct bounds bounds_of(const struct caching *core, const struct liu *liu, struct name name)
{
    int64_t segment = liu->with.head + liu->with.body, size = caching_size(core, name.file, name.server);
    int64_t start = name.number * segment, stop = start + segment < size ? start + segment : size;
    stop = stop > start ? stop : start;
    return (struct bounds){start, start + liu->with.head < stop ? start + liu->with.head : stop, stop};
}

/* Where its head is, also if the file ends before that. */
static struct range head_of(const struct liu *liu, struct name name)
{
    int64_t start = name.number * (liu->with.head + liu->with.body);
    return (struct range){start, start + liu->with.head};
}

static int64_t ssd_of(const struct caching *core, int64_t server)
{
    return core->setup.home_servers + server;
}

static struct caching_wish wish_of(struct name name, int64_t start, int64_t stop, int64_t kind, const char *reason)
{
    return (struct caching_wish){.kind = kind, .file = name.file, .part = name.server, .start = start, .stop = stop,
                                 .node = -1, .reason = reason};
}

static void drop(struct caching *core, struct name name, int64_t start, int64_t stop, int64_t space,
                 const char *reason)
{
    struct caching_wish made = wish_of(name, start, stop, CACHING_DROP, reason);
    made.space = space;
    made.level = core->setup.space[space].level;
    wish(core, &made);
}

static struct entry *lifted(const struct liu *liu, struct name name)
{
    return table_find(&liu->lifted[name.server], name.file, name.number, 0, 0);
}

static bool is_worth_it(const struct liu *liu, struct name name)
{
    const struct entry *entry = table_find(&liu->locality, name.file, name.server, name.number, 0);
    return (entry ? entry->value : 0) >= liu->with.locality;
}

static void de_lift(struct caching *core, struct liu *liu, struct name name, const char *reason)
{
    table_remove(&liu->lifted[name.server], lifted(liu, name));
    struct range head = head_of(liu, name);
    drop(core, name, head.start, head.stop, ssd_of(core, name.server), reason);
}

/* Counts the segment as lifted, if the SSD has room for `length` bytes of it, now or at the next
 * attempt. */
static void enlist(struct caching *core, struct liu *liu, struct name name, int64_t length)
{
    const struct table *all = &liu->lifted[name.server];
    int64_t ssd = ssd_of(core, name.server);
    const struct entry *oldest = table_first(all);
    if (caching_room(core, ssd) < length && oldest) {
        struct name first = {oldest->key[0], name.server, oldest->key[1]};
        de_lift(core, liu, first, "the SSD is full");
    }
    if (caching_room(core, ssd) >= length)
        table_put(&core->memory, &liu->lifted[name.server], name.file, name.number, 0, 0);
}

/* Copies the head to the SSD, once all of it is in the buffer. */
static void lift(struct caching *core, struct liu *liu, struct name name)
{
    struct bounds at = bounds_of(core, liu, name);
    if (lifted(liu, name))
        return;
    int64_t count;
    const struct caching_extent *extent = see(core, name.file, name.server, at.start, at.body, &count);
    for (int64_t i = 0; i < count; i++)
        if (extent[i].space != name.server)
            return;
    enlist(core, liu, name, at.body - at.start);
    if (!lifted(liu, name))
        return;
    struct caching_wish made = wish_of(name, at.start, at.body, CACHING_PLACE, "its locality is high");
    made.space = ssd_of(core, name.server);
    made.fetch = 1;
    wish(core, &made);
}

/* The share of the segment that was requested so far. */
static double requested(const struct caching *core, const struct liu *liu, struct name name,
                        const struct segment *segment)
{
    struct bounds at = bounds_of(core, liu, name);
    int64_t flags = (at.stop - at.start + FLAG - 1) / FLAG, set = 0;
    for (int64_t i = 0; i < liu->words; i++)
        set += __builtin_popcountll(segment->flags[i]);
    return (double)set / (double)(flags > 1 ? flags : 1);
}

/* The segment leaves the stack and its locality is known now; if it is too low, de-lifts the segment. */
static void measure(struct caching *core, struct liu *liu, struct name name, struct entry *entry)
{
    struct segment *segment = entry->more;
    double locality = requested(core, liu, name, segment);
    table_remove(&liu->stack[name.server], entry);
    item_give(&liu->segments, segment);
    table_put(&core->memory, &liu->locality, name.file, name.server, name.number, 0)->value = locality;
    if (locality < liu->with.locality && lifted(liu, name))
        de_lift(core, liu, name, "its locality is low");
}

static void forget_ghosts(struct caching *core, struct liu *liu, int64_t server, int64_t most)
{
    struct entry *bottom;
    for (; most > 0 && (bottom = table_first(&liu->stack[server])); most--) {
        const struct segment *segment = bottom->more;
        if (segment->regular)
            return;
        measure(core, liu, (struct name){bottom->key[0], server, bottom->key[1]}, bottom);
    }
}

/* Lifts the segment, while its head is in the buffer, and removes it from there. */
static void evict(struct caching *core, struct liu *liu, struct name name, const char *reason)
{
    struct bounds at = bounds_of(core, liu, name);
    lift(core, liu, name);
    drop(core, name, at.start, at.stop, name.server, reason);
}

/* Evicts from the bottom of the stack until the buffer has room, then removes the ghosts at the
 * bottom. */
static void make_room(struct caching *core, struct liu *liu, int64_t server, int64_t length)
{
    const struct table *stack = &liu->stack[server];
    while (caching_room(core, server) < length) {
        struct entry *entry = table_first(stack);
        while (entry && !((struct segment *)entry->more)->regular)
            entry = table_next(stack, entry);
        if (!entry)
            return;
        struct name name = {entry->key[0], server, entry->key[1]};
        evict(core, liu, name, "the least recently used segment");
        measure(core, liu, name, entry);
        forget_ghosts(core, liu, server, stack->count);
    }
}

static struct segment *segment_new(struct caching *core, struct liu *liu, bool regular)
{
    struct segment *segment = item_take(&core->memory, &liu->segments);
    segment->regular = regular;
    for (int64_t i = 0; i < liu->words; i++)
        segment->flags[i] = 0;
    return segment;
}

static void load(struct caching *core, struct name name, int64_t start, int64_t stop)
{
    struct caching_wish made = wish_of(name, start, stop, CACHING_PLACE, "its locality is high");
    made.space = name.server;
    made.fetch = made.wait = 1;
    if (start < stop)
        wish(core, &made);
}

/* Loads the segment, if it is worth it and not in the buffer. */
static void wanted(struct caching *core, struct liu *liu, struct name name)
{
    struct table *stack = &liu->stack[name.server];
    struct entry *entry = table_find(stack, name.file, name.number, 0, 0);
    if (entry && ((struct segment *)entry->more)->regular) {
        lift(core, liu, name);
        return;
    }
    if (!is_worth_it(liu, name))
        return;
    struct bounds at = bounds_of(core, liu, name);
    make_room(core, liu, name.server, at.stop - at.start);
    if (caching_room(core, name.server) < at.stop - at.start)
        return;
    entry = table_put(&core->memory, stack, name.file, name.number, 0, 0);
    if (entry->more)
        item_give(&liu->segments, entry->more);
    entry->more = segment_new(core, liu, true);
    int64_t section = (liu->with.body + liu->with.sections - 1) / liu->with.sections;
    load(core, name, at.start, at.body);
    for (int64_t low = at.body; low < at.stop; low += section)
        load(core, name, low, low + section < at.stop ? low + section : at.stop);
}

/* Writes what is in the head to the SSD, if the segment is lifted, or worth it now: then these are its first bytes
 * there. The body stays on the disk, which writes it at the same time. */
static void written(struct caching *core, struct liu *liu, struct name name, int64_t start, int64_t stop)
{
    int64_t body = head_of(liu, name).stop;
    stop = stop < body ? stop : body;
    if (start >= stop)
        return;
    if (!lifted(liu, name) && is_worth_it(liu, name))
        enlist(core, liu, name, stop - start);
    if (!lifted(liu, name))
        return;
    struct caching_wish made = wish_of(name, start, stop, CACHING_PLACE, "in the head of a lifted segment");
    made.space = ssd_of(core, name.server);
    wish(core, &made);
}

/* Marks what is requested of the segment, and puts it on top of the stack, as a ghost if it is not
 * there. */
static void flag(struct caching *core, struct liu *liu, struct name name, int64_t start, int64_t stop)
{
    struct table *stack = &liu->stack[name.server];
    struct entry *entry = table_put(&core->memory, stack, name.file, name.number, 0, 0);
    int64_t segment = liu->with.head + liu->with.body, base = name.number * segment;
    if (!entry->more)
        entry->more = segment_new(core, liu, false);
    table_to_end(stack, entry);
    uint64_t *flags = ((struct segment *)entry->more)->flags;
    int64_t first = (start - base) / FLAG, last = (stop - 1 - base) / FLAG;
    for (int64_t word = first / BITS; word <= last / BITS; word++) {
        uint64_t from = word == first / BITS ? UINT64_MAX << first % BITS : UINT64_MAX;
        uint64_t upto = word == last / BITS ? UINT64_MAX >> (BITS - 1 - last % BITS) : UINT64_MAX;
        flags[word] |= from & upto;
    }
    int64_t most = liu->with.buffer / segment;
    if (stack->count > (most > 1 ? most : 1))
        forget_ghosts(core, liu, name.server, 1);
}

/* Brings what is known of a segment to the processor's cache, and the copy at `start`: what can come at the same time
 * is asked for before anything is waited for. */
static void fetch(const struct caching *core, const struct liu *liu, struct name name, struct part *part,
                  int64_t start)
{
    const struct table *tables[] = {&liu->stack[name.server], &liu->lifted[name.server]};
    for (int i = 0; i < 2; i++)
        table_fetch(tables[i], name.file, name.number, 0, 0);
    table_fetch(&liu->locality, name.file, name.server, name.number, 0);
    for (int i = 0; i < 2; i++)
        table_fetch_more(tables[i], name.file, name.number, 0, 0);
    table_fetch_more(&liu->locality, name.file, name.server, name.number, 0);
    overlapping_fetch_more(core, part, start);
    const struct entry *entry = table_find(tables[0], name.file, name.number, 0, 0);
    table_fetch_around(tables[0], entry);
    if (entry)
        __builtin_prefetch(entry->more);
    overlapping_fetch_around(core, part, start);
}

static int request(void *state, struct caching *core, const struct caching_request *request)
{
    struct liu *liu = state;
    int64_t size = liu->with.head + liu->with.body;
    for (int64_t i = 0; i < core->own.count; i++) {
        struct own own = ((struct own *)core->own.at)[i];
        for (int64_t number = own.start / size; number < (own.stop + size - 1) / size; number++) {
            int64_t low = number * size > own.start ? number * size : own.start;
            int64_t high = (number + 1) * size < own.stop ? (number + 1) * size : own.stop;
            struct name name = {request->file, own.part->number, number};
            fetch(core, liu, name, own.part, low);
            if (request->op == CACHING_WRITE)
                written(core, liu, name, low, high);
            else
                wanted(core, liu, name);
            flag(core, liu, name, low, high);
        }
    }
    return 0;
}

/* The segment leaves the buffer and becomes a ghost; what was requested of it until now counts from now on. */
static void retire(struct caching *core, struct liu *liu, struct name name, struct segment *segment)
{
    double share = requested(core, liu, name, segment);
    struct entry *known = table_put(&core->memory, &liu->locality, name.file, name.server, name.number, 0);
    known->value = known->value > share ? known->value : share;
    if (segment->regular)
        evict(core, liu, name, "the file is closed");
    segment->regular = false;
}

/* After a close or a synchronization, others may have written the file. */
static int close(void *state, struct caching *core, int64_t file)
{
    struct liu *liu = state;
    for (int64_t server = 0; server < core->setup.home_servers; server++)
        for (struct entry *one = table_first(&liu->stack[server]); one; one = table_next(&liu->stack[server], one))
            if (file < 0 || one->key[0] == file)
                retire(core, liu, (struct name){one->key[0], server, one->key[1]}, one->more);
    return 0;
}

static int begin(struct caching *core, const void *parameters)
{
    struct liu *liu = memory_take(&core->memory, sizeof *liu);
    size_t servers = (size_t)core->setup.home_servers;
    liu->with = *(const struct caching_liu *)parameters;
    liu->stack = memory_take(&core->memory, servers * sizeof *liu->stack);
    liu->lifted = memory_take(&core->memory, servers * sizeof *liu->lifted);
    liu->words = (liu->with.head + liu->with.body + (int64_t)FLAG * BITS - 1) / (FLAG * BITS);
    liu->segments.size = sizeof(struct segment) + (size_t)liu->words * sizeof(uint64_t);
    core->policy = (struct caching_policy){.state = liu, .request = request, .close = close};
    return CACHING_DONE;
}

int caching_use_liu(struct caching *core, const struct caching_liu *parameters)
{
    return use_policy(core, begin, parameters);
}
