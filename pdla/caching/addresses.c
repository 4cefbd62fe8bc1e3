/* The free addresses of a space. */
#include "core.h"

static int64_t *start_at(struct place_in at)
{
    return &at.leaf->pair[at.index].key;
}

static int64_t length_at(struct place_in at)
{
    return (intptr_t)at.leaf->pair[at.index].value;
}

static void set_length(struct place_in at, int64_t length)
{
    at.leaf->pair[at.index].value = (void *)(intptr_t)length;
}

static void add_hole(struct caching *core, struct addresses *addresses, int64_t address, int64_t length)
{
    ordered_put(&core->memory, &core->nodes, &addresses->holes, address, 0, (void *)(intptr_t)length);
}

void addresses_begin(struct caching *core, struct addresses *addresses, int64_t capacity)
{
    addresses->left = capacity;
    if (capacity > 0)
        add_hole(core, addresses, 0, capacity);
}

int64_t addresses_take(struct caching *core, struct addresses *addresses, int64_t length, int64_t *address)
{
    struct place_in lowest = ordered_first(&addresses->holes);
    int64_t size = length_at(lowest);
    *address = *start_at(lowest);
    if (size > length) {
        /* It stays the lowest one: the tree need not be changed. */
        *start_at(lowest) += length;
        set_length(lowest, size - length);
        size = length;
    } else {
        ordered_remove(&core->nodes, &addresses->holes, *address, 0);
    }
    addresses->left -= size;
    return size;
}

void addresses_free(struct caching *core, struct addresses *addresses, int64_t address, int64_t length)
{
    addresses->left += length;
    struct place_in before = ordered_upto(&addresses->holes, address, 0);
    struct place_in after = before.leaf ? ordered_next(before) : ordered_first(&addresses->holes);
    if (after.leaf && *start_at(after) == address + length) {
        int64_t more = length_at(after);
        ordered_remove(&core->nodes, &addresses->holes, address + length, 0);
        length += more;
        before = ordered_upto(&addresses->holes, address, 0);
    }
    if (before.leaf && *start_at(before) + length_at(before) == address)
        set_length(before, length_at(before) + length);
    else
        add_hole(core, addresses, address, length);
}
