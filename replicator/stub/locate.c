#include "locate.h"

#include <stdlib.h>

/* The block that holds `relative` or, when none does, the next one; offsets from the first block. False: there is none. */
static bool find_block(const struct map_replica *replica, const struct map_loop *loops, int64_t relative, int64_t *block,
                       int64_t *replica_block)
{
    int64_t rest = relative > 0 ? relative : 0, at = 0, replica_at = 0;
    /* Where the innermost digit that can grow was: the successor is one step of that loop, all digits inside it 0. */
    int64_t next = -1, replica_next = 0;
    for (uint32_t k = 0; k < replica->loop_count; k++) {
        int64_t digit = rest / loops[k].stride;
        if (digit >= loops[k].count)
            digit = loops[k].count - 1;
        rest -= digit * loops[k].stride;
        at += digit * loops[k].stride;
        replica_at += digit * loops[k].replica_stride;
        if (digit + 1 < loops[k].count) {
            next = at + loops[k].stride;
            replica_next = replica_at + loops[k].replica_stride;
        }
    }
    if (rest >= replica->length) {
        at = next;
        replica_at = replica_next;
    }
    *block = at;
    *replica_block = replica_at;
    return at >= 0;
}

/* RATIONALE: every probe of a large table is a cache miss. Where extents are spread evenly a place in proportion is found with
 * few of them, and every second one halves what is left whatever they are like. */
static bool find_extent(const struct map_replica *replica, const struct map_extent *extents, int64_t start,
                        struct map_extent *found)
{
    uint32_t low = 0, high = replica->extent_count;
    int64_t from = extents[0].start, to = extents[high - 1].start + extents[high - 1].length;
    for (unsigned turn = 0; low < high; turn++) {
        uint32_t middle = low + (high - low) / 2;
        if (turn % 2 == 0 && start >= from && start < to)
            middle = low + (uint32_t)((double)(start - from) / (double)(to - from) * (double)(high - low));
        middle = middle < high ? middle : high - 1;
        const struct map_extent *extent = &extents[middle];
        if (extent->start + extent->length <= start) {
            low = middle + 1;
            from = extent->start + extent->length;
        } else {
            high = middle;
            to = extent->start;
            if (extent->start <= start) {
                low = middle;
                break;
            }
        }
    }
    if (low == replica->extent_count)
        return false;
    *found = extents[low];
    return true;
}

bool locate_piece(const struct loaded_map *map, const struct map_replica *replica, int64_t start, int64_t stop,
                  struct piece *piece)
{
    struct map_extent found;
    if (replica->extent_count > 0) {
        if (!find_extent(replica, map_at(map, replica->extents), start, &found))
            return false;
    } else {
        int64_t block, replica_block;
        if (!find_block(replica, map_at(map, replica->loops), start - replica->start, &block, &replica_block))
            return false;
        found = (struct map_extent){replica->start + block, replica->length, replica->replica_start + replica_block};
    }
    if (found.start >= stop)
        return false;
    int64_t end = found.start + found.length;
    piece->offset = found.start > start ? found.start : start;
    piece->length = (end < stop ? end : stop) - piece->offset;
    piece->replica_offset = found.replica_start + (piece->offset - found.start);
    return true;
}

struct strip locate_strip(const struct loaded_map *map, const struct map_replica *replica, int64_t offset)
{
    const int64_t *strips = map_at(map, replica->strips);
    uint32_t width = replica->servers / replica->groups;
    int64_t cycle = 0;
    for (uint32_t j = 0; j < width; j++)
        cycle += strips[j];
    int64_t section = offset / replica->section, inside = offset % replica->section;
    int64_t in_cycle = inside % cycle;
    uint32_t server = 0;
    for (; in_cycle >= strips[server]; server++)
        in_cycle -= strips[server];
    int64_t rows = replica->section / cycle + (replica->section % cycle != 0);
    int64_t row = section / replica->groups * rows + inside / cycle;
    struct strip strip = {
        .component = (uint32_t)(section % replica->groups) * width + server,
        .offset = row * strips[server] + in_cycle,
        .length = strips[server] - in_cycle,
    };
    if (strip.length > replica->section - inside)
        strip.length = replica->section - inside;
    if (strip.length > replica->size - offset)
        strip.length = replica->size - offset;
    return strip;
}

int64_t locate_original(const struct loaded_map *map, const struct map_replica *replica, int64_t offset, int64_t *length)
{
    const struct map_loop *loops = map_at(map, replica->loops);
    int64_t at = replica->start, rest = offset, below = INT64_MAX;
    for (;;) {
        const struct map_loop *next = NULL;
        for (uint32_t k = 0; k < replica->loop_count; k++) {
            int64_t stride = loops[k].count > 1 ? llabs(loops[k].replica_stride) : INT64_MAX;
            if (stride < below && (next == NULL || stride > llabs(next->replica_stride)))
                next = &loops[k];
        }
        if (next == NULL)
            break;
        below = llabs(next->replica_stride);
        int64_t digit = rest / below;
        rest %= below;
        at += (next->replica_stride < 0 ? next->count - 1 - digit : digit) * next->stride;
    }
    *length = replica->length - rest;
    return at + rest;
}
