/* The free addresses of a space. */
#include "core.h"

static bool is_none(struct range hole)
{
    return hole.start == hole.stop;
}

static struct range hole_at(struct place_in at)
{
    int64_t start = at.leaf->key[at.index];
    return (struct range){start, start + at.leaf->minor[at.index]};
}

static void put_hole(struct caching *core, struct addresses *addresses, struct range hole)
{
    ordered_put(&core->memory, &core->nodes, &addresses->holes, hole.start, hole.stop - hole.start, 0);
}

static struct range take_hole(struct caching *core, struct addresses *addresses, struct place_in at)
{
    struct range hole = hole_at(at);
    ordered_remove(&core->nodes, &addresses->holes, hole.start, hole.stop - hole.start);
    return hole;
}

void addresses_begin(struct addresses *addresses, int64_t capacity)
{
    addresses->holes.wide = true;
    addresses->left = capacity;
    addresses->lowest = (struct range){0, capacity};
}

int64_t addresses_take(struct caching *core, struct addresses *addresses, int64_t length, int64_t *address)
{
    struct range *lowest = &addresses->lowest;
    int64_t size = lowest->stop - lowest->start < length ? lowest->stop - lowest->start : length;
    *address = lowest->start;
    lowest->start += size;
    addresses->left -= size;
    struct place_in next = ordered_first(&core->nodes, &addresses->holes);
    if (is_none(*lowest) && next.leaf)
        *lowest = take_hole(core, addresses, next);
    return size;
}

/* Frees addresses above the lowest hole: joins them with the holes around them. */
static void free_above(struct caching *core, struct addresses *addresses, struct range hole)
{
    struct place_in before = ordered_upto(&core->nodes, &addresses->holes, hole.start, INT64_MAX);
    struct place_in after = before.leaf ? ordered_next(before) : ordered_first(&core->nodes, &addresses->holes);
    if (after.leaf && hole_at(after).start == hole.stop) {
        hole.stop = take_hole(core, addresses, after).stop;
        before = ordered_upto(&core->nodes, &addresses->holes, hole.start, INT64_MAX);
    }
    if (hole.start == addresses->lowest.stop)
        addresses->lowest.stop = hole.stop;
    else if (before.leaf && hole_at(before).stop == hole.start)
        before.leaf->minor[before.index] += hole.stop - hole.start; /* its neighbours stay the same */
    else
        put_hole(core, addresses, hole);
}

void addresses_free(struct caching *core, struct addresses *addresses, int64_t address, int64_t length)
{
    struct range *lowest = &addresses->lowest, hole = {address, address + length};
    addresses->left += length;
    if (is_none(*lowest)) {
        *lowest = hole;
    } else if (address > lowest->start) {
        free_above(core, addresses, hole);
    } else if (hole.stop == lowest->start) {
        lowest->start = address;
    } else {
        put_hole(core, addresses, *lowest);
        *lowest = hole;
    }
}
