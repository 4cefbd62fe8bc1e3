#define _GNU_SOURCE
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_size.h"
#include "loadedmap.h"
#include "locks.h"
#include "node_directory.h"

enum {
    GROWTH = 64 << 10,
    MOST_NAMES = 4096, /* that processes of the same host name and number may have taken */
    SMALL = 1 << 20 /* bytes of a journal whose entries stay in memory */
};

static uint64_t seal_of(const struct journal_entry *entry, uint32_t length)
{
    const uint64_t words[] = {entry->place, (uint64_t)entry->start, entry->stamp, length};
    return (uint64_t)crc32c(0, words, sizeof words) << 32 | length;
}

/* Maps a file of `size` bytes; no larger than it is mapped already, except at first. */
static bool map_entries(struct journal *journal, int fd, size_t size)
{
    const int access = PROT_READ | PROT_WRITE;
    void *header = journal->header;
    if (header == NULL && (header = mmap(NULL, JOURNAL_HEADER, access, MAP_SHARED, fd, 0)) == MAP_FAILED)
        return false;
    journal->header = header;
    if (size == JOURNAL_HEADER)
        return true;
    void *entries = journal->entries == NULL
        ? mmap(NULL, size - JOURNAL_HEADER, access, MAP_SHARED, fd, JOURNAL_HEADER)
        : mremap(journal->entries, journal->size - JOURNAL_HEADER, size - JOURNAL_HEADER, MREMAP_MAYMOVE);
    if (entries == MAP_FAILED)
        return false;
    journal->entries = entries;
    journal->size = size;
    return true;
}

int journal_map(struct journal *journal, int fd)
{
    struct stat found;
    *journal = (struct journal)JOURNAL_NONE;
    if (fstat(fd, &found) != 0 || !map_entries(journal, fd, (size_t)found.st_size)) {
        const int error = errno;
        journal_unmap(journal);
        return error;
    }
    return 0;
}

void journal_unmap(struct journal *journal)
{
    if (journal->entries != NULL)
        munmap(journal->entries, journal->size - JOURNAL_HEADER);
    if (journal->header != NULL)
        munmap(journal->header, JOURNAL_HEADER);
    journal->entries = NULL;
    journal->header = NULL;
}

/* RATIONALE: the space is allocated. A store into a hole of a file on a full disk kills the
 * program. */
static int grow(struct journal *journal)
{
    size_t size = journal->size + GROWTH;
    int error = file_size_allowed((int64_t)size) ? posix_fallocate(journal->fd, 0, (off_t)size) : EFBIG;
    if (error != 0)
        return error;
    journal_rest(journal);
    return map_entries(journal, journal->fd, size) ? 0 : errno;
}

int64_t clock_real_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return nanoseconds(time);
}

