#include "leased_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cached_index.h"
#include "collective_consensus.h"
#include "components.h"
#include "locks.h"
#include "open.h"
#include "originals.h"
#include "recovery.h"
#include "write_stats.h"
#include "writeback.h"

/* ---- before the open --------------------------------------------------------------------------------------------- */

/* Makes the original `end` bytes long, under an intent: a process that is killed here has changed the
 * file for no one else. */
static bool extend(const struct loaded_map *published, const struct leased_bytes *leased, const char *directory,
                   const char *path, struct original_state *original, int **components, int64_t end)
{
    struct redirection redirection = {.reader = published == NULL ? NULL : reader_to_mark(published, path)};
    struct file_handle handle = {.intercepted = &redirection};
    struct intent intent;
    struct writer writer = {.map = leased->map, .target = leased->target, .handle = &handle, .intent = &intent,
                            .journals = (char *)(uintptr_t)directory, .components = components, .ranks = 1,
                            .fd = original_open(path, O_WRONLY | O_NOFOLLOW)};
    redirection.writer = &writer;
    bool extended = writer.fd >= 0 && original_examine(writer.fd, path, original)
        && intent_begin(directory, &intent, original) == 0;
    if (extended) {
        extended = extend_original_to(&handle, end) == 0;
        extended = original_examine(writer.fd, path, original) && extended;
        intent_stop(directory, &intent, original);
    }
    original_close(writer.fd);
    if (redirection.reader != NULL)
        reader_free(redirection.reader);
    return extended && original->size >= end;
}

static void free_components(const struct leased_bytes *leased, int **components)
{
    for (uint32_t i = 0; components != NULL && i < leased->target->replica_count; i++)
        components_close(leased->map, leased_replica(leased, i), components[i]);
    free(components);
}

bool leased_prepare(const struct loaded_map *published, const struct loaded_map *map,
                    const struct map_target *target, const char *directory, const char *path,
                    struct original_state *original, struct range *ranges, uint64_t *count)
{
    *count = ranges_merge(ranges, *count);
    const struct leased_bytes leased = {map, target, ranges, *count};
    int **components = target->replica_count > MOST_REPLICAS ? NULL : calloc(target->replica_count,
                                                                             sizeof *components);
    bool readable = components != NULL;
    for (size_t i = 0; readable && i < *count; i++) {
        const uint32_t replica = (uint32_t)ranges[i].replica;
        if (components[replica] == NULL)
            components[replica] = components_make(map, leased_replica(&leased, replica), TIMEOUT_LONG);
        readable = components[replica] != NULL;
    }
    const int64_t end = readable ? leased_end(&leased) : 0;
    if (readable && end > original->size)
        readable = extend(published, &leased, directory, path, original, components, end);
    free_components(&leased, components);
    return readable;
}

/* ---- the open ---------------------------------------------------------------------------------------------------- */

static bool is_original(const struct leased *leased, const struct stat *found)
{
    return S_ISREG(found->st_mode) && found->st_ino == leased->inode && found->st_dev == leased->device;
}

static bool is_as_known(const struct leased *leased, const struct stat *found)
{
    return found->st_size == leased->size && nanoseconds(found->st_mtim) == leased->mtime_ns;
}

struct leased *leased_make(const struct loaded_map *map, bool cached, const struct map_target *target,
                           const char *path, const struct original_state *original, struct range *ranges,
                           uint64_t count)
{
    struct leased *leased = calloc(1, sizeof *leased);
    const struct noted_file noted = {&original->file, path, false};
    struct original_state here = {0};
    const bool same = original_examine(-1, path, &here) && S_ISREG(here.attributes.mode)
        && file_compare(&noted, &here.file, path) == FILE_THIS && here.size == original->size
        && here.mtime_ns == original->mtime_ns;
    if (leased == NULL) {
        free(ranges);
        return NULL;
    }
    *leased = (struct leased){.bytes = {map, target, ranges, count}, .cached = cached, .path = strdup(path),
                              .device = here.file.device, .inode = here.file.inode,
                              .journals = strdup(map_at(map, target->journals)), .size = original->size,
                              .mtime_ns = original->mtime_ns, .fd = -1, .progress = {.end = -1}, .ranks = 1,
                              .written = write_stats_of(map_at(map, target->path), cached),
                              .replicas = calloc(target->replica_count, sizeof *leased->replicas),
                              .lock = cached ? -1 : recovery_lock_readers(map_at(map, target->journals))};
    pthread_rwlock_init(&leased->reading, NULL);
    bool able = ranges != NULL && leased->path != NULL && leased->journals != NULL && leased->written != NULL
        && leased->replicas != NULL && (cached || leased->lock >= 0) && same;
    for (uint32_t i = 0; able && i < target->replica_count; i++)
        able = replica_prepare(leased_replica(&leased->bytes, i), &leased->replicas[i]);
    /* RATIONALE: a cache file may be on a device that only some nodes see, and is removed when its bytes are home. */
    for (uint32_t i = 0; cached && able && i < target->replica_count; i++)
        able = leased_component(leased, i, 0) >= 0;
    if (able)
        return leased;
    leased->cached = false; /* the map stays the caller's */
    leased_free(leased);
    return NULL;
}

