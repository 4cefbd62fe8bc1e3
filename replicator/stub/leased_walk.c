#include "leased_walk.h"

enum { WINDOW = 1 << 20 /* bytes of the original that are examined at first for their last leased byte */ };

/* The first leased piece of a replica in [start, stop), cut to it. */
static bool find_leased(const struct leased_bytes *leased, uint32_t replica, int64_t start, int64_t stop,
                        struct piece *found)
{
    struct piece piece;
    while (start < stop && locate_piece(leased->map, leased_replica(leased, replica), start, stop, &piece)) {
        const int64_t end = piece.replica_offset + piece.length;
        const size_t place = ranges_after(leased->ranges, leased->count, replica, piece.replica_offset);
        const struct range *range = &leased->ranges[place];
        if (place < leased->count && range->replica == replica && range->start < end) {
            const int64_t from = range->start > piece.replica_offset ? range->start : piece.replica_offset;
            const int64_t to = range->stop < end ? range->stop : end;
            *found = (struct piece){piece.offset + from - piece.replica_offset, to - from, from};
            return true;
        }
        start = piece.offset + piece.length;
    }
    return false;
}

/* The same for the last byte. RATIONALE: it is looked for from the end on, where it mostly is. */
static int64_t end_in(const struct leased_bytes *leased, uint32_t replica)
{
    int64_t low, stop, window = WINDOW;
    locate_span(leased->map, leased_replica(leased, replica), &low, &stop);
    for (int64_t start; low < stop; stop = start) {
        struct piece piece;
        int64_t end = 0;
        start = stop - low > window ? stop - window : low;
        for (int64_t at = start; find_leased(leased, replica, at, stop, &piece); at = end)
            end = piece.offset + piece.length;
        if (end > 0)
            return end;
        window = window < INT64_MAX / 2 ? 2 * window : window;
    }
    return 0;
}

int64_t leased_end(const struct leased_bytes *leased)
{
    int64_t last = 0;
    for (size_t i = 0; i < leased->count; i++) {
        if (i > 0 && leased->ranges[i - 1].replica == leased->ranges[i].replica)
            continue;
        const int64_t end = end_in(leased, (uint32_t)leased->ranges[i].replica);
        last = end > last ? end : last;
    }
    return last;
}

void leased_walk_start(struct leased_walk *walk, const struct leased_bytes *leased, const struct view_range *range)
{
    walk->leased = leased;
    walk->left = range->bytes;
    walk->extent = (struct extent){0, 0};
    typemap_cursor_init(&walk->cursor, range->view, range->displacement, range->position);
}

static void find_next(struct leased_walk *walk, uint32_t replica)
{
    const struct extent *extent = &walk->extent;
    if (!find_leased(walk->leased, replica, extent->offset, extent->offset + extent->length, &walk->next[replica]))
        walk->next[replica].length = 0;
}

bool leased_walk_next(struct leased_walk *walk, struct piece *piece, int *replica)
{
    const uint32_t replicas = walk->leased->target->replica_count;
    struct extent *extent = &walk->extent;
    if (extent->length == 0) {
        if (walk->left == 0)
            return false;
        *extent = typemap_cursor_next(&walk->cursor, walk->left);
        walk->left -= extent->length;
        for (uint32_t i = 0; i < replicas; i++)
            find_next(walk, i);
    }
    uint32_t first = replicas;
    for (uint32_t i = 0; i < replicas; i++)
        if (walk->next[i].length > 0 && (first == replicas || walk->next[i].offset < walk->next[first].offset))
            first = i;
    *replica = -1;
    *piece = (struct piece){extent->offset, extent->length, -1};
    if (first < replicas && walk->next[first].offset > extent->offset) {
        piece->length = walk->next[first].offset - extent->offset;
    } else if (first < replicas) {
        *piece = walk->next[first];
        *replica = (int)first;
    }
    extent->offset += piece->length;
    extent->length -= piece->length;
    if (*replica >= 0)
        find_next(walk, first);
    return true;
}

bool leased_touches(const struct leased_bytes *leased, const struct view_range *range)
{
    struct leased_walk walk;
    struct piece piece;
    int replica = -1;
    leased_walk_start(&walk, leased, range);
    while (replica < 0 && leased_walk_next(&walk, &piece, &replica))
        continue;
    return replica >= 0;
}