static int64_t statx_ns(struct statx_timestamp time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static struct file_attributes attributes_of(const struct statx *found)
{
    return (struct file_attributes){found->stx_mode, found->stx_uid, found->stx_gid, found->stx_nlink};
}

bool original_examine(int fd, const char *path, struct original_state *sight)
{
    struct statx found;
    struct file_identity file;
    if (!file_identify(fd, path, &file, &found))
        return false;
    *sight = (struct original_state){.file = file,
                                     .size = (int64_t)found.stx_size,
                                     .mtime_ns = statx_ns(found.stx_mtime),
                                     .ctime_ns = statx_ns(found.stx_ctime),
                                     .attributes = attributes_of(&found),
                                     .path = path};
    return true;
}

enum which_file journal_is_of(const struct journal_header *header, const struct original_state *original)
{
    const struct noted_file noted = {&header->original, header->target, journal_is_of_this_boot(header)};
    return original == NULL ? FILE_OTHER : file_compare(&noted, &original->file, original->path);
}

bool journal_explains_ctime(const struct journal_header *header, const struct journal_state *state,
                            const struct original_state *original)
{
    const struct file_attributes *then = &state->attributes, *now = &original->attributes;
    return strcmp(header->target, original->path) != 0 || (then->mode != 0 && memcmp(then, now, sizeof *then) != 0);
}

bool journal_left_as(const struct journal_header *header, const struct journal_state *state,
                     const struct original_state *original)
{
    return state->size == original->size && state->mtime_ns == original->mtime_ns
        && (state->ctime_ns == original->ctime_ns || journal_explains_ctime(header, state, original));
}

/* ---- what changes in the header ---------------------------------------------------------------------------------- */

static uint64_t number_sealed(const struct journal_header *header, const uint64_t *which, uint64_t number)
{
    const uint64_t words[] = {number, (uint64_t)((const char *)which - (const char *)header)};
    return (uint64_t)crc32c(header->checksum, words, sizeof words) << 32 | number;
}

bool journal_number(const struct journal_header *header, const uint64_t *which, uint64_t *number)
{
    const uint64_t word = __atomic_load_n(which, __ATOMIC_ACQUIRE);
    *number = word & UINT32_MAX;
    return word == number_sealed(header, which, *number);
}

static void set_number(struct journal_header *header, uint64_t *which, uint64_t number)
{
    __atomic_store_n(which, number_sealed(header, which, number), __ATOMIC_RELEASE);
}

static uint32_t state_checksum(const struct journal_header *header, const struct journal_state *state)
{
    return crc32c(header->checksum, state, offsetof(struct journal_state, checksum));
}

bool journal_state_of(const struct journal_header *header, struct journal_state *state)
{
    bool any = false;
    for (int i = 0; i < 2; i++) {
        const struct journal_state found = header->states[i];
        if (found.checksum != state_checksum(header, &found) || (any && found.sequence < state->sequence))
            continue;
        *state = found;
        any = true;
    }
    return any;
}

static void put_state(struct journal *journal)
{
    struct journal_state *state = &journal->state;
    state->sequence++;
    state->checksum = state_checksum(journal->header, state);
    journal->header->states[state->sequence % 2] = *state;
}

static void note_original(struct journal *journal, int original)
{
    struct statx found;
    if (statx(original, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &found) != 0)
        return;
    journal->state.size = (int64_t)found.stx_size;
    journal->state.mtime_ns = statx_ns(found.stx_mtime);
    journal->state.ctime_ns = statx_ns(found.stx_ctime);
    journal->state.attributes = attributes_of(&found);
}

static uint32_t checksum_of(const struct journal_header *header)
{
    size_t start = offsetof(struct journal_header, rank), stop = offsetof(struct journal_header, count);
    return crc32c(0, (const char *)header + start, stop - start);
}

void journal_seal(struct journal_header *header, uint64_t count, uint64_t synced, uint64_t home)
{
    header->checksum = checksum_of(header);
    memcpy(header->magic, JOURNAL_MAGIC, sizeof header->magic);
    set_number(header, &header->count, count);
    set_number(header, &header->synced, synced);
    set_number(header, &header->home, home);
    for (int i = 0; i < 2; i++)
        header->states[i].checksum = state_checksum(header, &header->states[i]);
}

/* Returns the length of the whole name. */
static int name_cache(char cache[1024], const char *directory, const char *journal)
{
    const char *name = strrchr(journal, '/') + 1;
    return snprintf(cache, 1024, "%s/pdla-%.*s.cache", directory, (int)(strrchr(name, '.') - name), name);
}

static void fill(struct journal *journal, const struct journal_owner *owner, int original)
{
    struct journal_header *header = journal->header;
    struct statx ignored;
    file_identify(original, NULL, &header->original, &ignored);
    header->rank = owner->rank;
    node_boot(header->boot);
    gethostname(header->host, sizeof header->host - 1);
    header->pid = getpid();
    header->lease = owner->lease;
    strcpy(header->target, owner->target);
    if (owner->cache != NULL)
        name_cache(header->cache, owner->cache, journal->path);
    journal_seal(header, 0, 0, 0);
    journal->state.size = -1;
    if (!owner->others_write)
        note_original(journal, original);
    journal->state.stamp_ns = clock_real_ns();
    put_state(journal);
    put_state(journal);
}

bool journal_check(const struct journal_header *header, size_t size)
{
    struct journal_state state;
    uint64_t count, synced, home;
    return size >= JOURNAL_HEADER && memcmp(header->magic, JOURNAL_MAGIC, sizeof header->magic) == 0
        && header->checksum == checksum_of(header) && memchr(header->target, 0, sizeof header->target) != NULL
        && memchr(header->cache, 0, sizeof header->cache) != NULL
        && journal_number(header, &header->count, &count) && journal_number(header, &header->synced, &synced)
        && journal_number(header, &header->home, &home)
        && count <= (size - JOURNAL_HEADER) / sizeof(struct journal_entry) && synced <= count
        && journal_state_of(header, &state);
}

static uint64_t cache_checksum(const struct journal_header *header, uint64_t inode)
{
    return crc32c(header->checksum, &inode, sizeof inode);
}

uint64_t journal_cache_inode(const struct journal_header *header)
{
    const struct own_file file = header->cache_file;
    return file.checksum == cache_checksum(header, file.inode) ? file.inode : 0;
}

void journal_set_cache(struct journal *journal, uint64_t inode)
{
    journal->header->cache_file = (struct own_file){inode, cache_checksum(journal->header, inode)};
}

bool journal_is_of_this_boot(const struct journal_header *header)
{
    char boot[40] = "";
    node_boot(boot);
    return boot[0] != '\0' && strncmp(boot, header->boot, sizeof boot) == 0;
}

bool journal_is_of_this_node(const struct journal_header *header)
{
    char host[sizeof header->host] = "";
    gethostname(host, sizeof host - 1);
    return strncmp(host, header->host, sizeof host) == 0;
}

bool journal_entry_at(const struct journal_header *header, uint64_t number, struct journal_entry *entry,
                      int64_t *length)
{
    const struct journal_entry *entries = (const void *)((const char *)header + JOURNAL_HEADER);
    *entry = entries[number];
    *length = (int64_t)(entry->seal & UINT32_MAX);
    return *length > 0 && entry->start >= 0 && entry->start <= INT64_MAX - *length
        && seal_of(entry, (uint32_t)*length) == entry->seal;
}

void journal_ending(char ending[32], uint64_t open)
{
    snprintf(ending, 32, "-%016llx" JOURNAL_SUFFIX, (unsigned long long)open);
}

/* The directory of this node's journals: of those that share its memory and its view of the journals and the original,
 * so that one sees in the other's mapping, and reads from its cache file, what is written. RATIONALE: mounts of their
 * own, such as each rank's ceph-fuse, have page caches of their own. Returns the length; 0: there is no such
 * directory. */
static size_t name_node(char path[4096], const struct journal_owner *owner, int original)
{
    char boot[40] = "";
    struct stat found, file;
    node_boot(boot);
    if (stat(owner->directory, &found) != 0 || fstat(original, &file) != 0)
        return 0;
    const int length = snprintf(path, 4096, "%s/%s-%llx-%llx" JOURNAL_SUFFIX, owner->directory, boot,
                                (unsigned long long)found.st_dev, (unsigned long long)file.st_dev);
    return length < 4096 ? (size_t)length : 0;
}

/* RATIONALE: the journal gets its name only when its header is complete: a file of that name
 * without a header was damaged. Neither O_EXCL nor link() takes another process's file: in another
 * PID namespace, such as a container's, a process may have the same host name and number. */
static int begin(struct journal *journal, const struct journal_owner *owner, int original)
{
    char unfinished[4096 + sizeof JOURNAL_UNFINISHED];
    snprintf(unfinished, sizeof unfinished, "%s" JOURNAL_UNFINISHED, journal->path);
    journal->fd = node_directory_open(unfinished, O_RDWR | O_EXCL, 0700);
    if (journal->fd < 0)
        return errno;
    int error = lock_bytes(journal->fd, LOCK_ALONE, 0, 1) ? grow(journal) : errno;
    if (error == 0) {
        fill(journal, owner, original);
        error = link(unfinished, journal->path) == 0 ? 0 : errno;
    }
    unlink(unfinished);
    return error;
}

/* Names the journal for a process's `serial`-th try. 0 or an errno. */
static int name_journal(char path[4096], const struct journal_owner *owner, int original, unsigned serial)
{
    char host[64] = "", node[4096], ending[32], cache[1024];
    gethostname(host, sizeof host - 1);
    journal_ending(ending, owner->open);
    if (name_node(node, owner, original) == 0)
        return ENAMETOOLONG;
    if (snprintf(path, 4096, "%s/%s-%ld-%u%s", node, host, (long)getpid(), serial, ending) >= 4096
        || strlen(owner->target) >= sizeof ((struct journal_header *)0)->target)
        return ENAMETOOLONG;
    return owner->cache != NULL && name_cache(cache, owner->cache, path) >= (int)sizeof cache ? ENAMETOOLONG : 0;
}

static int try_name(struct journal *journal, const struct journal_owner *owner, int original, unsigned serial)
{
    char path[4096];
    int error = name_journal(path, owner, original, serial);
    *journal = (struct journal)JOURNAL_NONE;
    if (error != 0)
        return error;
    journal->path = strdup(path);
    error = journal->path == NULL ? ENOMEM : begin(journal, owner, original);
    if (error == 0)
        return 0;
    journal_unmap(journal);
    if (journal->fd >= 0)
        close(journal->fd);
    free(journal->path);
    *journal = (struct journal)JOURNAL_NONE;
    return error;
}

int journal_create(struct journal *journal, const struct journal_owner *owner, int original)
{
    static unsigned serial;
    int error = EEXIST;
    for (int tries = 0; error == EEXIST && tries < MOST_NAMES; tries++)
        error = try_name(journal, owner, original, __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
    return error;
}

/* RATIONALE: bytes that follow the last entry extend it, by one store: a program that follows its
 * pattern has one entry. */
static bool extend(struct journal *journal, const struct journal_entry *more, int64_t length)
{
    if (journal_count(journal) == 0 || journal->fresh)
        return false;
    struct journal_entry *last = &journal->entries[journal_count(journal) - 1];
    const uint64_t old = last->seal & UINT32_MAX, both = old + (uint64_t)length;
    const uint64_t place = last->place + (journal->header->cache[0] != '\0' ? old : 0);
    if (place != more->place || last->start + (int64_t)old != more->start || last->stamp != more->stamp
        || both > UINT32_MAX)
        return false;
    __atomic_store_n(&last->seal, seal_of(last, (uint32_t)both), __ATOMIC_RELEASE);
    return true;
}

/* Makes room for entries of `length` more bytes. RATIONALE: this comes before the first entry, so
 * that all of a write counts, or nothing of it. */
static int make_room(struct journal *journal, int64_t length)
{
    const uint64_t entries = journal_count(journal) + (uint64_t)length / UINT32_MAX + 1;
    int error = 0;
    while (error == 0 && JOURNAL_HEADER + entries * sizeof(struct journal_entry) > journal->size)
        error = grow(journal);
    return error;
}

int journal_add(struct journal *journal, const struct journal_entry *bytes, int64_t length)
{
    struct journal_entry entry = *bytes;
    int error = make_room(journal, length);
    while (error == 0 && length > 0) {
        const int64_t part = length > UINT32_MAX ? UINT32_MAX : length;
        if (!extend(journal, &entry, part)) {
            const uint64_t number = journal_count(journal);
            entry.seal = seal_of(&entry, (uint32_t)part);
            journal->entries[number] = entry;
            set_number(journal->header, &journal->header->count, number + 1);
            journal->fresh = false;
        }
        entry.place += journal->header->cache[0] != '\0' ? (uint64_t)part : 0;
        entry.start += part;
        length -= part;
    }
    return error;
}

struct journal_entry journal_entry(const struct journal *journal, uint64_t number, int64_t *length)
{
    struct journal_entry entry = journal->entries[number];
    *length = (int64_t)(entry.seal & UINT32_MAX);
    return entry;
}

int64_t journal_follow(struct journal *journal)
{
    const uint64_t count = journal_count(journal);
    const size_t used = JOURNAL_HEADER + count * sizeof(struct journal_entry);
    return used <= journal->size || map_entries(journal, -1, used + GROWTH) ? (int64_t)count : -1;
}

void journal_rest(const struct journal *journal)
{
    if (journal->size > SMALL)
        madvise(journal->entries, journal->size - JOURNAL_HEADER, MADV_DONTNEED);
}

int journal_sync(struct journal *journal)
{
    struct journal_header *header = journal->header;
    if (msync(journal->entries, journal_count(journal) * sizeof(struct journal_entry), MS_SYNC) != 0)
        return errno;
    set_number(header, &header->synced, journal_count(journal));
    journal->fresh = true;
    return msync(header, JOURNAL_HEADER, MS_SYNC) == 0 && fsync(journal->fd) == 0 ? 0 : errno;
}

void journal_clear(struct journal *journal)
{
    struct journal_header *header = journal->header;
    set_number(header, &header->synced, 0);
    set_number(header, &header->count, 0);
    set_number(header, &header->home, 0);
}

void journal_set_home(struct journal *journal, uint64_t number)
{
    set_number(journal->header, &journal->header->home, number);
}

static void stamp(struct journal *journal)
{
    journal->state.stamp_ns = clock_real_ns();
    put_state(journal);
}

void journal_original_stamp(struct journal *journal)
{
    pthread_mutex_lock(&journal->state_lock);
    stamp(journal);
    pthread_mutex_unlock(&journal->state_lock);
}

void journal_original_begin(struct journal *journal)
{
    pthread_mutex_lock(&journal->state_lock);
    journal->state.busy++;
    stamp(journal);
    pthread_mutex_unlock(&journal->state_lock);
}

void journal_original_end(struct journal *journal, int original)
{
    pthread_mutex_lock(&journal->state_lock);
    note_original(journal, original);
    journal->state.busy -= journal->state.busy > 0;
    stamp(journal);
    pthread_mutex_unlock(&journal->state_lock);
}

void journal_overtaken(struct journal *journal)
{
    pthread_mutex_lock(&journal->state_lock);
    journal->state.overtaken = 1;
    put_state(journal);
    pthread_mutex_unlock(&journal->state_lock);
}

bool journal_is_owned(int fd, bool unknown)
{
    return lock_held(fd, LOCK_SHARED, 0, 1, unknown);
}

void journal_close(struct journal *journal, bool remove)
{
    if (journal->header == NULL)
        return;
    if (remove && journal_waiting(journal) == 0 && unlink(journal->path) == 0) {
        *strrchr(journal->path, '/') = '\0';
        rmdir(journal->path);
    }
    journal_unmap(journal);
    lock_close(journal->fd);
    free(journal->path);
    *journal = (struct journal)JOURNAL_NONE;
}
