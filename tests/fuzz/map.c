/* libFuzzer on the map file: an accepted map is used as the redirector uses it, and every access
 * must stay inside. */
#include <stdlib.h>
#include <string.h>

#include "../programs/damaged_maps.h"
#include "locate.h"

enum { MOST_PIECES = 64 };

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static char *repaired(const uint8_t *data, size_t size)
{
    char *image = malloc(size > 0 ? size : 1);
    memcpy(image, data, size);
    if (size >= sizeof(struct map_header))
        renew(image, size);
    return image;
}

static void use_strip(const struct loaded_map *map, const struct map_replica *replica, int64_t offset)
{
    struct strip strip = locate_strip(map, replica, offset);
    expect(strip.component < replica->servers && strip.offset >= 0);
    expect(strip.length > 0 && strip.length <= replica->size - offset);
    const struct map_component *components = map_at(map, replica->components);
    expect(*(const char *)map_at(map, components[strip.component].path) == '/');
}

/* `end`: the largest size of the original. */
static void use_replica(const struct loaded_map *map, const struct map_replica *replica, int64_t end, bool inverse)
{
    int64_t at = 0;
    for (int pieces = 0; pieces < MOST_PIECES; pieces++) {
        struct piece piece;
        if (!locate_piece(map, replica, at, end, &piece))
            return;
        expect(piece.offset >= at && piece.length > 0 && piece.length <= end - piece.offset);
        expect(piece.replica_offset >= 0 && piece.length <= replica->size - piece.replica_offset);
        use_strip(map, replica, piece.replica_offset);
        use_strip(map, replica, piece.replica_offset + piece.length - 1);
        int64_t length;
        const bool regular = replica->extent_count == 0;
        expect(!inverse || !regular || locate_original(map, replica, piece.replica_offset, &length) == piece.offset);
        expect(!inverse || !regular || length == piece.length);
        at = piece.offset + piece.length;
    }
}

static void use(const struct loaded_map *map)
{
    const struct map_header *header = map->header;
    expect(*(const char *)map_at(map, header->state_path) == '/');
    for (uint32_t i = 0; i < header->file_count; i++) {
        const struct map_file *file = &map->files[i];
        expect(map_find(map, map_at(map, file->path), file->identity.device, file->identity.inode) == file);
        for (uint32_t k = 0; k < file->replica_count; k++)
            use_replica(map, &map->replicas[file->first_replica + k], file->identity.size, false);
    }
    for (uint32_t i = 0; i < header->target_count; i++) {
        const struct map_target *target = &map->targets[i];
        expect(map_find_target(map, map_at(map, target->path), target->device, target->inode, map_at(map, target->name))
               == target);
        for (uint32_t k = 0; k < target->replica_count; k++)
            use_replica(map, &map->replicas[target->first_replica + k], INT64_MAX, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *image = repaired(data, size);
    const char *why;
    struct loaded_map *map = map_of(image, size, &why);
    if (problem_of(map, why) == NULL)
        use(map);
    if (map != NULL)
        map_free(map);
    free(image);
    return 0;
}
