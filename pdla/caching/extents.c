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

static void copy_add(struct caching *core, struct vector *copies, uint32_t number)
{
    uint32_t *into = vector_add(&core->memory, copies, sizeof *into);
    *into = number;
}

void overlapping_fetch(const struct caching *core, struct part *part, int64_t start)
{
    for (int64_t i = 0; i < part->levels; i++)
        ordered_fetch(&core->nodes, &part->extents[i].copies, start, 0);
}

/* The last copy that does not begin after `start`; 0: there is none, or the copies are so few that the processor's
 * cache has them, and a search would cost more than it saves. */
static uint32_t copy_upto(const struct caching *core, struct extents *extents, int64_t start)
{
    struct place_in at = {0};
    if (extents->copies.height > 1)
        at = ordered_upto(&core->nodes, &extents->copies, start, 0);
    return at.leaf ? at.leaf->value[at.index] : 0;
}

void overlapping_fetch_more(const struct caching *core, struct part *part, int64_t start)
{
    for (int64_t i = 0; i < part->levels; i++) {
        uint32_t number = copy_upto(core, &part->extents[i], start);
        if (number)
            __builtin_prefetch(copy_at(core, number));
    }
}

/* RATIONALE: unlist() writes beside the neighbours of a clean copy. Stores wait for their lines one after the other,
 * and what follows waits for room behind them. */
static void fetch_around(const struct caching *core, uint32_t number)
{
    const struct copy *copy = copy_at(core, number);
    if (copy->moving) {
        __builtin_prefetch(job_at(core, copy->moving));
    } else if (!copy->dirty && !copy->returned) {
        struct links links = *links_of(core, number);
        if (links.colder)
            __builtin_prefetch(links_of(core, links.colder), 1);
        if (links.warmer)
            __builtin_prefetch(links_of(core, links.warmer), 1);
    }
}

void overlapping_fetch_around(const struct caching *core, struct part *part, int64_t start)
{
    for (int64_t i = 0; i < part->levels; i++) {
        uint32_t number = copy_upto(core, &part->extents[i], start);
        if (number)
            fetch_around(core, number);
    }
}

/* Brings what is beside the copy, too: a copy that is used changes its place among the clean ones. */
static const struct copy *looked_at(const struct caching *core, uint32_t number)
{
    if (core->copies.more[number >> LOWER_BITS])
        __builtin_prefetch(links_of(core, number));
    return copy_at(core, number);
}

void overlapping(struct caching *core, struct extents *extents, int64_t start, int64_t stop,
                 struct vector *copies)
{
    struct place_in at = ordered_upto(&core->nodes, &extents->copies, start, 0);
    if (!at.leaf)
        at = ordered_first(&core->nodes, &extents->copies);
    for (; at.leaf && at.leaf->key[at.index] < stop; at = ordered_next(at)) {
        uint32_t number = at.leaf->value[at.index];
        if (stop_of(looked_at(core, number)) > start)
            copy_add(core, copies, number);
    }
}

void between(struct caching *core, const struct vector *copies, int64_t start, int64_t stop, struct vector *ranges)
{
    for (int64_t i = 0; i < copies->count; i++) {
        const struct copy *copy = copy_of(core, copies, i);
        if (start < copy->start)
            range_add(core, ranges, start, copy->start);
        start = stop_of(copy) > start ? stop_of(copy) : start;
    }
    if (start < stop)
        range_add(core, ranges, start, stop);
}

static void list(struct caching *core, struct extents *extents, int64_t start, uint32_t number)
{
    ordered_put(&core->memory, &core->nodes, &extents->copies, start, 0, number);
}

static uint32_t serial_new(struct caching *core)
{
    return (uint32_t)(++core->serial & INT32_MAX);
}

static uint32_t split(struct caching *core, struct extents *extents, uint32_t number, int64_t at)
{
    uint32_t made = number_take(&core->memory, &core->copies);
    struct copy *copy = copy_at(core, number), *second = copy_at(core, made);
    *second = *copy;
    second->start = at;
    second->address += at - copy->start;
    second->length = (uint64_t)(stop_of(copy) - at);
    second->serial = serial_new(core);
    second->returned = second->kept = false;
    for (const struct chain *one = keepers_of(core, number); one; one = one->next)
        keep(core, made, one->token);
    list(core, extents, at, made);
    copy->length -= second->length;
    settle(core, made);
    return made;
}

void carve(struct caching *core, struct extents *extents, int64_t start, int64_t stop, which_copy *which, int64_t of,
           struct vector *copies)
{
    int64_t first = copies->count, kept = first;
    overlapping(core, extents, start, stop, copies);
    for (int64_t i = first; i < copies->count; i++) {
        uint32_t number = number_of(copies, i);
        if (which && !which(core, copy_at(core, number), of))
            continue;
        if (copy_at(core, number)->start < start)
            number = split(core, extents, number, start);
        if (stop_of(copy_at(core, number)) > stop)
            split(core, extents, number, stop);
        ((uint32_t *)copies->at)[kept++] = number;
    }
    copies->count = kept;
}

static uint32_t group_number(struct caching *core, struct part *part, int64_t space, int64_t node)
{
    const struct group *recent = core->recent_group ? item_at(&core->groups, core->recent_group) : NULL;
    if (recent && recent->part == part && recent->space == space && recent->node == node)
        return core->recent_group;
    struct entry *entry = table_put(&core->memory, &core->group_numbers, part->file, part->number, space, node);
    if (!entry->number) {
        uint32_t number = number_take(&core->memory, &core->groups);
        *(struct group *)item_at(&core->groups, number) = (struct group){part, (int32_t)space, (int32_t)node};
        entry->number = number;
    }
    core->recent_group = (uint32_t)entry->number;
    return core->recent_group;
}

