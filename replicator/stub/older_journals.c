#include "older_journals.h"

#include <string.h>

#include "journal.h"
#include "loadedmap.h"

#define OLDER_MAGIC "PDLAJNL3"

struct older_state {
    uint64_t sequence;
    int64_t size, mtime_ns, ctime_ns, stamp_ns;
    uint64_t busy;
    uint32_t overtaken, checksum;
};
_Static_assert(sizeof(struct older_state) == 56, "as 0.2.0 wrote it");

struct older_header {
    char magic[8];
    uint32_t checksum;
    int32_t rank;
    char boot[40], host[64];
    int64_t pid;
    uint64_t device, inode;
    int64_t birth_ns;
    uint64_t lease;
    char target[2048], cache[1024];
    uint64_t count, synced, home;
    struct older_state states[2];
};
_Static_assert(sizeof(struct older_header) == 3368, "as 0.2.0 wrote it");

bool journal_is_older(const void *base, size_t size)
{
    return size >= JOURNAL_HEADER && memcmp(base, OLDER_MAGIC, sizeof OLDER_MAGIC - 1) == 0;
}

static bool checked(const struct older_header *older)
{
    const size_t start = offsetof(struct older_header, rank), stop = offsetof(struct older_header, count);
    return older->checksum == crc32c(0, (const char *)older + start, stop - start);
}

static bool number_of(const struct older_header *older, const uint64_t *which, uint64_t *number)
{
    *number = *which & UINT32_MAX;
    const uint64_t words[] = {*number, (uint64_t)((const char *)which - (const char *)older)};
    return *which == ((uint64_t)crc32c(older->checksum, words, sizeof words) << 32 | *number);
}

/* The state, if it is whole. A state that is not gets the sequence 0, which is that of no state. */
static struct journal_state state_of(const struct older_header *older, const struct older_state *state)
{
    if (state->checksum != crc32c(older->checksum, state, offsetof(struct older_state, checksum)))
        return (struct journal_state){0};
    return (struct journal_state){.sequence = state->sequence, .size = state->size, .mtime_ns = state->mtime_ns,
                                  .ctime_ns = state->ctime_ns, .stamp_ns = state->stamp_ns, .busy = state->busy,
                                  .overtaken = state->overtaken};
}

bool journal_modernize(void *base, size_t size)
{
    const struct older_header older = *(const struct older_header *)base;
    struct journal_header *header = base;
    uint64_t count, synced, home;
    if (!journal_is_older(base, size) || !checked(&older) || !number_of(&older, &older.count, &count)
        || !number_of(&older, &older.synced, &synced) || !number_of(&older, &older.home, &home))
        return false;
    memset(header, 0, JOURNAL_HEADER);
    header->rank = older.rank;
    memcpy(header->boot, older.boot, sizeof header->boot);
    memcpy(header->host, older.host, sizeof header->host);
    header->pid = older.pid;
    header->original =
        (struct file_identity){.device = older.device, .inode = older.inode, .birth_ns = older.birth_ns};
    header->lease = older.lease;
    memcpy(header->target, older.target, sizeof header->target);
    memcpy(header->cache, older.cache, sizeof header->cache);
    for (int i = 0; i < 2; i++)
        header->states[i] = state_of(&older, &older.states[i]);
    if (header->states[0].sequence == 0 && header->states[1].sequence == 0)
        return false;
    journal_seal(header, count, synced, home);
    return true;
}
