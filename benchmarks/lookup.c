/* How long a look-up in a map takes: lookup MAP prints, for each replica, the nanoseconds of finding a piece of it at random. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "locate.h"

enum { LOOKUPS = 2000000 };

int main(int argc, char **argv)
{
    const char *why = NULL;
    const struct loaded_map *map = argc == 2 ? map_current(argv[1], &why) : NULL;
    if (map == NULL) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    for (uint32_t i = 0; i < map->header->replica_count; i++) {
        const struct map_replica *replica = &map->replicas[i];
        int64_t size = map->files[replica->file].identity.size;
        uint64_t state = 1, found = 0;
        struct timespec start, end;
        struct piece piece;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int k = 0; k < LOOKUPS; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int64_t offset = (int64_t)((state >> 1) % (uint64_t)(size - 8));
            found += locate_piece(map, replica, offset, offset + 8, &piece);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
        printf("%.1f %.3f\n", took / LOOKUPS, (double)found / LOOKUPS);
    }
    return 0;
}
