#define _GNU_SOURCE
#include "components.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void components_drop(const struct loaded_map *map, const struct map_replica *replica, const int *components)
{
    const struct map_component *files = map_at(map, replica->components);
    for (uint32_t i = 0; i < replica->servers; i++)
        if (files[i].size > 0)
            fallocate(components[i], FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, (off_t)files[i].size);
}

void components_start_sync(const struct map_replica *replica, const int *components)
{
    for (uint32_t i = 0; i < replica->servers; i++)
        sync_file_range(components[i], 0, 0, SYNC_FILE_RANGE_WRITE);
}

int components_sync(const struct map_replica *replica, const int *components)
{
    int error = 0;
    for (uint32_t i = 0; i < replica->servers; i++)
        if (fdatasync(components[i]) != 0 && error == 0)
            error = errno;
    return error;
}
