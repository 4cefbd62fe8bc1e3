#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "locate.h"

/* ---- checking ---------------------------------------------------------------------------------------------------- */

struct image {
    const char *base;
    size_t size;
};

static bool array_inside(const struct image *image, uint32_t offset, uint64_t count, size_t element)
{
    return offset % 8 == 0 && offset <= image->size && count <= (image->size - offset) / element;
}

static bool path_inside(const struct image *image, uint32_t offset)
{
    return offset < image->size && image->base[offset] == '/'
        && memchr(image->base + offset, '\0', image->size - offset) != NULL;
}

/* True if base + count * step >= 0 can be computed. */
static bool add_product(int64_t *base, int64_t count, int64_t step)
{
    int64_t product;
    return !__builtin_mul_overflow(count, step, &product) && !__builtin_add_overflow(*base, product, base);
}

static bool loops_fit(const struct image *image, const struct map_replica *replica, int64_t original_size)
{
    if (!array_inside(image, replica->loops, replica->loop_count, sizeof(struct map_loop)))
        return false;
    if (replica->start < 0 || replica->length <= 0 || replica->replica_start < 0)
        return false;
    const struct map_loop *loops = (const struct map_loop *)(image->base + replica->loops);
    int64_t span = replica->length, low = replica->replica_start, high = low;
    for (uint32_t k = replica->loop_count; k-- > 0;) {
        if (loops[k].count < 1 || loops[k].stride < span || !add_product(&span, loops[k].count - 1, loops[k].stride)
            || !add_product(loops[k].replica_stride < 0 ? &low : &high, loops[k].count - 1, loops[k].replica_stride))
            return false;
    }
    int64_t stop = replica->start;
    return add_product(&stop, 1, span) && stop <= original_size && add_product(&high, 1, replica->length) && low >= 0
        && high <= replica->size;
}

static bool extents_fit(const struct image *image, const struct map_replica *replica, int64_t original_size)
{
    if (replica->loop_count != 0 || replica->start != 0 || replica->length != 0 || replica->replica_start != 0
        || !array_inside(image, replica->extents, replica->extent_count, sizeof(struct map_extent)))
        return false;
    const struct map_extent *extents = (const struct map_extent *)(image->base + replica->extents);
    int64_t stop = 0;
    for (uint32_t i = 0; i < replica->extent_count; i++) {
        if (extents[i].start < stop || extents[i].length <= 0 || extents[i].length > original_size - extents[i].start
            || extents[i].replica_start < 0 || extents[i].length > replica->size
            || extents[i].replica_start > replica->size - extents[i].length)
            return false;
        stop = extents[i].start + extents[i].length;
    }
    return true;
}

static bool striping_fits(const struct image *image, const struct map_replica *replica)
{
    if (replica->servers == 0 || replica->groups == 0 || replica->servers % replica->groups != 0
        || replica->section <= 0 || replica->size < 0)
        return false;
    uint32_t width = replica->servers / replica->groups;
    if (!array_inside(image, replica->strips, width, sizeof(int64_t))
        || !array_inside(image, replica->components, replica->servers, sizeof(struct map_component)))
        return false;
    const int64_t *strips = (const int64_t *)(image->base + replica->strips);
    int64_t cycle = 0, widest = 0;
    for (uint32_t j = 0; j < width; j++) {
        if (strips[j] < 0 || !add_product(&cycle, 1, strips[j]))
            return false;
        widest = strips[j] > widest ? strips[j] : widest;
    }
    if (cycle == 0)
        return false;
    /* No offset in a component is larger than the end of the last section's part. */
    int64_t rows = replica->section / cycle + (replica->section % cycle != 0), part = 0, largest = 0;
    if (!add_product(&part, rows, widest)
        || !add_product(&largest, replica->size / replica->section / replica->groups, part)
        || !add_product(&largest, 1, part))
        return false;
    const struct map_component *components = (const struct map_component *)(image->base + replica->components);
    for (uint32_t i = 0; i < replica->servers; i++)
        if (!path_inside(image, components[i].path) || components[i].size < 0)
            return false;
    return true;
}