struct copy *copy_new(struct caching *core, struct part *part, struct extents *extents, int64_t space, int64_t start,
                      int64_t length, int64_t address, int64_t node)
{
    uint32_t group = group_number(core, part, space, node), number = number_take(&core->memory, &core->copies);
    struct copy *copy = copy_at(core, number);
    *copy = (struct copy){.start = start, .length = (uint64_t)length, .address = address,
                          .serial = serial_new(core), .group = group};
    copy_used(core, copy);
    list(core, extents, start, number);
    return copy;
}

void copy_used(const struct caching *core, struct copy *copy)
{
    copy->used_lower = (uint32_t)core->clock;
    copy->used_upper = (uint64_t)core->clock >> 32 & 0xff;
}

static bool is_clean(const struct copy *copy)
{
    return !copy->dirty && !copy->moving;
}

/* Orders copies that one request used. */
static int64_t minor_of(const struct caching *core, uint32_t number)
{
    return (int64_t)((uint64_t)copy_at(core, number)->serial << 32 | number);
}

static bool is_before(const struct caching *core, uint32_t number, int64_t used, int64_t minor)
{
    int64_t own = used_of(copy_at(core, number));
    return own != used ? own < used : minor_of(core, number) < minor;
}

static void insert_after(struct caching *core, struct cache *cache, uint32_t colder, uint32_t number)
{
    number_widen(&core->memory, &core->copies, number);
    struct links *links = links_of(core, number);
    links->colder = colder;
    links->warmer = colder ? links_of(core, colder)->warmer : cache->coldest;
    *(colder ? &links_of(core, colder)->warmer : &cache->coldest) = number;
    *(links->warmer ? &links_of(core, links->warmer)->colder : &cache->warmest) = number;
    copy_at(core, number)->returned = false;
}

void settle(struct caching *core, uint32_t number)
{
    struct copy *copy = copy_at(core, number);
    struct cache *cache = cache_of(core, copy);
    if (!is_clean(copy))
        return;
    int64_t used = used_of(copy), minor = minor_of(core, number);
    uint32_t colder = cache->warmest;
    while (colder && used_of(copy_at(core, colder)) == used && minor_of(core, colder) > minor)
        colder = links_of(core, colder)->colder;
    if (!colder || is_before(core, colder, used, minor)) {
        insert_after(core, cache, colder, number);
    } else {
        ordered_put(&core->memory, &core->nodes, &cache->returned, used, minor, number);
        copy->returned = true;
    }
}

void unlist(struct caching *core, uint32_t number)
{
    const struct copy *copy = copy_at(core, number);
    struct cache *cache = cache_of(core, copy);
    if (!is_clean(copy))
        return;
    if (copy->returned) {
        ordered_remove(&core->nodes, &cache->returned, used_of(copy), minor_of(core, number));
        return;
    }
    const struct links *links = links_of(core, number);
    *(links->colder ? &links_of(core, links->colder)->warmer : &cache->coldest) = links->warmer;
    *(links->warmer ? &links_of(core, links->warmer)->colder : &cache->warmest) = links->colder;
    cache->unlisted++;
}

const struct copy *clean_next(const struct caching *core, struct cache *cache, struct caching_cursor *cursor)
{
    /* The list cannot be searched: if the copy at the cursor may be gone, it is walked from its begin. */
    uint32_t at = cursor->unlisted == cache->unlisted ? (uint32_t)cursor->at : 0;
    uint32_t listed = at ? links_of(core, at)->warmer : cache->coldest;
    for (; listed && is_before(core, listed, cursor->used, cursor->serial + 1);
         listed = links_of(core, listed)->warmer)
        at = listed;
    struct place_in next = ordered_upto(&core->nodes, &cache->returned, cursor->used, cursor->serial);
    next = next.leaf ? ordered_next(next) : ordered_first(&core->nodes, &cache->returned);
    uint32_t found = next.leaf ? next.leaf->value[next.index] : 0;
    if (listed && (!found || is_before(core, listed, next.leaf->key[next.index], next.leaf->minor[next.index])))
        at = found = listed;
    if (found) {
        cursor->used = used_of(copy_at(core, found));
        cursor->serial = minor_of(core, found);
    }
    cursor->at = at;
    cursor->unlisted = cache->unlisted;
    return found ? copy_at(core, found) : NULL;
}

static bool is_readable(const struct caching *core, const struct copy *copy, bool arriving)
{
    bool here = !is_incoming(copy) || (copy->urgent && arriving);
    return copy->dirty || (here && cache_of(core, copy)->space->reads);
}

static void source_add(struct caching *core, struct vector *found, int64_t start, int64_t stop, uint32_t copy)
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
            uint32_t number = number_of(&core->found, j);
            const struct copy *copy = copy_at(core, number);
            if (!is_readable(core, copy, arriving))
                continue;
            fetch_around(core, number);
            source_add(core, found, copy->start > gap.start ? copy->start : gap.start,
                       stop_of(copy) < gap.stop ? stop_of(copy) : gap.stop, number);
            ((uint32_t *)core->found.at)[readable++] = number;
        }
        core->found.count = readable;
        between(core, &core->found, gap.start, gap.stop, &core->rest);
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
        source_add(core, found, gap.start, gap.stop, 0);
    }
    merge(core, found, second);
}
