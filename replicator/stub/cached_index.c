#include "cached_index.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "homeward.h"
#include "locate.h"
#include "pending_caches.h"
#include "writer.h"

enum { MOST_EXTENTS = 1 << 20 /* more are too many to send to all ranks */ };

/* ---- of several copies of a byte the newest ---------------------------------------------------------------------- */

/* Pieces that have the present byte: a heap, the newest first. */
struct heap {
    const struct homeward_piece **at;
    size_t count;
};

static void heap_push(struct heap *heap, const struct homeward_piece *one)
{
    size_t hole = heap->count++;
    for (; hole > 0 && homeward_is_newer(one, heap->at[(hole - 1) / 2]); hole = (hole - 1) / 2)
        heap->at[hole] = heap->at[(hole - 1) / 2];
    heap->at[hole] = one;
}

static void heap_pop(struct heap *heap)
{
    const struct homeward_piece *one = heap->at[--heap->count];
    size_t hole = 0, below;
    while ((below = 2 * hole + 1) < heap->count) {
        below += below + 1 < heap->count && homeward_is_newer(heap->at[below + 1], heap->at[below]);
        if (!homeward_is_newer(heap->at[below], one))
            break;
        heap->at[hole] = heap->at[below];
        hole = below;
    }
    heap->at[hole] = one;
}

/* Bytes of the original, and the source that has the newest of them. */
struct found_extent {
    struct map_extent extent;
    uint32_t source;
};

struct found {
    struct found_extent *at;
    size_t count, room;
};

static bool add_extent(struct found *found, const struct homeward_piece *piece, int64_t start, int64_t stop)
{
    const int64_t place = piece->place + start - piece->offset;
    struct found_extent *last = found->count > 0 ? &found->at[found->count - 1] : NULL;
    if (last != NULL && last->source == piece->source && last->extent.start + last->extent.length == start
        && last->extent.replica_start + last->extent.length == place) {
        last->extent.length += stop - start;
        return true;
    }
    if (found->count == found->room) {
        const size_t room = 2 * found->room + 64;
        struct found_extent *at = room > MOST_EXTENTS ? NULL : realloc(found->at, room * sizeof *at);
        if (at == NULL)
            return false;
        found->at = at;
        found->room = room;
    }
    found->at[found->count++] = (struct found_extent){{start, stop - start, place}, piece->source};
    return true;
}

static int64_t stop_of(const struct homeward_piece *piece) { return piece->offset + piece->length; }

