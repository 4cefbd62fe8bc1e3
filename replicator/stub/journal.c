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

#include "loadedmap.h"

enum { GROWTH = 64 << 10 };

static struct journal_entry *entries_of(const struct journal *journal)
{
    return (struct journal_entry *)(void *)((char *)journal->header + JOURNAL_HEADER);
}

static uint64_t seal_of(uint64_t replica, int64_t start, uint32_t length)
{
    const uint64_t words[] = {replica, (uint64_t)start, length};
    return (uint64_t)crc32c(0, words, sizeof words) << 32 | length;
}

/* RATIONALE: allocated, not only lengthened: a store into a hole of a full disk kills the program. */
static int grow(struct journal *journal)
{
    size_t size = journal->size + GROWTH;
    int error = posix_fallocate(journal->fd, 0, (off_t)size);
    if (error != 0)
        return error;
    void *base = journal->header == NULL ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, journal->fd, 0)
                                         : mremap(journal->header, journal->size, size, MREMAP_MAYMOVE);
    if (base == MAP_FAILED)
        return errno;
    journal->header = base;
    journal->size = size;
    return 0;
}

static void read_boot(char boot[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, boot, 36);
    boot[length < 0 ? 0 : length] = '\0';
    close(fd);
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return nanoseconds(time);
}

static void note_original(struct journal_header *header, int original)
{
    struct stat found;
    if (fstat(original, &found) != 0)
        return;
    header->size = found.st_size;
    header->mtime_ns = nanoseconds(found.st_mtim);
    header->ctime_ns = nanoseconds(found.st_ctim);
}

static uint32_t checksum_of(const struct journal_header *header)
{
    size_t start = offsetof(struct journal_header, rank), stop = offsetof(struct journal_header, count);
    return crc32c(0, (const char *)header + start, stop - start);
}

static void fill(struct journal_header *header, const struct journal_owner *owner, int original)
{
    header->rank = owner->rank;
    read_boot(header->boot);
    gethostname(header->host, sizeof header->host - 1);
    header->pid = getpid();
    header->device = owner->device;
    header->inode = owner->inode;
    header->lease = owner->lease;
    strcpy(header->target, owner->target);
    note_original(header, original);
    header->stamp_ns = now();
    header->checksum = checksum_of(header);
    memcpy(header->magic, JOURNAL_MAGIC, sizeof header->magic);
}

bool journal_is_empty(const char *path)
{
    uint64_t count = 1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool empty = fd >= 0 && pread(fd, &count, sizeof count, offsetof(struct journal_header, count)) == sizeof count && count == 0;
    if (fd >= 0)
        close(fd);
    return empty;
}

bool journal_check(const struct journal_header *header, size_t size)
{
    return size >= JOURNAL_HEADER && memcmp(header->magic, JOURNAL_MAGIC, sizeof header->magic) == 0
        && header->checksum == checksum_of(header)
        && header->count <= (size - JOURNAL_HEADER) / sizeof(struct journal_entry) && header->synced <= header->count;
}

bool journal_is_of_this_boot(const struct journal_header *header)
{
    char boot[40] = "";
    read_boot(boot);
    return boot[0] != '\0' && strncmp(boot, header->boot, sizeof boot) == 0;
}

bool journal_entry_at(const struct journal_header *header, uint64_t number, struct journal_entry *entry, int64_t *length)
{
    const struct journal_entry *entries = (const void *)((const char *)header + JOURNAL_HEADER);
    *entry = entries[number];
    *length = (int64_t)(entry->seal & UINT32_MAX);
    return seal_of(entry->replica, entry->start, (uint32_t)*length) == entry->seal;
}

