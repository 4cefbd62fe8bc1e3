/* Which bytes of a file have a copy where. */
#include "core.h"

enum { RECENT = sizeof((struct caching *)0)->recent / sizeof(struct part *) };

static int64_t recent_of(int64_t file, int64_t number)
{
    return (int64_t)(((uint64_t)file * 5 + (uint64_t)number + 1) % RECENT);
}

struct part *part_known(const struct caching *core, int64_t file, int64_t number)
{
    struct part *recent = core->recent[recent_of(file, number)];
    if (recent && recent->file == file && recent->number == number)
        return recent;
    struct entry *entry = table_find(&core->parts, file, number, 0, 0);
    return entry ? entry->more : NULL;
}

struct part *part_of(struct caching *core, int64_t file, int64_t number)
{
    struct part *part = part_known(core, file, number);
    if (!part) {
        struct part *whole = number < 0 ? NULL : part_of(core, file, -1);
        part = item_take(&core->memory, &core->parts_memory);
        *part = (struct part){.file = file, .number = number, .whole = whole ? whole : part};
        table_put(&core->memory, &core->parts, file, number, 0, 0)->more = part;
    }
    core->recent[recent_of(file, number)] = part;
    return part;
}

struct extents *extents_made(struct part *part, int64_t level)
{
    for (int64_t i = 0; i < part->levels; i++)
        if (part->extents[i].level == level)
            return &part->extents[i];
    struct extents *extents = &part->extents[part->levels++];
    *extents = (struct extents){.level = level};
    return extents;
}

void range_add(struct caching *core, struct vector *ranges, int64_t start, int64_t stop)
{
    struct range *range = vector_add(&core->memory, ranges, sizeof *range);
    *range = (struct range){start, stop};
}

static void copy_add(struct caching *core, struct vector *copies, struct copy *copy)
{
    struct copy **into = vector_add(&core->memory, copies, sizeof *into);
    *into = copy;
}

void overlapping(struct caching *core, struct extents *extents, int64_t start, int64_t stop,
                 struct vector *copies)
{
    struct place_in at = ordered_upto(&extents->copies, start, 0);
    if (!at.leaf)
        at = ordered_first(&extents->copies);
    for (; at.leaf && at.leaf->pair[at.index].key < stop; at = ordered_next(at)) {
        struct copy *copy = at.leaf->pair[at.index].value;
        if (copy->stop > start)
            copy_add(core, copies, copy);
    }
}

void between(struct caching *core, const struct vector *copies, int64_t first, int64_t start, int64_t stop,
             struct vector *ranges)
{
    for (int64_t i = first; i < copies->count; i++) {
        const struct copy *copy = copy_of(copies, i);
        if (start < copy->start)
            range_add(core, ranges, start, copy->start);
        start = copy->stop > start ? copy->stop : start;
    }
    if (start < stop)
        range_add(core, ranges, start, stop);
}

static void list(struct caching *core, struct extents *extents, struct copy *copy)
{
    ordered_put(&core->memory, &core->nodes, &extents->copies, copy->start, 0, copy);
}

static struct copy *split(struct caching *core, struct extents *extents, struct copy *copy, int64_t at)
{
    struct copy *second = item_take(&core->memory, &core->copies);
    *second = *copy;
    second->start = at;
    second->address += at - copy->start;
    second->serial = ++core->serial;
    second->returned = false;
    second->busy = NULL;
    struct chain **end = &second->busy;
    for (const struct chain *one = copy->busy; one; one = one->next) {
        *end = item_take(&core->memory, &core->chains);
        **end = (struct chain){.token = one->token};
        end = &(*end)->next;
    }
    list(core, extents, second);
    copy->stop = at;
    settle(core, second);
    return second;
}

void carve(struct caching *core, struct extents *extents, int64_t start, int64_t stop, which_copy *which, int64_t of,
           struct vector *copies)
{
    int64_t first = copies->count, kept = first;
    overlapping(core, extents, start, stop, copies);
    for (int64_t i = first; i < copies->count; i++) {
        struct copy *copy = copy_of(copies, i);
        if (which && !which(core, copy, of))
            continue;
        if (copy->start < start)
            copy = split(core, extents, copy, start);
        if (copy->stop > stop)
            split(core, extents, copy, stop);
        ((struct copy **)copies->at)[kept++] = copy;
    }
    copies->count = kept;
}

struct copy *copy_new(struct caching *core, struct part *part, struct extents *extents, int64_t space, int64_t start,
                      int64_t length, int64_t address, int64_t node)
{
    struct copy *copy = item_take(&core->memory, &core->copies);
    *copy = (struct copy){.start = start, .stop = start + length, .address = address, .serial = ++core->serial,
                          .used = core->clock, .part = part, .node = (int32_t)node, .space = (int16_t)space};
    list(core, extents, copy);
    return copy;
}

static bool is_clean(const struct copy *copy)
{
    return !copy->dirty && !copy->incoming;
}

static bool is_before(const struct copy *one, int64_t used, int64_t serial)
{
    return one->used != used ? one->used < used : one->serial < serial;
}