/* The extents of pieces that are sorted by their offsets. False: too many, or out of memory. */
static bool find_extents(const struct homeward *home, struct found *found)
{
    struct heap heap = {.at = malloc((home->count + 1) * sizeof *heap.at)};
    bool fits = heap.at != NULL;
    size_t next = 0;
    for (int64_t at = 0; fits && (next < home->count || heap.count > 0);) {
        while (heap.count > 0 && stop_of(heap.at[0]) <= at)
            heap_pop(&heap);
        if (heap.count == 0 && next < home->count)
            at = home->pieces[next].offset;
        while (next < home->count && home->pieces[next].offset == at)
            heap_push(&heap, &home->pieces[next++]);
        if (heap.count == 0)
            continue;
        const int64_t after = next < home->count ? home->pieces[next].offset : INT64_MAX;
        const int64_t stop = stop_of(heap.at[0]) < after ? stop_of(heap.at[0]) : after;
        fits = add_extent(found, heap.at[0], at, stop);
        at = stop;
    }
    free(heap.at);
    return fits;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

/* Its parts, from byte 0 on. */
struct layout {
    uint32_t replicas, target, extents, strips, components, strings, size;
};

static struct layout lay_out(uint32_t files, size_t extents, size_t strings)
{
    struct layout at = {.replicas = sizeof(struct map_header)};
    at.target = at.replicas + files * (uint32_t)sizeof(struct map_replica);
    at.extents = at.target + sizeof(struct map_target);
    at.strips = at.extents + (uint32_t)extents * (uint32_t)sizeof(struct map_extent);
    at.components = at.strips + files * (uint32_t)sizeof(int64_t);
    at.strings = at.components + files * (uint32_t)sizeof(struct map_component);
    at.size = (at.strings + (uint32_t)strings + 7) / 8 * 8;
    return at;
}

/* Adds a string to the index. Returns where it is. */
static uint32_t put_string(char *index, uint32_t *end, const char *text)
{
    const uint32_t at = *end;
    strcpy(index + at, text);
    *end += (uint32_t)strlen(text) + 1;
    return at;
}

/* One cache file. False: it is not as its journal says. */
static bool put_file(char *index, const struct layout *at, uint32_t number, uint32_t *extents, uint32_t *strings,
                     const struct gathered *gathered, const struct found *found)
{
    struct stat file;
    const int fd = gathered->sources[number + 1]; /* after the original */
    struct map_replica *replica = (struct map_replica *)(index + at->replicas) + number;
    struct map_component *component = (struct map_component *)(index + at->components) + number;
    struct map_extent *table = (struct map_extent *)(index + at->extents) + *extents;
    if (fd < 0 || fstat(fd, &file) != 0 || file.st_size == 0)
        return false;
    *component = (struct map_component){.path = put_string(index, strings, gathered->paths[number + 1]),
                                        .inode = file.st_ino, .size = file.st_size};
    ((int64_t *)(index + at->strips))[number] = file.st_size;
    *replica = (struct map_replica){.id = number, .size = file.st_size, .section = file.st_size, .servers = 1,
                                    .groups = 1, .extents = (uint32_t)((char *)table - index),
                                    .strips = at->strips + number * (uint32_t)sizeof(int64_t),
                                    .components = (uint32_t)((char *)component - index)};
    for (size_t i = 0; i < found->count; i++) {
        const struct map_extent *extent = &found->at[i].extent;
        if (found->at[i].source != number + 1)
            continue;
        if (extent->replica_start > file.st_size - extent->length)
            return false;
        table[replica->extent_count++] = *extent;
    }
    *extents += replica->extent_count;
    return true;
}

static char *make_index(const char *directory, const char *path, const struct gathered *gathered,
                        const struct found *found, int64_t *size)
{
    const uint32_t files = gathered->count - 1;
    size_t length = strlen(directory) + strlen(path) + 2;
    for (uint32_t i = 1; i <= files; i++)
        length += strlen(gathered->paths[i]) + 1;
    const struct layout at = lay_out(files, found->count, length);
    char *index = calloc(1, at.size);
    uint32_t extents = 0, strings = at.strings;
    bool made = index != NULL && files > 0 && files <= MOST_REPLICAS;
    for (uint32_t i = 0; made && i < files; i++)
        made = put_file(index, &at, i, &extents, &strings, gathered, found);
    if (!made) {
        free(index);
        return NULL;
    }
    *(struct map_header *)index = (struct map_header){
        .magic = MAPFILE_MAGIC, .total_size = at.size, .replica_count = files, .replicas_offset = at.replicas,
        .files_offset = at.replicas, .target_count = 1, .targets_offset = at.target};
    *(struct map_target *)(index + at.target) = (struct map_target){
        .path = put_string(index, &strings, path), .journals = put_string(index, &strings, directory),
        .replica_count = files};
    *size = at.size;
    return index;
}

void *cached_index_make(const char *directory, const char *path, const struct original_state *original, int64_t *size)
{
    struct gathered gathered;
    struct found found = {0};
    char *index = NULL;
    if (pending_caches_gather(&gathered, directory, path, original, false) == NULL
        && gathered.count <= MOST_REPLICAS + 1 && homeward_sort(&gathered.home) && find_extents(&gathered.home, &found))
        index = make_index(directory, path, &gathered, &found, size);
    pending_caches_free(&gathered);
    free(found.at);
    return index;
}

/* ---- as a map ---------------------------------------------------------------------------------------------------- */

struct loaded_map *cached_index_map(void *index)
{
    static uint64_t unreachable[STATE_PLACES];
    struct loaded_map *map = calloc(1, sizeof *map);
    if (map == NULL || index == NULL) {
        free(index);
        free(map);
        return NULL;
    }
    const struct map_header *header = index;
    *map = (struct loaded_map){.base = index,
                               .header = header,
                               .files = (const struct map_file *)((char *)index + header->files_offset),
                               .targets = (const struct map_target *)((char *)index + header->targets_offset),
                               .replicas = (const struct map_replica *)((char *)index + header->replicas_offset),
                               .indexes = calloc(header->replica_count, sizeof *map->indexes),
                               .unreachable = unreachable};
    locate_prepare(map, 0, header->replica_count);
    return map;
}

struct range *cached_index_ranges(const struct loaded_map *map, uint64_t *count)
{
    struct range *ranges = malloc(map->header->replica_count * sizeof *ranges);
    *count = map->header->replica_count;
    for (uint32_t i = 0; ranges != NULL && i < map->header->replica_count; i++)
        ranges[i] = (struct range){i, 0, map->replicas[i].size};
    return ranges;
}

void cached_index_free(struct loaded_map *map)
{
    void *index = (void *)(uintptr_t)map->base;
    map_free(map);
    free(index);
}