static int by_place(const void *one, const void *other)
{
    const struct map_extent *a = one, *b = other;
    return a->replica_start < b->replica_start ? -1 : a->replica_start > b->replica_start;
}

static bool extents_are_dense(const struct image *image, const struct map_replica *replica)
{
    const size_t bytes = replica->extent_count * sizeof(struct map_extent);
    struct map_extent *extents = malloc(bytes);
    int64_t end = 0;
    if (extents == NULL)
        return false;
    memcpy(extents, image->base + replica->extents, bytes);
    qsort(extents, replica->extent_count, sizeof *extents, by_place);
    for (uint32_t i = 0; i < replica->extent_count && extents[i].replica_start == end; i++)
        end += extents[i].length;
    free(extents);
    return end == replica->size;
}

/* Whether each byte of a target's replica stands for one of the original. The inverse of a regular
 * map is found by division. */
static bool is_dense(const struct image *image, const struct map_replica *replica)
{
    if (replica->extent_count > 0)
        return extents_are_dense(image, replica);
    const struct map_loop *loops = (const struct map_loop *)(image->base + replica->loops);
    int64_t dense = replica->length, low = replica->replica_start;
    for (uint32_t found = 0; found < replica->loop_count; found++) {
        uint32_t k = 0;
        while (k < replica->loop_count && (loops[k].count < 2 || llabs(loops[k].replica_stride) != dense))
            k++;
        if (k == replica->loop_count)
            break;
        low += loops[k].replica_stride < 0 ? loops[k].replica_stride * (loops[k].count - 1) : 0;
        dense *= loops[k].count;
    }
    return low == 0 && dense == replica->size;
}

/* Whether an entry of the table of replicas is sound and belongs to `owner`. */
static bool replica_fits(const struct image *image, const struct map_replica *replica, uint32_t owner,
                         int64_t original_size)
{
    bool fits = replica->extent_count > 0 ? extents_fit(image, replica, original_size)
                                          : loops_fit(image, replica, original_size);
    return fits && replica->file == owner && striping_fits(image, replica);
}

static const char *name_of(const struct image *image, const struct map_target *target)
{
    return image->base + target->name;
}

static bool name_inside(const struct image *image, uint32_t offset)
{
    return offset < image->size && memchr(image->base + offset, '\0', image->size - offset) != NULL;
}

static int compare_targets(const struct map_target *one, const char *one_name, const struct map_target *other,
                           const char *other_name)
{
    if (one->inode != other->inode)
        return one->inode < other->inode ? -1 : 1;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return strcmp(one_name, other_name);
}

static bool in_order(const struct map_file *earlier, const struct map_file *later)
{
    if (earlier->identity.inode != later->identity.inode)
        return earlier->identity.inode < later->identity.inode;
    return earlier->identity.device < later->identity.device;
}

