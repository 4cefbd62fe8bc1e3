/* How long a look-up in a map takes. lookup MAP prints, for each replica, nanoseconds of CPU: to
 * find a byte that it has, at random and one after another; to find that it does not have one, at
 * random; and for one fetch at random from its table of extents (0: it has none), each of which
 * depends on the one before. Each number is the least of rounds. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "locate.h"

enum { ROUNDS = 200, LOOKUPS = 5000 };

static uint64_t state = 1;

static uint64_t random_number(void)
{
    state = state * 6364136223846793005 + 1442695040888963407; /* Knuth's MMIX generator */
    return state >> 20;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

struct table {
    const struct loaded_map *map;
    const struct map_replica *replica;
    const struct map_extent *extents;
    int64_t size; /* of the original */
};

static struct piece find(const struct table *table, int64_t offset)
{
    struct piece piece;
    if (!locate_piece(table->map, table->replica, offset, table->size, &piece))
        exit(1);
    return piece;
}

static int64_t held_at_random(const struct table *table)
{
    if (table->extents == NULL)
        return find(table, (int64_t)(random_number() % (uint64_t)(table->size - table->size / 8))).offset;
    return table->extents[random_number() % table->replica->extent_count].start;
}

/* Touches no more of the table than held_at_random does. */
static int64_t missing_at_random(const struct table *table)
{
    for (;;) {
        if (table->extents == NULL) {
            int64_t place = (int64_t)(random_number() % (uint64_t)(table->size - table->size / 8));
            if (find(table, place).offset > place)
                return place;
            continue;
        }
        const struct map_extent *next = &table->extents[1 + random_number() % (table->replica->extent_count - 1)];
        if (next[-1].start + next[-1].length < next->start)
            return next->start - 1;
    }
}

/* Nanoseconds of a look-up of these places. The replica has all of them, or none. */
static double look_up(const struct table *table, const int64_t *places, bool held)
{
    double start = now();
    for (int i = 0; i < LOOKUPS; i++)
        if ((find(table, places[i]).offset == places[i]) != held)
            exit(1);
    return (now() - start) / LOOKUPS;
}

/* Nanoseconds of a fetch that cannot begin before the one before has ended. */
static double fetch(const struct table *table)
{
    uint64_t place = random_number();
    double start = now();
    for (int i = 0; i < LOOKUPS; i++) {
        place = place * 6364136223846793005 + 1;
        place += (uint64_t)table->extents[(place >> 20) % table->replica->extent_count].length;
    }
    double took = (now() - start) / LOOKUPS;
    return place == 0 ? 0 : took;
}

static double least(double one, double other) { return one < other ? one : other; }

int main(int argc, char **argv)
{
    static int64_t places[LOOKUPS];
    const char *why = NULL;
    const struct loaded_map *map = argc == 2 ? map_current(argv[1], &why) : NULL;
    if (map == NULL) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    for (uint32_t i = 0; i < map->header->replica_count; i++) {
        const struct map_replica *replica = &map->replicas[i];
        if (map_file_at(map, replica->file) == NULL)
            return 1;
        struct table table = {map, replica, NULL, map->files[replica->file].identity.size};
        double at_random = 1e9, in_order = 1e9, missing = 1e9, one_fetch = 1e9;
        if (replica->extent_count > 0)
            table.extents = map_at(map, replica->extents);
        for (int round = 0; round < ROUNDS; round++) {
            for (int k = 0; k < LOOKUPS; k++)
                places[k] = held_at_random(&table);
            at_random = least(at_random, look_up(&table, places, true));
            struct piece piece = {0, 0, 0};
            for (int k = 0; k < LOOKUPS; k++) {
                piece = find(&table, (piece.offset + piece.length) % table.size);
                places[k] = piece.offset;
            }
            in_order = least(in_order, look_up(&table, places, true));
            for (int k = 0; k < LOOKUPS; k++)
                places[k] = missing_at_random(&table);
            missing = least(missing, look_up(&table, places, false));
            one_fetch = table.extents == NULL ? 0 : least(one_fetch, fetch(&table));
        }
        printf("%.1f %.1f %.1f %.1f\n", at_random, in_order, missing, one_fetch);
    }
    return 0;
}
