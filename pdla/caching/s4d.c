/* S4D-Cache: SSD servers cache what the cost model finds critical (pdla/policies/s4d.py describes it; identifier.c
 * has the cost model). */
#include <stdlib.h>

#include "core.h"

struct cached { /* what was placed in the cache */
    double benefit;
    int64_t file, start, stop;
};

struct dirty {
    int64_t file, start, stop;
};

struct flagged {
    const struct entry *entry;
    int64_t number; /* in the order in which they were flagged */
};

struct s4d {
    struct identifier identifier;
    struct table flagged;          /* the CDT's C_flags: benefits, and the node that reads */
    struct vector heap, stay, low; /* struct cached: the least benefit first; struct caching_extent */
    struct vector dirty, order;    /* the DMT's D_flags: struct dirty; struct flagged */
};

/* ---- the copies by benefit ---- */

static bool is_less(const struct cached *one, const struct cached *other)
{
    if (one->benefit != other->benefit)
        return one->benefit < other->benefit;
    if (one->file != other->file)
        return one->file < other->file;
    return one->start != other->start ? one->start < other->start : one->stop < other->stop;
}

static void heap_push(struct caching *core, struct vector *heap, struct cached one)
{
    vector_add(&core->memory, heap, sizeof one);
    struct cached *at = heap->at;
    int64_t hole = heap->count - 1;
    for (; hole > 0 && is_less(&one, &at[(hole - 1) / 2]); hole = (hole - 1) / 2)
        at[hole] = at[(hole - 1) / 2];
    at[hole] = one;
}

static struct cached heap_pop(struct vector *heap)
{
    struct cached *at = heap->at, least = at[0], one = at[--heap->count];
    int64_t hole = 0, below;
    while ((below = 2 * hole + 1) < heap->count) {
        below += below + 1 < heap->count && is_less(&at[below + 1], &at[below]);
        if (!is_less(&at[below], &one))
            break;
        at[hole] = at[below];
        hole = below;
    }
    at[hole] = one;
    return least;
}

/* ---- the redirector (Algorithm 1) ---- */

static void drop(struct caching *core, int64_t file, int64_t start, int64_t stop, const char *reason)
{
    struct caching_wish made = {.kind = CACHING_DROP, .file = file, .part = -1, .start = start, .stop = stop,
                                .space = -1, .node = -1, .reason = reason};
    wish(core, &made);
}

/* Uses free space, or that of the least recently used clean copies; if both do not suffice, drops
 * nothing. */
static void make_room(struct caching *core, struct s4d *s4d, int64_t length)
{
    int64_t missing = length - caching_room(core, 0);
    struct caching_cursor cursor = {0};
    struct caching_extent victim;
    s4d->low.count = 0;
    while (missing > 0 && caching_coldest(core, 0, &cursor, &victim)) {
        struct caching_extent *into = vector_add(&core->memory, &s4d->low, sizeof *into);
        *into = victim;
        missing -= victim.stop - victim.start;
    }
    for (int64_t i = 0; missing <= 0 && i < s4d->low.count; i++) {
        victim = ((struct caching_extent *)s4d->low.at)[i];
        drop(core, victim.file, victim.start, victim.stop, "clean and least recently used");
    }
}

static int by_place(const void *one, const void *other)
{
    const struct dirty *a = one, *b = other;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->stop > b->stop) - (a->stop < b->stop);
}

static void sort_dirty(struct vector *dirty)
{
    struct dirty *at = dirty->at;
    int64_t kept = 0;
    if (dirty->count > 1)
        qsort(at, (size_t)dirty->count, sizeof *at, by_place);
    for (int64_t i = 0; i < dirty->count; i++)
        if (kept == 0 || by_place(&at[kept - 1], &at[i]) != 0)
            at[kept++] = at[i];
    dirty->count = kept;
}

static void soil(struct caching *core, struct s4d *s4d, int64_t file, int64_t start, int64_t stop)
{
    if (s4d->dirty.count > 0 && s4d->dirty.count == s4d->dirty.room)
        sort_dirty(&s4d->dirty);
    struct dirty *dirty = vector_add(&core->memory, &s4d->dirty, sizeof *dirty);
    *dirty = (struct dirty){file, start, stop};
}

static void miss(struct caching *core, struct s4d *s4d, const struct caching_request *request, double benefit,
                 int64_t start, int64_t stop)
{
    if (request->op == CACHING_WRITE) {
        make_room(core, s4d, stop - start);
        struct caching_wish made = {.kind = CACHING_PLACE, .file = request->file, .part = -1, .start = start,
                                    .stop = stop, .node = -1, .reason = "a critical write"};
        wish(core, &made);
        heap_push(core, &s4d->heap, (struct cached){benefit, request->file, start, stop});
    } else {
        struct entry *entry = table_put(&core->memory, &s4d->flagged, request->file, start, stop, 0);
        entry->value = benefit;
        entry->number = request->node;
    }
}

