/* A map file that has been loaded, with its state file. Its index has been checked, and the entry of each file and
 * target that the functions here return: offsets, counts, arithmetic and checksums. Users of these need no further
 * checks; nobody else looks at the replicas of an entry. */
#ifndef PDLA_LOADEDMAP_H
#define PDLA_LOADEDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "mapfile.h"

struct loaded_map {
    const char *base;                  /* of the map file in memory */
    const struct map_header *header;
    const struct map_file *files;
    const struct map_target *targets;
    const struct map_replica *replicas;
    uint8_t *stale;                    /* [replica_count], enum state_stale, shared with every process of the node */
    uint64_t *unreachable;             /* [STATE_PLACES], shared, too, unless the state file is older */
    struct extent_index **indexes;     /* [replica_count], locate.c's; NULL: there is none */
    struct map_checks *checks;         /* of the entries; NULL: they need none */
    uint64_t device, inode;            /* of the map file, to notice a new publication */
    int64_t mtime_ns;
    uint64_t state_device, state_inode;
    struct loaded_map *next;
};

/* The map at `path`. It is loaded at the first call, and again when another one has been published
 * there. NULL: it cannot be used, and *why (a literal) says what is wrong. Maps stay in memory for
 * the life of the process, since handles and the exit report point into them. Safe to call from
 * several threads. */
const struct loaded_map *map_current(const char *path, const char **why);

/* `size` bytes at `base` (8-byte aligned) as a map without a state file. NULL: they are none, or memory is short, and
 * *why (a literal) says what is wrong. */
struct loaded_map *map_of(const void *base, size_t size, const char **why);
void map_free(struct loaded_map *);

/* What is wrong with an entry that was looked up; NULL: nothing. map_current refuses such a map from then on. */
const char *map_damage(const struct loaded_map *);

/* By number. NULL: its entry is damaged. */
const struct map_file *map_file_at(const struct loaded_map *, uint64_t number);
const struct map_target *map_target_at(const struct loaded_map *, uint64_t number);

/* The file with this inode that has this path or, failing that, this device; or NULL. */
const struct map_file *map_find(const struct loaded_map *, const char *path, uint64_t device, uint64_t inode);

/* The target of this name in the directory with this inode. Its path must match or, failing that,
 * the directory's device. Or NULL. */
const struct map_target *map_find_target(const struct loaded_map *, const char *path, uint64_t device, uint64_t inode,
                                         const char *name);

static inline int64_t nanoseconds(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline const void *map_at(const struct loaded_map *map, uint32_t offset) { return map->base + offset; }

/* CRC32C (Castagnoli) of `size` bytes, continued from the CRC32C of the bytes before them (0 at the
 * start). */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);

#endif
