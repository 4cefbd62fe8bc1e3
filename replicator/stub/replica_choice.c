#include "replica_choice.h"

#include "freshness.h"
#include "redirection.h"
#include "report.h"

enum {
    SCORED_EXTENTS = 64,   /* a call is judged by its beginning: the choice must cost less than the read */
    SCORED_PIECES = 1024,
    WRITTEN_EXTENTS = 4096,
    SCATTER = 3,           /* replica reads for each one of the original that are too many, ... */
    SMALL_SCATTER = 8      /* ... or this many in a small call: most of them are fetched together */
};

void walk_start(struct walk *walk, const struct loaded_map *map, const struct map_replica *replica,
                const struct view_range *range)
{
    walk->map = map;
    walk->replica = replica;
    walk->left = range->bytes;
    walk->extent = (struct extent){0, 0};
    walk->found = (struct piece){0, 0, 0};
    walk->extents = 0;
    typemap_cursor_init(&walk->cursor, range->view, range->displacement, range->position);
}

bool walk_next(struct walk *walk, struct piece *piece)
{
    if (walk->extent.length == 0) {
        if (walk->left == 0)
            return false;
        walk->extent = typemap_cursor_next(&walk->cursor, walk->left);
        walk->left -= walk->extent.length;
        walk->extents++;
    }
    struct extent *extent = &walk->extent;
    if (walk->found.length == 0 && walk->replica != NULL
        && !locate_piece(walk->map, walk->replica, extent->offset, extent->offset + extent->length, &walk->found))
        walk->found.length = 0;
    if (walk->found.length > 0 && walk->found.offset == extent->offset) {
        *piece = walk->found;
        walk->found.length = 0;
    } else {
        int64_t gap = walk->found.length > 0 ? walk->found.offset - extent->offset : extent->length;
        *piece = (struct piece){extent->offset, gap, -1};
    }
    extent->offset += piece->length;
    extent->length -= piece->length;
    return true;
}

static struct extent first_extent(const struct view_range *range, int64_t position, int64_t limit)
{
    struct typemap_cursor cursor;
    typemap_cursor_init(&cursor, range->view, range->displacement, position);
    return typemap_cursor_next(&cursor, limit);
}

bool view_range_fits(const struct view_range *range)
{
    int64_t tiles = (range->position + range->bytes) / typemap_size(range->view) + 1, end;
    return !__builtin_mul_overflow(tiles, typemap_extent(range->view), &end)
        && !__builtin_add_overflow(end, range->displacement, &end);
}

int64_t view_range_first(const struct view_range *range)
{
    return first_extent(range, range->position, 1).offset;
}

int64_t view_range_last(const struct view_range *range)
{
    return first_extent(range, range->position + range->bytes - 1, 1).offset;
}

struct score {
    double covered;  /* share of the bytes examined */
    bool scattered;  /* into more reads than it is worth */
    bool whole;      /* all bytes of the range were examined */
    double reads;    /* for each byte examined */
    bool continues;  /* starts where the previous call ended */
};

/* The ends of the last two reads of a file, the latest first. */
struct ends {
    int64_t of[2];
};

/* Whether a read goes on where one of the last `streams` ended; it is the latest then. */
static bool goes_on(struct ends *ends, int streams, int64_t at, int64_t length)
{
    const bool latest = at == ends->of[0], earlier = !latest && streams > 1 && at == ends->of[1];
    if (!latest)
        ends->of[1] = ends->of[0];
    ends->of[0] = at + length;
    return latest || earlier;
}

/* `dense`: MPI would read all of it in large requests. Of the replica two runs of bytes in turns are
 * large requests, too, since the kernel reads both ahead: half as many ranks read so. */
static struct score judge(const struct loaded_map *map, const struct map_replica *replica,
                          const struct view_range *range, bool dense, int64_t expected, int64_t *next)
{
    struct walk walk;
    struct piece piece;
    struct ends of_replica = {{-1, -1}}, of_original = {{-1, -1}};
    int64_t looked = 0, covered = 0, first = -1;
    uint64_t reads = 0, pieces = 0;
    walk_start(&walk, map, replica, range);
    while (pieces < SCORED_PIECES && (walk.extents < SCORED_EXTENTS || walk.extent.length > 0)
           && walk_next(&walk, &piece)) {
        bool held = piece.replica_offset >= 0;
        if (pieces++ == 0)
            first = piece.replica_offset;
        reads += held ? !goes_on(&of_replica, dense ? 2 : 1, piece.replica_offset, piece.length)
                      : !goes_on(&of_original, 1, piece.offset, piece.length);
        looked += piece.length;
        covered += held ? piece.length : 0;
    }
    *next = -1;
    if (covered == looked) {
        int64_t last = view_range_last(range);
        if (locate_piece(map, replica, last, last + 1, &piece))
            *next = piece.replica_offset + 1;
    }
    return (struct score){
        .covered = (double)covered / (double)looked,
        .whole = looked == range->bytes,
        .scattered = reads > (looked < SCATTER_BYTES ? SMALL_SCATTER : SCATTER) * (dense ? 1 : walk.extents)
            && looked / SCATTER_BYTES < (int64_t)reads,
        .reads = (double)reads / (double)looked,
        .continues = first >= 0 && first == expected,
    };
}

