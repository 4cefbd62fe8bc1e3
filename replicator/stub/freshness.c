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

struct times {
    int64_t size, mtime_ns, ctime_ns;
};

static struct times times_of(const struct stat *found)
{
    return (struct times){found->st_size, nanoseconds(found->st_mtim), nanoseconds(found->st_ctim)};
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

static bool examine(int fd, struct times *times)
{
    struct stat found;
    if (fd < 0 || quick_fstat(fd, &found) != 0)
        return false;
    *times = times_of(&found);
    return true;
}

/* The low half is `writers`, the high half `epoch` (writing calls begun since publication). */
static uint64_t *word_of(struct state_file *record) { return (uint64_t *)(void *)&record->writers; }
_Static_assert(offsetof(struct state_file, writers) % 8 == 0, "writers and epoch are one aligned word");
_Static_assert(offsetof(struct state_file, epoch) == offsetof(struct state_file, writers) + 4, "in this order");

static uint32_t writers_in(uint64_t word) { return (uint32_t)word; }

static struct state_file *record_of(const struct loaded_map *map, const struct map_file *file)
{
    return &map->state[file - map->files];
}

static bool as_recorded(const struct state_file *record, const struct times *now)
{
    return __atomic_load_n(&record->size, __ATOMIC_RELAXED) == now->size
        && __atomic_load_n(&record->mtime_ns, __ATOMIC_RELAXED) == now->mtime_ns
        && __atomic_load_n(&record->ctime_ns, __ATOMIC_RELAXED) == now->ctime_ns;
}

bool freshness_seems_fresh(const struct loaded_map *map, const struct map_file *file, const struct stat *found)
{
    struct state_file *record = record_of(map, file);
    const struct times then = times_of(found);
    return writers_in(__atomic_load_n(word_of(record), __ATOMIC_SEQ_CST)) == 0 && as_recorded(record, &then);
}

static void freshness_mark_all(const struct loaded_map *map, const struct map_file *file, enum state_stale how)
{
    for (uint32_t i = 0; i < file->replica_count; i++)
        freshness_mark(map, &map->replicas[file->first_replica + i], how);
}

enum freshness freshness_check(const struct loaded_map *map, const struct map_file *file, int fd, int64_t *size)
{
    struct state_file *record = record_of(map, file);
    uint64_t before = __atomic_load_n(word_of(record), __ATOMIC_SEQ_CST);
    struct times now;
    bool known = examine(fd, &now);
    bool same = known && as_recorded(record, &now);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (writers_in(before) > 0 || __atomic_load_n(word_of(record), __ATOMIC_SEQ_CST) != before)
        return STATE_WRITING;
    if (!same) {
        freshness_mark_all(map, file, STALE_CHANGED);
        return STATE_CHANGED;
    }
    *size = now.size;
    return STATE_FRESH;
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

static bool exchange(struct state_file *record, uint64_t *word, uint64_t wanted)
{
    return __atomic_compare_exchange_n(word_of(record), word, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void freshness_write_begin(const struct loaded_map *map, const struct map_file *file, int fd)
{
    struct state_file *record = record_of(map, file);
    uint64_t word = __atomic_load_n(word_of(record), __ATOMIC_SEQ_CST);
    bool as_left;
    do {
        /* The first writer compares before it counts itself: a second one could write before the
         * comparison. */
        struct times now;
        as_left = writers_in(word) > 0 || (examine(fd, &now) && as_recorded(record, &now));
    } while (!exchange(record, &word, word + (UINT64_C(1) << 32) + 1));
    if (!as_left || fd < 0)
        freshness_mark_all(map, file, STALE_CHANGED);
}

void freshness_write_end(const struct loaded_map *map, const struct map_file *file, int fd, bool publish)
{
    struct state_file *record = record_of(map, file);
    uint64_t word = __atomic_load_n(word_of(record), __ATOMIC_SEQ_CST);
    do {
        if (writers_in(word) == 0)
            return; /* somebody replaced the state file's contents; never count below 0 */
        struct times now;
        if (writers_in(word) == 1 && publish && examine(fd, &now)) {
            /* Only the last writer gets here. It starts again if another one has begun meanwhile. */
            __atomic_store_n(&record->size, now.size, __ATOMIC_RELAXED);
            __atomic_store_n(&record->mtime_ns, now.mtime_ns, __ATOMIC_RELAXED);
            __atomic_store_n(&record->ctime_ns, now.ctime_ns, __ATOMIC_RELAXED);
        }
    } while (!exchange(record, &word, word - 1));
}
