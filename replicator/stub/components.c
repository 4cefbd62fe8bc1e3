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

static int open_component(const struct loaded_map *map, const struct map_component *component)
{
    struct stat found;
    int fd = open(map_at(map, component->path), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || (fstat(fd, &found) == 0 && is_component(component, &found)))
        return fd;
    close(fd);
    errno = ESTALE;
    return -1;
}

int *components_make(const struct loaded_map *map, const struct map_replica *replica)
{
    const struct map_component *files = map_at(map, replica->components);
    int *components = malloc(replica->servers * sizeof *components);
    for (uint32_t i = 0; components != NULL && i < replica->servers; i++) {
        const char *path = map_at(map, files[i].path);
        struct stat found;
        components[i] = -1;
        if (lstat(path, &found) != 0 || !is_component(&files[i], &found)
            || faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) != 0) {
            free(components);
            return NULL;
        }
    }
    return components;
}

void components_close(const struct map_replica *replica, int *components)
{
    for (uint32_t i = 0; components != NULL && i < replica->servers; i++)
        if (components[i] >= 0)
            close(components[i]);
    free(components);
}

int components_descriptor(const struct loaded_map *map, const struct map_replica *replica, int *components, uint32_t number)
{
    const struct map_component *files = map_at(map, replica->components);
    if (components[number] < 0)
        components[number] = open_component(map, &files[number]);
    return components[number];
}

void components_drop(const struct loaded_map *map, const struct map_replica *replica)
{
    const struct map_component *files = map_at(map, replica->components);
    for (uint32_t i = 0; i < replica->servers; i++) {
        int fd = files[i].size > 0 ? open_component(map, &files[i]) : -1;
        if (fd < 0)
            continue;
        fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, (off_t)files[i].size);
        close(fd);
    }
}

void components_start_sync(const struct map_replica *replica, const int *components)
{
    for (uint32_t i = 0; i < replica->servers; i++)
        if (components[i] >= 0)
            sync_file_range(components[i], 0, 0, SYNC_FILE_RANGE_WRITE);
}

int components_sync(const struct map_replica *replica, const int *components)
{
    int error = 0;
    for (uint32_t i = 0; i < replica->servers; i++)
        if (components[i] >= 0 && fdatasync(components[i]) != 0 && error == 0)
            error = errno;
    return error;
}
