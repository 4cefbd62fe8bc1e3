/* Where a file's bytes are in replicas: pdla.accessmap in C. */
#include "engine.h"

static const int64_t *loop_of(const struct engine *engine, const struct sim_map *map, int64_t level)
{
    return engine->in->map_loops + 3 * (map->loops + level);
}

static const int64_t *extent_of(const struct engine *engine, const struct sim_map *map, int64_t number)
{
    return engine->in->extents + 3 * (map->extents + number);
}

/* The number, in the original's order, of the first piece that ends after `offset`. */
static int64_t first_ending_after(const struct engine *engine, const struct sim_map *map, int64_t offset)
{
    if (map->extent_count > 0) {
        int64_t low = 0, high = map->extent_count;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            const int64_t *extent = extent_of(engine, map, middle);
            if (extent[0] + extent[1] <= offset)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    int64_t rest = offset - map->start, number = 0;
    if (rest < 0)
        return 0;
    for (int64_t level = 0; level < map->depth; level++) {
        const int64_t *loop = loop_of(engine, map, level);
        int64_t digit = rest / loop[1];
        digit = digit < loop[0] ? digit : loop[0] - 1;
        rest -= digit * loop[1];
        number = number * loop[0] + digit;
    }
    return rest < map->length ? number : number + 1;
}

struct tile {
    int64_t start, stop, replica;
};

/* False: there is no such piece. */
static bool piece(const struct engine *engine, const struct sim_map *map, int64_t number, struct tile *tile)
{
    if (map->extent_count > 0) {
        if (number >= map->extent_count)
            return false;
        const int64_t *extent = extent_of(engine, map, number);
        *tile = (struct tile){extent[0], extent[0] + extent[1], extent[2]};
        return true;
    }
    int64_t offset = map->start, replica = map->replica_start;
    for (int64_t level = map->depth - 1; level >= 0; level--) {
        const int64_t *loop = loop_of(engine, map, level);
        int64_t digit = number % loop[0];
        number /= loop[0];
        offset += digit * loop[1];
        replica += digit * loop[2];
    }
    *tile = (struct tile){offset, offset + map->length, replica};
    return number == 0;
}

/* How many pieces hold all of [start, stop) together; 0: there are holes. */
static int64_t pieces_holding(const struct engine *engine, const struct sim_map *map, int64_t start, int64_t stop)
{
    int64_t first = first_ending_after(engine, map, start), count = 0;
    for (struct tile tile; start < stop; start = tile.stop, count++)
        if (!piece(engine, map, first + count, &tile) || tile.start > start)
            return 0;
    return count;
}

bool is_mapped(const struct engine *engine, int64_t file, bool write)
{
    for (int64_t i = engine->in->first_map[file]; i < engine->in->first_map[file + 1]; i++)
        if (engine->in->map[i].ops >> write & 1)
            return true;
    return false;
}

/* Whether a map has byte `start` right after byte `before`. */
static bool continues(const struct engine *engine, const struct sim_map *map, int64_t before, int64_t start)
{
    struct tile last, next;
    return before >= 0 && piece(engine, map, first_ending_after(engine, map, before), &last) && last.start <= before &&
           piece(engine, map, first_ending_after(engine, map, start), &next) && next.start <= start &&
           last.replica + before - last.start + 1 == next.replica + start - next.start;
}

/* The replica that has all of it in the fewest pieces; of several, one in which it follows what the rank accessed
 * before, as the library chooses. Failing that, the one that has the next byte, or none. */
static const struct sim_map *best_map(const struct engine *engine, const struct rank *rank, int64_t file, bool write,
                                      int64_t start, int64_t stop)
{
    const int64_t before = rank->mapped == file ? rank->mapped_stop - 1 : -1;
    const struct sim_map *best = NULL, *partly = NULL;
    int64_t fewest = INT64_MAX;
    for (int64_t i = engine->in->first_map[file]; i < engine->in->first_map[file + 1]; i++) {
        const struct sim_map *map = &engine->in->map[i];
        if (!(map->ops >> write & 1))
            continue;
        int64_t count = pieces_holding(engine, map, start, stop);
        struct tile tile;
        if (count > 0 && (count < fewest || (count == fewest && continues(engine, map, before, start) &&
                                             !continues(engine, best, before, start)))) {
            best = map;
            fewest = count;
        } else if (count == 0 && !partly && piece(engine, map, first_ending_after(engine, map, start), &tile) &&
                   tile.start < stop) {
            partly = map;
        }
    }
    return best ? best : partly;
}

void map_range(const struct engine *engine, int64_t rank, int64_t file, bool write, int64_t start, int64_t stop,
               range_found *found, void *context)
{
    const struct sim_map *map = best_map(engine, &engine->rank[rank], file, write, start, stop);
    engine->rank[rank].mapped = file;
    engine->rank[rank].mapped_stop = stop;
    int64_t number = map ? first_ending_after(engine, map, start) : 0;
    struct tile tile;
    while (start < stop) {
        if (!map || !piece(engine, map, number, &tile) || tile.start >= stop) {
            found(context, file, start, stop);
            return;
        }
        if (tile.start > start)
            found(context, file, start, tile.start);
        start = tile.start > start ? tile.start : start;
        int64_t end = tile.stop < stop ? tile.stop : stop;
        found(context, map->object, tile.replica + start - tile.start, tile.replica + end - tile.start);
        start = end;
        number++;
    }
}