static bool better(const struct score *one, const struct score *other)
{
    if (one->covered != other->covered)
        return one->covered > other->covered;
    if (one->reads != other->reads)
        return one->reads < other->reads;
    return one->continues && !other->continues;
}

/* Of one run of bytes, and the only replica. RATIONALE: most calls are such, and what a call costs is
 * dear where everything is in memory. Others are judged. */
static bool holds_all(const struct reader *reader, const struct extent *run, struct opened_replica *opened)
{
    const struct source *source = reader->source;
    struct piece piece;
    if (!locate_piece(source->map, replica_of(source, 0), run->offset, run->offset + run->length, &piece)
        || piece.offset != run->offset || piece.length != run->length)
        return false;
    __atomic_store_n(&opened->next, piece.replica_offset + piece.length, __ATOMIC_RELAXED);
    return true;
}

int choose_replica(struct reader *reader, const struct view_range *range, int ranks, int64_t *covered,
                   const char **why)
{
    const struct source *source = reader->source;
    struct score best = {0};
    int chosen = -1;
    struct piece piece;
    /* Replicas of other bytes cost no more than this search, however many there are. */
    const struct extent first = first_extent(range, range->position, range->bytes);
    const bool one_run = first.length == range->bytes;
    const int64_t low = first.offset, high = one_run ? low + first.length - 1 : view_range_last(range);
    const bool dense = ranks > 1 && is_dense(range->bytes, ranks, low, high + 1);
    bool usable = false, whole = true, scattered = false;
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        const struct map_replica *replica = replica_of(source, i);
        struct opened_replica *opened = &reader->replicas[i];
        if (opened->components == NULL || replica_refused(source, i)
            || freshness_stale(source->map, replica) != STALE_NOT)
            continue;
        usable = true;
        if (one_run && source->file->replica_count == 1 && holds_all(reader, &first, opened)) {
            *covered = range->bytes;
            return 0;
        }
        if (!locate_piece(source->map, replica, low, high + 1, &piece))
            continue;
        int64_t next, expected = __atomic_load_n(&opened->next, __ATOMIC_RELAXED);
        struct score score = judge(source->map, replica, range, dense, expected, &next);
        if (next >= 0)
            __atomic_store_n(&opened->next, next, __ATOMIC_RELAXED);
        if (score.covered == 0) {
            whole = whole && score.whole;
        } else if (score.scattered) {
            scattered = true;
        } else if (chosen < 0 || better(&score, &best)) {
            best = score;
            chosen = (int)i;
        }
    }
    *why = scattered ? "in too many pieces in the replica"
        : !whole ? "the beginning of the call is not replicated"
        : usable ? "not replicated"
                 : "no replica is usable";
    *covered = best.covered == 1 ? range->bytes : (int64_t)(best.covered * (double)range->bytes);
    return chosen;
}

bool view_range_touches(const struct loaded_map *map, const struct map_replica *replica, const struct view_range *range)
{
    struct typemap_cursor cursor;
    struct piece piece;
    int64_t left = range->bytes;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int extents = 0; left > 0 && extents < WRITTEN_EXTENTS; extents++) {
        struct extent extent = typemap_cursor_next(&cursor, left);
        if (locate_piece(map, replica, extent.offset, extent.offset + extent.length, &piece))
            return true;
        left -= extent.length;
    }
    if (left == 0)
        return false;
    /* The rest counts as written from its first byte to its last. Tiles that interleave have no
     * such order. */
    int64_t tile = typemap_size(range->view);
    int64_t low = first_extent(range, 0, 1).offset, high = first_extent(range, tile - 1, 1).offset;
    if (high - low >= typemap_extent(range->view))
        return true;
    int64_t start = typemap_cursor_next(&cursor, 1).offset;
    return locate_piece(map, replica, start, view_range_last(range) + 1, &piece);
}
