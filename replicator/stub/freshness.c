#define _GNU_SOURCE
#include "freshness.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "originals.h"

int freshness_find(const char *path, struct stat *found)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || (fstat(fd, found) == 0 && S_ISREG(found->st_mode)))
        return fd;
    close(fd);
    return -1;
}

bool freshness_reopen(int *fd)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", *fd);
    int readable = original_open(name, O_RDONLY);
    if (readable < 0)
        return false;
    close(*fd);
    *fd = readable;
    return true;
}

/* RATIONALE: fstat of the C library passes an empty path, which costs the kernel a tenth of the call. */
static int quick_fstat(int fd, struct stat *found)
{
#if defined SYS_fstat && (defined __x86_64__ || defined __aarch64__)
    return (int)syscall(SYS_fstat, fd, found);
#else
    return fstat(fd, found);
#endif
}

bool freshness_seems_fresh(const struct map_file *file, const struct stat *found)
{
    const struct map_identity *copied = &file->identity;
    return found->st_size == copied->size
        && nanoseconds(found->st_mtim) == copied->mtime_ns
        && nanoseconds(found->st_ctim) == copied->ctime_ns;
}

bool freshness_check(const struct loaded_map *map, const struct map_file *file, int fd)
{
    struct stat found;
    if (fd >= 0 && quick_fstat(fd, &found) == 0 && freshness_seems_fresh(file, &found))
        return true;
    for (uint32_t i = 0; i < file->replica_count; i++)
        freshness_mark(map, &map->replicas[file->first_replica + i], STALE_CHANGED);
    return false;
}

uint8_t freshness_stale(const struct loaded_map *map, const struct map_replica *replica)
{
    return __atomic_load_n(&map->stale[replica - map->replicas], __ATOMIC_SEQ_CST);
}

void freshness_mark(const struct loaded_map *map, const struct map_replica *replica, enum state_stale how)
{
    uint8_t valid = STALE_NOT;
    __atomic_compare_exchange_n(&map->stale[replica - map->replicas], &valid, (uint8_t)how, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
}