int journal_create(struct journal *journal, const struct journal_owner *owner, int original)
{
    static unsigned serial;
    char host[64] = "", path[4096];
    *journal = (struct journal){.fd = -1};
    gethostname(host, sizeof host - 1);
    int length = snprintf(path, sizeof path, "%s/%s-%ld-%u.journal", owner->directory, host, (long)getpid(),
                          __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
    if (length >= (int)sizeof path || strlen(owner->target) >= sizeof journal->header->target)
        return ENAMETOOLONG;
    journal->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (journal->fd < 0)
        return errno;
    int error = (journal->path = strdup(path)) == NULL ? ENOMEM : grow(journal);
    if (error == 0) {
        fill(journal->header, owner, original);
        return 0;
    }
    unlink(path);
    close(journal->fd);
    free(journal->path);
    *journal = (struct journal){.fd = -1};
    return error;
}

/* RATIONALE: what follows the last entry extends it, by one store: a program that follows its pattern has one entry. */
static bool extend(struct journal *journal, uint64_t replica, int64_t start, int64_t length)
{
    if (journal->header->count == 0 || journal->fresh)
        return false;
    struct journal_entry *last = &entries_of(journal)[journal->header->count - 1];
    uint64_t old = last->seal & UINT32_MAX;
    if (last->replica != replica || last->start + (int64_t)old != start || old + (uint64_t)length > UINT32_MAX)
        return false;
    __atomic_store_n(&last->seal, seal_of(replica, last->start, (uint32_t)(old + (uint64_t)length)), __ATOMIC_RELEASE);
    return true;
}

int journal_add(struct journal *journal, uint64_t replica, int64_t start, int64_t length)
{
    const uint64_t before = journal->header->count;
    while (length > 0) {
        int64_t part = length > UINT32_MAX ? UINT32_MAX : length;
        if (!extend(journal, replica, start, part)) {
            uint64_t number = journal->header->count;
            if (JOURNAL_HEADER + (number + 1) * sizeof(struct journal_entry) > journal->size) {
                int error = grow(journal);
                if (error != 0) {
                    __atomic_store_n(&journal->header->count, before, __ATOMIC_RELEASE);
                    return error;
                }
            }
            entries_of(journal)[number] = (struct journal_entry){replica, start, seal_of(replica, start, (uint32_t)part)};
            __atomic_store_n(&journal->header->count, number + 1, __ATOMIC_RELEASE);
            journal->fresh = false;
        }
        start += part;
        length -= part;
    }
    return 0;
}

struct journal_entry journal_entry(const struct journal *journal, uint64_t number, int64_t *length)
{
    struct journal_entry entry = entries_of(journal)[number];
    *length = (int64_t)(entry.seal & UINT32_MAX);
    return entry;
}

int64_t journal_follow(struct journal *journal)
{
    const uint64_t count = __atomic_load_n(&journal->header->count, __ATOMIC_ACQUIRE);
    const size_t used = JOURNAL_HEADER + count * sizeof(struct journal_entry);
    if (used > journal->size) {
        void *base = mremap(journal->header, journal->size, used + GROWTH, MREMAP_MAYMOVE);
        if (base == MAP_FAILED)
            return -1;
        journal->header = base;
        journal->size = used + GROWTH;
    }
    return (int64_t)count;
}

int journal_sync(struct journal *journal)
{
    size_t used = JOURNAL_HEADER + journal->header->count * sizeof(struct journal_entry);
    if (msync(journal->header, used, MS_SYNC) != 0)
        return errno;
    __atomic_store_n(&journal->header->synced, journal->header->count, __ATOMIC_RELEASE);
    journal->fresh = true;
    return msync(journal->header, JOURNAL_HEADER, MS_SYNC) == 0 && fsync(journal->fd) == 0 ? 0 : errno;
}

void journal_clear(struct journal *journal)
{
    __atomic_store_n(&journal->header->synced, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&journal->header->count, 0, __ATOMIC_RELEASE);
}

void journal_original_stamp(struct journal *journal)
{
    __atomic_store_n(&journal->header->stamp_ns, now(), __ATOMIC_RELEASE);
}

void journal_original_begin(struct journal *journal)
{
    journal_original_stamp(journal);
    __atomic_add_fetch(&journal->header->busy, 1, __ATOMIC_ACQ_REL);
}

void journal_original_end(struct journal *journal, int original)
{
    note_original(journal->header, original);
    journal_original_stamp(journal);
    if (__atomic_load_n(&journal->header->busy, __ATOMIC_ACQUIRE) > 0)
        __atomic_sub_fetch(&journal->header->busy, 1, __ATOMIC_ACQ_REL);
}

void journal_close(struct journal *journal)
{
    if (journal->header == NULL)
        return;
    if (journal->header->count == 0)
        unlink(journal->path);
    munmap(journal->header, journal->size);
    close(journal->fd);
    free(journal->path);
    *journal = (struct journal){.fd = -1};
}