const char *map_check(const void *base, size_t size)
{
    const struct image image = {base, size};
    const struct map_header *header = base;
    if (size < sizeof *header)
        return "it is too short";
    if (memcmp(header->magic, MAPFILE_MAGIC, sizeof header->magic) != 0)
        return memcmp(header->magic, MAPFILE_MAGIC, sizeof header->magic - 1) == 0
            ? "it is of another version of pdla (pdla gc writes a new one)"
            : "it is not a map of replicas";
    if (header->total_size != size)
        return "it was cut short or is too long";
    size_t after = offsetof(struct map_header, checksum) + sizeof header->checksum;
    uint32_t before = crc32c(0, base, offsetof(struct map_header, checksum));
    if (crc32c(before, image.base + after, size - after) != header->checksum)
        return "its checksum does not match";
    if (!array_inside(&image, header->files_offset, header->file_count, sizeof(struct map_file))
        || !array_inside(&image, header->replicas_offset, header->replica_count, sizeof(struct map_replica))
        || !array_inside(&image, header->targets_offset, header->target_count, sizeof(struct map_target))
        || !path_inside(&image, header->state_path))
        return "an offset leaves the file";
    const struct map_file *files = (const struct map_file *)(image.base + header->files_offset);
    const struct map_replica *replicas = (const struct map_replica *)(image.base + header->replicas_offset);
    uint32_t replica = 0;
    for (uint32_t i = 0; i < header->file_count; i++) {
        const struct map_file *file = &files[i];
        if (!path_inside(&image, file->path) || file->identity.size < 0 || file->first_replica != replica
            || file->replica_count > header->replica_count - replica || (i > 0 && !in_order(file - 1, file)))
            return "a file's entry is wrong";
        for (uint32_t last = replica + file->replica_count; replica < last; replica++) {
            if (!replica_fits(&image, &replicas[replica], i, file->identity.size))
                return "a replica's entry is wrong";
        }
    }
    const struct map_target *targets = (const struct map_target *)(image.base + header->targets_offset);
    for (uint32_t i = 0; i < header->target_count; i++) {
        const struct map_target *target = &targets[i];
        if (!path_inside(&image, target->path) || !path_inside(&image, target->journals)
            || !name_inside(&image, target->name) || target->first_replica != replica
            || target->replica_count > header->replica_count - replica
            || (i > 0
                && compare_targets(target - 1, name_of(&image, target - 1), target, name_of(&image, target)) >= 0))
            return "a target's entry is wrong";
        for (uint32_t last = replica + target->replica_count; replica < last; replica++) {
            const struct map_replica *entry = &replicas[replica];
            if (!replica_fits(&image, entry, i, INT64_MAX) || !is_dense(&image, entry))
                return "a replica's entry is wrong";
        }
    }
    return replica == header->replica_count ? NULL : "a replica is of no file";
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Maps a regular file. *why is set if the result is NULL. */
static void *map_whole(const char *path, int flags, int protection, struct stat *found, const char **why)
{
    *why = "it cannot be opened";
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    void *base = MAP_FAILED;
    if (fstat(fd, found) != 0 || !S_ISREG(found->st_mode) || found->st_size == 0)
        *why = "it is empty or not a regular file";
    else if (protection == PROT_READ
             && ((found->st_uid != 0 && found->st_uid != geteuid()) || (found->st_mode & (S_IWGRP | S_IWOTH))))
        *why = "it is neither the user's nor root's, or others may write to it";
    else if ((base = mmap(NULL, (size_t)found->st_size, protection, MAP_SHARED, fd, 0)) == MAP_FAILED)
        *why = "it cannot be mapped";
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

/* Attaches the state file of a checked map. */
static const char *load_state(struct loaded_map *map)
{
    struct stat found;
    const char *why;
    char *base = map_whole(map_at(map, map->header->state_path), O_RDWR, PROT_READ | PROT_WRITE, &found, &why);
    if (base == NULL)
        return "its state file is missing or not writable";
    const struct state_header *header = (const struct state_header *)base;
    uint32_t files = map->header->file_count, replicas = map->header->replica_count;
    if ((uint64_t)found.st_size < sizeof *header
        || memcmp(header->magic, MAPFILE_STATE_MAGIC, sizeof header->magic) != 0
        || header->generation != map->header->generation || header->file_count != files
        || header->replica_count != replicas
        || (uint64_t)found.st_size < sizeof *header + files * sizeof(struct state_file) + replicas) {
        munmap(base, (size_t)found.st_size);
        return "its state file is of another map";
    }
    map->state_device = found.st_dev;
    map->state_inode = found.st_ino;
    map->state = (struct state_file *)(base + sizeof *header);
    map->stale = (uint8_t *)(map->state + files);
    const uint64_t unreachable = (sizeof *header + files * sizeof(struct state_file) + replicas + 7) / 8 * 8;
    static uint64_t unshared[STATE_PLACES];
    const bool shared = (uint64_t)found.st_size >= unreachable + sizeof unshared;
    map->unreachable = shared ? (uint64_t *)(void *)(base + unreachable) : unshared;
    return NULL;
}

static struct loaded_map *load(const char *path, const char **why)
{
    struct stat found;
    struct loaded_map *map = malloc(sizeof *map);
    if (map == NULL) {
        *why = "out of memory";
        return NULL;
    }
    char *base = map_whole(path, O_RDONLY, PROT_READ, &found, why);
    if (base == NULL) {
        free(map);
        return NULL;
    }
    if ((*why = map_check(base, (size_t)found.st_size)) == NULL) {
        const struct map_header *header = (const struct map_header *)base;
        *map = (struct loaded_map){
            .base = base,
            .header = header,
            .files = (const struct map_file *)(base + header->files_offset),
            .targets = (const struct map_target *)(base + header->targets_offset),
            .replicas = (const struct map_replica *)(base + header->replicas_offset),
            .device = found.st_dev,
            .inode = found.st_ino,
            .mtime_ns = nanoseconds(found.st_mtim),
        };
        *why = load_state(map);
    }
    if (*why == NULL) {
        locate_prepare(map);
    } else {
        munmap(base, (size_t)found.st_size);
        free(map);
        return NULL;
    }
    return map;
}

const struct loaded_map *map_current(const char *path, const char **why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct loaded_map *newest;
    struct stat found;
    if (stat(path, &found) != 0) {
        *why = "it cannot be opened";
        return NULL;
    }
    pthread_mutex_lock(&lock);
    const struct loaded_map *map = newest;
    if (map == NULL || map->device != found.st_dev || map->inode != found.st_ino
        || map->mtime_ns != nanoseconds(found.st_mtim)) {
        struct loaded_map *another = load(path, why);
        if (another != NULL) {
            another->next = newest;
            newest = another;
        }
        map = another;
    }
    pthread_mutex_unlock(&lock);
    return map;
}

/* Of `count` entries of `size` bytes, sorted by inode, the first one with this inode or a larger
 * one. */
static uint32_t first_with(const void *entries, size_t size, uint32_t count, uint64_t inode)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct map_identity *entry = (const struct map_identity *)((const char *)entries + middle * size);
        if (entry->inode < inode)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
_Static_assert(offsetof(struct map_file, identity) == 0, "begins with device and inode");
_Static_assert(offsetof(struct map_target, inode) == offsetof(struct map_identity, inode), "likewise");

/* How well an entry with the right inode matches; 0: not at all. The path counts more, since device
 * numbers change. */
static int likeness(const struct loaded_map *map, uint32_t its_path, uint64_t its_device, const char *path,
                    uint64_t device)
{
    return 2 * (strcmp(map_at(map, its_path), path) == 0) + (its_device == device);
}

const struct map_file *map_find(const struct loaded_map *map, const char *path, uint64_t device, uint64_t inode)
{
    const struct map_file *best = NULL, *file = map->files, *end = map->files + map->header->file_count;
    int most = 0;
    for (file += first_with(file, sizeof *file, map->header->file_count, inode);
         file < end && file->identity.inode == inode; file++) {
        int like = likeness(map, file->path, file->identity.device, path, device);
        if (like > most) {
            most = like;
            best = file;
        }
    }
    return best;
}

const struct map_target *map_find_target(const struct loaded_map *map, const char *path, uint64_t device,
                                         uint64_t inode, const char *name)
{
    const struct map_target *best = NULL, *target = map->targets, *end = map->targets + map->header->target_count;
    int most = 0;
    for (target += first_with(target, sizeof *target, map->header->target_count, inode);
         target < end && target->inode == inode; target++) {
        int like = strcmp(map_at(map, target->name), name) != 0 ? 0
            : likeness(map, target->path, target->device, path, device);
        if (like > most) {
            most = like;
            best = target;
        }
    }
    return best;
}
