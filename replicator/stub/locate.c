#include "locate.h"

#include <stdlib.h>

/* The block that holds `relative` or, failing that, the next one; offsets count from the first
 * block. False: there is none. */
static bool find_block(const struct map_replica *replica, const struct map_loop *loops, int64_t relative,
                       int64_t *block, int64_t *replica_block)
{
    int64_t rest = relative > 0 ? relative : 0, at = 0, replica_at = 0;
    /* The innermost digit that can grow: the next block is one step of that loop, with all digits
     * inside it 0. */
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

/* RATIONALE: the cost of a search in a large table is what it fetches from memory. The starts of
 * every BLOCK-th extent are a tree small enough to stay in the cache. In the block that the tree
 * names, the extent is near the place in proportion to its offset or, where extents are clustered,
 * on a known side of that place. */
enum { BLOCK = 256, FAN = 16, WINDOW = 16, LEVELS = 6 /* BLOCK * FAN^LEVELS = 2^32 */ };

struct extent_index {
    _Alignas(64) uint32_t place; /* of the extent found last; atomic */
    unsigned levels;
    const int64_t *starts[LEVELS]; /* of the blocks, of every FAN-th block, ...; each filled up to a multiple of FAN */
};

static uint32_t filled_up(uint32_t count)
{
    return (count + FAN - 1) / FAN * FAN;
}

static struct extent_index *make_index(const struct map_extent *extents, uint32_t count)
{
    const uint32_t blocks = (count - 1) / BLOCK + 1;
    size_t total = 0;
    for (uint32_t nodes = blocks; nodes > 1; nodes = filled_up(nodes) / FAN)
        total += filled_up(nodes);
    struct extent_index *index = aligned_alloc(_Alignof(struct extent_index), sizeof *index + total * sizeof(int64_t));
    if (index == NULL)
        return NULL;
    *index = (struct extent_index){0};
    int64_t *starts = (int64_t *)(index + 1);
    size_t step = BLOCK;
    for (uint32_t nodes = blocks; nodes > 1; nodes = filled_up(nodes) / FAN, step *= FAN) {
        index->starts[index->levels++] = starts;
        for (uint32_t i = 0; i < filled_up(nodes); i++)
            *starts++ = i < nodes ? extents[i * step].start : INT64_MAX;
    }
    return index;
}

void locate_prepare(const struct loaded_map *map, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; map->indexes != NULL && i < first + count; i++)
        if (map->replicas[i].extent_count > 0)
            map->indexes[i] = make_index(map_at(map, map->replicas[i].extents), map->replicas[i].extent_count);
}

/* How many of `count` ascending extents start at or before `start`. */
static uint32_t bisect(const struct map_extent *extents, uint32_t count, int64_t start)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (extents[middle].start <= start)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The same of a block that reaches from `from` to `to`. */
static uint32_t search_block(const struct map_extent *extents, uint32_t count, int64_t from, int64_t to, int64_t start)
{
    uint32_t low = 0, below = 0;
    if (start > from)
        low = start < to ? (uint32_t)((double)(start - from) / (double)(to - from) * count) : count;
    low = low > WINDOW / 2 ? low - WINDOW / 2 : 0;
    const uint32_t high = low + WINDOW < count ? low + WINDOW : count;
    for (uint32_t i = low; i < high; i++)
        below += extents[i].start <= start;
    if (below == 0)
        return bisect(extents, low, start);
    return below < high - low ? low + below : high + bisect(extents + high, count - high, start);
}

/* The same of all extents. */
static uint32_t search(const struct extent_index *index, const struct map_extent *extents, uint32_t count,
                       int64_t start)
{
    const struct map_extent *last = &extents[count - 1];
    if (index == NULL)
        return bisect(extents, count, start);
    const uint32_t place = __atomic_load_n(&index->place, __ATOMIC_RELAXED);
    for (uint32_t i = place; i < count && i < place + 2 && extents[i].start <= start; i++)
        if (i + 1 == count || start < extents[i + 1].start)
            return i + 1;
    uint32_t block = 0;
    for (unsigned level = index->levels; level-- > 0;) {
        const int64_t *starts = index->starts[level] + block * FAN;
        uint32_t below = 0;
        for (uint32_t i = 0; i < FAN; i++)
            below += starts[i] <= start;
        block = block * FAN + (below > 0 ? below - 1 : 0);
    }
    const uint32_t first = block * BLOCK, left = count - first;
    if (left <= BLOCK)
        return first + search_block(extents + first, left, extents[first].start, last->start + last->length, start);
    const int64_t *starts = index->starts[0] + block;
    return first + search_block(extents + first, BLOCK, starts[0], starts[1], start);
}

/* The extent that holds `start` or, failing that, the next one. NULL: there is none. */
static const struct map_extent *find_extent(const struct loaded_map *map, const struct map_replica *replica,
                                            int64_t start)
{
    const struct map_extent *extents = map_at(map, replica->extents);
    struct extent_index *index = map->indexes == NULL ? NULL : map->indexes[replica - map->replicas];
    uint32_t place = search(index, extents, replica->extent_count, start);
    if (place > 0 && extents[place - 1].start + extents[place - 1].length > start)
        place--;
    if (place == replica->extent_count)
        return NULL;
    if (index != NULL && __atomic_load_n(&index->place, __ATOMIC_RELAXED) != place)
        __atomic_store_n(&index->place, place, __ATOMIC_RELAXED);
    return &extents[place];
}

bool locate_piece(const struct loaded_map *map, const struct map_replica *replica, int64_t start, int64_t stop,
                  struct piece *piece)
{
    struct map_extent found;
    if (replica->extent_count > 0) {
        const struct map_extent *extent = find_extent(map, replica, start);
        if (extent == NULL)
            return false;
        found = *extent;
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

void locate_span(const struct loaded_map *map, const struct map_replica *replica, int64_t *low, int64_t *high)
{
    const struct map_loop *loops = map_at(map, replica->loops);
    const struct map_extent *extents = map_at(map, replica->extents);
    *low = replica->start;
    *high = replica->start + replica->length;
    for (uint32_t k = 0; k < replica->loop_count; k++)
        *high += (loops[k].count - 1) * loops[k].stride;
    if (replica->extent_count > 0) {
        *low = extents->start;
        *high = extents[replica->extent_count - 1].start + extents[replica->extent_count - 1].length;
    }
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

int64_t locate_original(const struct loaded_map *map, const struct map_replica *replica, int64_t offset,
                        int64_t *length)
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
