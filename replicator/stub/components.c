#define _GNU_SOURCE
#include "components.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_component(const struct map_component *component, const struct stat *found)
{
    return S_ISREG(found->st_mode) && found->st_ino == component->inode && found->st_size == component->size
        && (found->st_uid == 0 || found->st_uid == geteuid());
}

int component_open(const struct loaded_map *map, const struct map_component *component, int access,
                   enum timeout timeout)
{
    struct stat found;
    const char *path = map_at(map, component->path);
    int fd = storage_open(map, path, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, timeout, &found);
    if (fd < 0 || is_component(component, &found))
        return fd;
    storage_close(map, path, fd);
    errno = ESTALE;
    return -1;
}

int *components_make(const struct loaded_map *map, const struct map_replica *replica, enum timeout timeout)
{
    const struct map_component *files = map_at(map, replica->components);
    int *components = malloc(replica->servers * sizeof *components);
    for (uint32_t i = 0; components != NULL && i < replica->servers; i++) {
        struct stat found;
        components[i] = -1;
        if (storage_examine(map, map_at(map, files[i].path), timeout, &found) != 0
            || !is_component(&files[i], &found)) {
            free(components);
            return NULL;
        }
    }
    return components;
}

void components_close(const struct loaded_map *map, const struct map_replica *replica, int *components)
{
    const struct map_component *files = map_at(map, replica->components);
    for (uint32_t i = 0; components != NULL && i < replica->servers; i++)
        if (components[i] >= 0)
            storage_close(map, map_at(map, files[i].path), components[i]);
    free(components);
}

int components_descriptor(const struct loaded_map *map, const struct map_replica *replica, int *components,
                          uint32_t number, enum timeout timeout)
{
    const struct map_component *files = map_at(map, replica->components);
    if (components[number] < 0)
        __atomic_store_n(&components[number], component_open(map, &files[number], O_RDWR, timeout), __ATOMIC_RELAXED);
    return components[number];
}

/* RATIONALE: not on network storage, where an abandoned call would discard what is written later.
 */
void components_drop(const struct loaded_map *map, const struct map_replica *replica)
{
    const struct map_component *files = map_at(map, replica->components);
    for (uint32_t i = 0; i < replica->servers; i++) {
        const char *path = map_at(map, files[i].path);
        const bool drops = files[i].size > 0 && !storage_remote(path);
        int fd = drops ? component_open(map, &files[i], O_RDWR, TIMEOUT_SHORT) : -1;
        if (fd < 0)
            continue;
        if (!storage_remote(path))
            fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, (off_t)files[i].size);
        storage_close(map, path, fd);
    }
}

static int sync_component(const struct loaded_map *map, const char *path, int fd, bool begin)
{
    const struct component_file file = {map, path, fd, TIMEOUT_LONG, -1};
    if (storage_remote(path))
        return storage_sync(&file, begin);
    if (begin)
        return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return fdatasync(fd) == 0 ? 0 : errno;
}

int components_sync(const struct loaded_map *map, const struct map_replica *replica, const int *components, bool begin)
{
    const struct map_component *files = map_at(map, replica->components);
    int first = 0;
    for (uint32_t i = 0; i < replica->servers; i++) {
        const int fd = __atomic_load_n(&components[i], __ATOMIC_RELAXED); /* another thread may write */
        const int error = fd < 0 ? 0 : sync_component(map, map_at(map, files[i].path), fd, begin);
        first = first != 0 ? first : error;
    }
    return first;
}