void leased_free(struct leased *leased)
{
    const struct loaded_map *map = leased->bytes.map;
    bool abandoned = false;
    for (uint32_t i = 0; leased->replicas != NULL && i < leased->bytes.target->replica_count; i++) {
        const struct map_replica *replica = leased_replica(&leased->bytes, i);
        const struct map_component *files = map_at(map, replica->components);
        struct opened_replica *opened = &leased->replicas[i];
        for (uint32_t number = 0; opened->components != NULL && number < replica->servers; number++)
            if (opened->progress[number].abandoned)
                abandoned = true;
            else if (opened->components[number] >= 0)
                storage_close(map, map_at(map, files[number].path), opened->components[number]);
        free(opened->components);
        free(opened->progress);
    }
    if (leased->agrees && leased->comm != running_mpi()->comm_null)
        running_mpi()->Comm_free(&leased->comm);
    original_close(leased->fd);
    if (leased->lock >= 0)
        close(leased->lock);
    pthread_rwlock_destroy(&leased->reading);
    if (leased->cached && !abandoned) /* a thread may still be at work with it */
        cached_index_free((struct loaded_map *)(uintptr_t)map);
    free(leased->replicas);
    free(leased->bytes.ranges);
    free(leased->journals);
    free(leased->path);
    free(leased);
}

void leased_opened(struct leased *leased, struct file_handle *handle, mpi_handle comm, int rank, int ranks)
{
    const struct mpi *mpi = running_mpi();
    struct stat found;
    int64_t mine = handle != NULL, all = 0;
    leased->rank = rank;
    leased->ranks = ranks;
    leased->comm = mpi->comm_null;
    /* If not all ranks have the file open, each of them writes the bytes back before it reads. */
    if (agree_reduce(&mine, &all, 1, mpi->op_min, comm) && all != 0)
        leased->agrees = ranks == 1 || mpi->Comm_dup(comm, &leased->comm) == 0;
    if (handle == NULL) {
        leased_free(leased);
        return;
    }
    leased->fd = original_open(leased->path, O_RDONLY | O_NOFOLLOW);
    if (leased->fd >= 0 && (fstat(leased->fd, &found) != 0 || !is_original(leased, &found))) {
        original_close(leased->fd);
        leased->fd = -1;
    }
    redirection_of(handle)->leased = leased;
}

/* ---- while it is open -------------------------------------------------------------------------------------------- */

bool leased_holds(const struct leased *leased, int64_t *size)
{
    struct intent intent;
    struct stat found;
    if (__atomic_load_n(&leased->ended, __ATOMIC_ACQUIRE) || leased->fd < 0 || fstat(leased->fd, &found) != 0)
        return false;
    *size = found.st_size;
    /* A file that was deleted has no other newest bytes. */
    if (is_as_known(leased, &found) || found.st_nlink == 0)
        return true;
    return intent_read(leased->journals, &intent) == INTENT_THERE && intent.inode == leased->inode
        && intent_covers(&intent, found.st_size, nanoseconds(found.st_mtim));
}

/* The name that the original has now. False: it was deleted, or cannot be examined. */
static bool present_path(const struct leased *leased, char path[4096])
{
    char link[32];
    struct stat found;
    if (leased->fd < 0)
        return snprintf(path, 4096, "%s", leased->path) < 4096;
    snprintf(link, sizeof link, "/proc/self/fd/%d", leased->fd);
    const ssize_t length = readlink(link, path, 4095);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 && fstat(leased->fd, &found) == 0 && found.st_nlink > 0;
}

int leased_bring_home(struct leased *leased, bool together)
{
    char path[4096];
    int kept;
    uint32_t word = 0;
    const bool all = together && leased->agrees;
    int64_t mine = present_path(leased, path), found = mine;
    if (__atomic_load_n(&leased->ended, __ATOMIC_ACQUIRE) && !all)
        return 0;
    if (all && (!agree_reduce(&mine, &found, 1, running_mpi()->op_min, leased->comm)))
        found = 0;
    if (!found)
        return EIO;
    if (all ? recovery_before_open(leased->comm, leased->rank, leased->ranks, path, NULL, &kept, NULL, &word) != NULL
            : recovery_by_one_process(path) != 0)
        return EIO;
    pthread_rwlock_wrlock(&leased->reading);
    __atomic_store_n(&leased->ended, true, __ATOMIC_RELEASE);
    if (leased->lock >= 0)
        close(leased->lock);
    leased->lock = -1;
    pthread_rwlock_unlock(&leased->reading);
    return 0;
}

int leased_component(struct leased *leased, uint32_t replica, uint32_t number)
{
    const struct loaded_map *map = leased->bytes.map;
    const struct map_component *component =
        (const struct map_component *)map_at(map, leased_replica(&leased->bytes, replica)->components) + number;
    const char *path = map_at(map, component->path);
    int *place = &leased->replicas[replica].components[number], fd = __atomic_load_n(place, __ATOMIC_ACQUIRE),
        none = -1;
    if (fd >= 0 || (fd = component_open(map, component, O_RDONLY, TIMEOUT_LONG)) < 0)
        return fd;
    struct progress *progress = &leased->replicas[replica].progress[number];
    __atomic_store_n(&progress->remote, storage_remote(path) ? path : NULL, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(place, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fd;
    storage_close(map, path, fd); /* another thread was faster */
    return none;
}