static int request(void *state, struct caching *core, const struct caching_request *request)
{
    struct s4d *s4d = state;
    const struct table *known = &s4d->identifier.critical;
    table_fetch(known, request->file, request->start, request->stop, 0);
    double saved = benefit(&core->memory, &s4d->identifier, request);
    table_fetch_more(known, request->file, request->start, request->stop, 0);
    /* What is seen stays until the policy looks again: the wishes below do not. */
    int64_t count;
    const struct caching_extent *extent = see(core, request->file, -1, request->start, request->stop, &count);
    const struct entry *entry = critical(&core->memory, &s4d->identifier, request, saved);
    for (int64_t i = 0; i < count; i++) {
        bool missed = extent[i].space == CACHING_HOME;
        if (request->op == CACHING_WRITE && (entry || !missed))
            soil(core, s4d, request->file, extent[i].start, extent[i].stop);
        if (missed && entry)
            miss(core, s4d, request, entry->value, extent[i].start, extent[i].stop);
    }
    return 0;
}

/* ---- the rebuilder ---- */

/* Drops clean copies that benefit less, those with the least benefit first. */
static void displace(struct caching *core, struct s4d *s4d, int64_t length, double benefit)
{
    s4d->stay.count = 0;
    while (caching_room(core, 0) < length && s4d->heap.count > 0 &&
           ((struct cached *)s4d->heap.at)->benefit < benefit) {
        struct cached one = heap_pop(&s4d->heap);
        int64_t count, i = 0;
        const struct caching_extent *extent = see(core, one.file, -1, one.start, one.stop, &count);
        while (i < count && !extent[i].dirty)
            i++;
        if (i < count) {
            struct cached *into = vector_add(&core->memory, &s4d->stay, sizeof *into);
            *into = one;
        } else {
            drop(core, one.file, one.start, one.stop, "another read benefits more");
        }
    }
    for (int64_t i = 0; i < s4d->stay.count; i++)
        heap_push(core, &s4d->heap, ((struct cached *)s4d->stay.at)[i]);
}

/* The largest benefit first; of equal ones, what was flagged first. */
static int by_benefit(const void *one, const void *other)
{
    const struct flagged *a = one, *b = other;
    if (a->entry->value != b->entry->value)
        return a->entry->value > b->entry->value ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int tick(void *state, struct caching *core)
{
    struct s4d *s4d = state;
    sort_dirty(&s4d->dirty);
    for (int64_t i = 0; i < s4d->dirty.count; i++) {
        struct dirty one = ((struct dirty *)s4d->dirty.at)[i];
        struct caching_wish made = {.kind = CACHING_WRITE_BACK, .file = one.file, .part = -1, .start = one.start,
                                    .stop = one.stop, .node = -1, .reason = "rebuilder: dirty"};
        wish(core, &made);
    }
    s4d->dirty.count = s4d->order.count = 0;
    for (const struct entry *entry = table_first(&s4d->flagged); entry; entry = table_next(&s4d->flagged, entry)) {
        struct flagged *into = vector_add(&core->memory, &s4d->order, sizeof *into);
        *into = (struct flagged){entry, s4d->order.count};
    }
    struct flagged *at = s4d->order.at;
    if (s4d->order.count > 1)
        qsort(at, (size_t)s4d->order.count, sizeof *at, by_benefit);
    for (int64_t i = 0; i < s4d->order.count; i++) {
        const struct entry *one = at[i].entry;
        int64_t start = one->key[1], stop = one->key[2];
        displace(core, s4d, stop - start, one->value);
        if (caching_room(core, 0) < stop - start)
            break;
        struct caching_wish made = {.kind = CACHING_PLACE, .file = one->key[0], .part = -1, .start = start,
                                    .stop = stop, .fetch = 1, .node = one->number,
                                    .reason = "rebuilder: a critical read"};
        wish(core, &made);
        heap_push(core, &s4d->heap, (struct cached){one->value, one->key[0], start, stop});
    }
    table_clear(&s4d->flagged);
    return 0;
}

static int begin(struct caching *core, const void *parameters)
{
    struct s4d *s4d = memory_take(&core->memory, sizeof *s4d);
    s4d->identifier = (struct identifier){.with = *(const struct caching_s4d *)parameters,
                                          .strip = core->setup.home_strip, .servers = core->setup.home_servers};
    core->policy = (struct caching_policy){.state = s4d, .request = request, .tick = tick};
    return CACHING_DONE;
}

int caching_use_s4d(struct caching *core, const struct caching_s4d *parameters)
{
    return use_policy(core, begin, parameters);
}