static void insert_after(struct cache *cache, struct copy *colder, struct copy *copy)
{
    copy->returned = false;
    copy->colder = colder;
    copy->warmer = colder ? colder->warmer : cache->coldest;
    *(colder ? &colder->warmer : &cache->coldest) = copy;
    *(copy->warmer ? &copy->warmer->colder : &cache->warmest) = copy;
}

void settle(struct caching *core, struct copy *copy)
{
    struct cache *cache = &core->cache[copy->space];
    if (!is_clean(copy))
        return;
    struct copy *colder = cache->warmest;
    while (colder && colder->used == copy->used && colder->serial > copy->serial)
        colder = colder->colder;
    if (!colder || is_before(colder, copy->used, copy->serial)) {
        insert_after(cache, colder, copy);
    } else {
        ordered_put(&core->memory, &core->nodes, &cache->returned, copy->used, copy->serial, copy);
        copy->returned = true;
    }
}

void unlist(struct caching *core, struct copy *copy)
{
    struct cache *cache = &core->cache[copy->space];
    if (!is_clean(copy))
        return;
    if (copy->returned) {
        ordered_remove(&core->nodes, &cache->returned, copy->used, copy->serial);
        return;
    }
    *(copy->colder ? &copy->colder->warmer : &cache->coldest) = copy->warmer;
    *(copy->warmer ? &copy->warmer->colder : &cache->warmest) = copy->colder;
    cache->unlisted++;
}

struct copy *clean_next(struct cache *cache, struct caching_cursor *cursor)
{
    /* The list cannot be searched: if the copy at the cursor may be gone, it is walked from its begin. */
    const struct copy *at = cursor->unlisted == cache->unlisted ? cursor->at : NULL;
    struct copy *listed = at ? at->warmer : cache->coldest;
    for (; listed && is_before(listed, cursor->used, cursor->serial + 1); listed = listed->warmer)
        at = listed;
    struct place_in next = ordered_upto(&cache->returned, cursor->used, cursor->serial);
    next = next.leaf ? ordered_next(next) : ordered_first(&cache->returned);
    struct copy *found = next.leaf ? next.leaf->pair[next.index].value : NULL;
    if (listed && (!found || is_before(listed, found->used, found->serial)))
        at = found = listed;
    cursor->at = at;
    cursor->unlisted = cache->unlisted;
    cursor->used = found ? found->used : cursor->used;
    cursor->serial = found ? found->serial : cursor->serial;
    return found;
}

static bool is_readable(const struct caching *core, const struct copy *copy, bool arriving)
{
    bool here = !copy->incoming || (copy->urgent && arriving);
    return copy->dirty || (here && core->cache[copy->space].space->reads);
}

static void source_add(struct caching *core, struct vector *found, int64_t start, int64_t stop, struct copy *copy)
{
    struct source *source = vector_add(&core->memory, found, sizeof *source);
    *source = (struct source){start, stop, copy};
}

/* Both the sources before `second` and those from it on are in order: puts all in order. */
static void merge(struct caching *core, struct vector *found, int64_t second)
{
    const struct source *at = found->at;
    if (second == 0 || second == found->count || at[second - 1].start <= at[second].start)
        return;
    core->merged.count = 0;
    for (int64_t i = 0, j = second; i < second || j < found->count;) {
        bool first = j == found->count || (i < second && at[i].start <= at[j].start);
        struct source one = first ? at[i++] : at[j++];
        source_add(core, &core->merged, one.start, one.stop, one.copy);
    }
    struct vector merged = core->merged;
    core->merged = *found;
    *found = merged;
}

/* In one level: what it has of the gaps, which become those that it leaves. */
static void look_in(struct caching *core, struct extents *extents, bool arriving, struct vector *found)
{
    core->rest.count = 0;
    for (int64_t i = 0; i < core->gaps.count; i++) {
        struct range gap = ((struct range *)core->gaps.at)[i];
        core->found.count = 0;
        overlapping(core, extents, gap.start, gap.stop, &core->found);
        int64_t readable = 0;
        for (int64_t j = 0; j < core->found.count; j++) {
            struct copy *copy = copy_of(&core->found, j);
            if (!is_readable(core, copy, arriving))
                continue;
            source_add(core, found, copy->start > gap.start ? copy->start : gap.start,
                       copy->stop < gap.stop ? copy->stop : gap.stop, copy);
            ((struct copy **)core->found.at)[readable++] = copy;
        }
        core->found.count = readable;
        between(core, &core->found, 0, gap.start, gap.stop, &core->rest);
    }
    struct vector gaps = core->gaps;
    core->gaps = core->rest;
    core->rest = gaps;
}

void sources(struct caching *core, struct part *part, int64_t start, int64_t stop, bool arriving,
             struct vector *found)
{
    found->count = 0;
    core->gaps.count = 0;
    range_add(core, &core->gaps, start, stop);
    for (int64_t level = 0; part && part->levels > 0 && level < core->setup.levels; level++) {
        struct extents *extents = extents_of(part, level);
        int64_t second = found->count;
        if (extents)
            look_in(core, extents, arriving, found);
        merge(core, found, second);
    }
    int64_t second = found->count;
    for (int64_t i = 0; i < core->gaps.count; i++) {
        struct range gap = ((struct range *)core->gaps.at)[i];
        source_add(core, found, gap.start, gap.stop, NULL);
    }
    merge(core, found, second);
}
