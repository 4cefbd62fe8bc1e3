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

/* The part [start, stop) of a map in which all of something has to be. */
struct image {
    const char *base;
    uint64_t start, stop;
};

static bool array_inside(const struct image *image, uint32_t offset, uint64_t count, size_t element)
{
    return offset % 8 == 0 && offset >= image->start && offset <= image->stop
        && count <= (image->stop - offset) / element;
}

static bool text_inside(const struct image *image, uint32_t offset)
{
    return offset >= image->start && offset < image->stop
        && memchr(image->base + offset, '\0', image->stop - offset) != NULL;
}

static bool path_inside(const struct image *image, uint32_t offset)
{
    return text_inside(image, offset) && image->base[offset] == '/';
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

/* What a map has of a file or of a target. */
struct entry {
    uint32_t first_replica, replica_count, body, body_size, checksum;
};

static struct entry entry_of_file(const struct map_file *file)
{
    return (struct entry){file->first_replica, file->replica_count, file->body, file->body_size, file->checksum};
}

static struct entry entry_of_target(const struct map_target *target)
{
    return (struct entry){target->first_replica, target->replica_count, target->body, target->body_size,
                          target->checksum};
}

/* `number` counts the files, then the targets. */
static struct entry entry_of(const struct loaded_map *map, uint32_t number)
{
    const uint32_t files = map->header->file_count;
    return number < files ? entry_of_file(&map->files[number]) : entry_of_target(&map->targets[number - files]);
}

/* Whether the replicas of an entry are the next ones after those of others. */
static bool comes_next(const struct map_header *header, struct entry entry, uint32_t *replica)
{
    const uint32_t first = *replica;
    if (entry.first_replica != first || entry.replica_count > header->replica_count - first)
        return false;
    *replica += entry.replica_count;
    return true;
}

static const char *check_header(const struct map_header *header, size_t size)
{
    if (size < sizeof *header)
        return "it is too short";
    if (memcmp(header->magic, MAPFILE_MAGIC, sizeof header->magic) != 0)
        return memcmp(header->magic, MAPFILE_MAGIC, sizeof header->magic - 1) == 0
            ? "it is of another version of pdla (pdla gc writes a new one)"
            : "it is not a map of replicas";
    if (header->total_size != size)
        return "it was cut short or is too long";
    if (header->replicas_offset < sizeof *header || header->replicas_offset > size)
        return "an offset leaves the file";
    const char *base = (const char *)header;
    const size_t after = offsetof(struct map_header, checksum) + sizeof header->checksum;
    const uint32_t before = crc32c(0, base, offsetof(struct map_header, checksum));
    if (crc32c(before, base + after, header->replicas_offset - after) != header->checksum)
        return "its checksum does not match";
    return NULL;
}

/* Checks all but the entries. */
static const char *check_index(const struct map_header *header, size_t size)
{
    const char *base = (const char *)header, *why = check_header(header, size);
    if (why != NULL)
        return why;
    const struct image index = {base, sizeof *header, header->replicas_offset};
    const struct image whole = {base, sizeof *header, size};
    if (!array_inside(&index, header->files_offset, header->file_count, sizeof(struct map_file))
        || !array_inside(&index, header->targets_offset, header->target_count, sizeof(struct map_target))
        || !array_inside(&whole, header->replicas_offset, header->replica_count, sizeof(struct map_replica))
        || !path_inside(&index, header->state_path))
        return "an offset leaves the file";
    const struct map_file *files = (const struct map_file *)(base + header->files_offset);
    uint32_t replica = 0;
    for (uint32_t i = 0; i < header->file_count; i++) {
        if (files[i].identity.size < 0 || !comes_next(header, entry_of_file(&files[i]), &replica)
            || (i > 0 && !in_order(&files[i - 1], &files[i])))
            return "a file's entry is wrong";
    }
    const struct map_target *targets = (const struct map_target *)(base + header->targets_offset);
    for (uint32_t i = 0; i < header->target_count; i++) {
        const struct map_target *target = &targets[i];
        if (!path_inside(&index, target->path) || !path_inside(&index, target->journals)
            || !text_inside(&index, target->name) || !comes_next(header, entry_of_target(target), &replica)
            || (i > 0
                && compare_targets(target - 1, name_of(&index, target - 1), target, name_of(&index, target)) >= 0))
            return "a target's entry is wrong";
    }
    return replica == header->replica_count ? NULL : "a replica is of no file";
}

static const char *check_entry(const struct loaded_map *map, uint32_t number, struct entry entry)
{
    const struct map_header *header = map->header;
    const struct map_file *file = number < header->file_count ? &map->files[number] : NULL;
    const uint32_t owner = file != NULL ? number : number - header->file_count;
    const int64_t size = file != NULL ? file->identity.size : INT64_MAX;
    const struct image whole = {map->base, sizeof *header, header->total_size};
    const struct image body = {map->base, entry.body, (uint64_t)entry.body + entry.body_size};
    const struct map_replica *replicas = &map->replicas[entry.first_replica];
    if (!array_inside(&whole, entry.body, entry.body_size, 1))
        return "an offset leaves the file";
    const uint32_t checksum = crc32c(0, replicas, entry.replica_count * sizeof *replicas);
    if (crc32c(checksum, map->base + entry.body, entry.body_size) != entry.checksum)
        return "its checksum does not match";
    if (file != NULL && !path_inside(&body, file->path))
        return "a file's entry is wrong";
    for (uint32_t i = 0; i < entry.replica_count; i++) {
        if (!replica_fits(&body, &replicas[i], owner, size) || (file == NULL && !is_dense(&body, &replicas[i])))
            return "a replica's entry is wrong";
    }
    return NULL;
}

/* What is known of the entries. */
struct map_checks {
    const char *damage; /* atomic, like the others */
    bool sound[];       /* the files, then the targets */
};

/* Checks an entry once, and prepares its replicas. */
static bool is_sound(const struct loaded_map *map, uint32_t number)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct map_checks *checks = map->checks;
    if (checks == NULL || __atomic_load_n(&checks->sound[number], __ATOMIC_ACQUIRE))
        return true;
    pthread_mutex_lock(&lock);
    bool sound = __atomic_load_n(&checks->sound[number], __ATOMIC_RELAXED);
    if (!sound) {
        const struct entry entry = entry_of(map, number);
        const char *why = check_entry(map, number, entry);
        if (why != NULL)
            __atomic_store_n(&checks->damage, why, __ATOMIC_RELAXED);
        else
            locate_prepare(map, entry.first_replica, entry.replica_count);
        sound = why == NULL;
        __atomic_store_n(&checks->sound[number], sound, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return sound;
}

const char *map_damage(const struct loaded_map *map)
{
    return map->checks == NULL ? NULL : __atomic_load_n(&map->checks->damage, __ATOMIC_RELAXED);
}

const struct map_file *map_file_at(const struct loaded_map *map, uint64_t number)
{
    return number < map->header->file_count && is_sound(map, (uint32_t)number) ? &map->files[number] : NULL;
}

const struct map_target *map_target_at(const struct loaded_map *map, uint64_t number)
{
    const struct map_header *header = map->header;
    return number < header->target_count && is_sound(map, header->file_count + (uint32_t)number)
        ? &map->targets[number] : NULL;
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
    map->stale = (uint8_t *)base + sizeof *header + files * sizeof(struct state_file);
    const uint64_t unreachable = (sizeof *header + files * sizeof(struct state_file) + replicas + 7) / 8 * 8;
    static uint64_t unshared[STATE_PLACES];
    const bool shared = (uint64_t)found.st_size >= unreachable + sizeof unshared;
    map->unreachable = shared ? (uint64_t *)(void *)(base + unreachable) : unshared;
    return NULL;
}

struct loaded_map *map_of(const void *base, size_t size, const char **why)
{
    const struct map_header *header = base;
    if ((*why = check_index(header, size)) != NULL)
        return NULL;
    struct loaded_map *map = malloc(sizeof *map);
    const size_t entries = (size_t)header->file_count + header->target_count;
    struct map_checks *checks = calloc(1, sizeof *checks + entries * sizeof *checks->sound);
    if (map == NULL || checks == NULL) {
        *why = "out of memory";
        free(checks);
        free(map);
        return NULL;
    }
    *map = (struct loaded_map){
        .base = base,
        .header = header,
        .files = (const struct map_file *)((const char *)base + header->files_offset),
        .targets = (const struct map_target *)((const char *)base + header->targets_offset),
        .replicas = (const struct map_replica *)((const char *)base + header->replicas_offset),
        .indexes = calloc(header->replica_count, sizeof *map->indexes),
        .checks = checks,
    };
    return map;
}

void map_free(struct loaded_map *map)
{
    for (uint32_t i = 0; map->indexes != NULL && i < map->header->replica_count; i++)
        free(map->indexes[i]);
    free(map->indexes);
    free(map->checks);
    free(map);
}

static struct loaded_map *load(const char *path, const char **why)
{
    struct stat found;
    char *base = map_whole(path, O_RDONLY, PROT_READ, &found, why);
    struct loaded_map *map = base == NULL ? NULL : map_of(base, (size_t)found.st_size, why);
    if (map != NULL && (*why = load_state(map)) != NULL) {
        map_free(map);
        map = NULL;
    }
    if (map == NULL) {
        if (base != NULL)
            munmap(base, (size_t)found.st_size);
        return NULL;
    }
    map->device = found.st_dev;
    map->inode = found.st_ino;
    map->mtime_ns = nanoseconds(found.st_mtim);
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
    if (map != NULL && map_damage(map) != NULL) {
        *why = map_damage(map);
        return NULL;
    }
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
        int like = !is_sound(map, (uint32_t)(file - map->files)) ? 0
            : likeness(map, file->path, file->identity.device, path, device);
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
    return best == NULL ? NULL : map_target_at(map, (uint64_t)(best - map->targets));
}
