/* Damaged maps that are to be refused by more than their checksums. */
#ifndef PDLA_DAMAGED_MAPS_H
#define PDLA_DAMAGED_MAPS_H

#include <string.h>

#include "../../replicator/stub/loadedmap.h"

static inline void renew_entry(const char *base, size_t size, uint32_t first, uint32_t count, uint32_t body,
                               uint32_t body_size, uint32_t *checksum)
{
    const size_t row = sizeof(struct map_replica), rows = ((const struct map_header *)base)->replicas_offset;
    if (rows + ((size_t)first + count) * row <= size && (size_t)body + body_size <= size)
        *checksum = crc32c(crc32c(0, base + rows + first * row, count * row), base + body, body_size);
}

/* Gives a damaged map the right magic, size and checksums, as far as it has places for them. */
static inline void renew(char *base, size_t size)
{
    struct map_header *header = (struct map_header *)base;
    const size_t files = header->files_offset, targets = header->targets_offset;
    memcpy(header->magic, MAPFILE_MAGIC, 8);
    header->total_size = size;
    for (uint32_t i = 0; files % 8 == 0 && i < header->file_count && files + (i + 1) * 64ul <= size; i++) {
        struct map_file *one = (struct map_file *)(base + files) + i;
        renew_entry(base, size, one->first_replica, one->replica_count, one->body, one->body_size, &one->checksum);
    }
    for (uint32_t i = 0; targets % 8 == 0 && i < header->target_count && targets + (i + 1) * 48ul <= size; i++) {
        struct map_target *one = (struct map_target *)(base + targets) + i;
        renew_entry(base, size, one->first_replica, one->replica_count, one->body, one->body_size, &one->checksum);
    }
    if (header->replicas_offset >= sizeof *header && header->replicas_offset <= size)
        header->checksum = crc32c(crc32c(0, base, 24), base + 28, header->replicas_offset - 28);
}
_Static_assert(sizeof(struct map_file) == 64 && sizeof(struct map_target) == 48, "as above");

/* What is wrong with the map or with one of its entries. */
static inline const char *problem_of(const struct loaded_map *map, const char *why)
{
    for (uint32_t i = 0; map != NULL && i < map->header->file_count; i++)
        if (map_file_at(map, i) == NULL)
            return map_damage(map);
    for (uint32_t i = 0; map != NULL && i < map->header->target_count; i++)
        if (map_target_at(map, i) == NULL)
            return map_damage(map);
    return why;
}

#endif
