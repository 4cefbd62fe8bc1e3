#include "pending_caches.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "intent.h"
#include "originals.h"
#include "report.h"
#include "reservations.h"
#include "stale_journals.h"
#include "staleness.h"
#include "storage.h"
#include "writeback.h"

/* The first source is the original, the others are cache files. */
static void close_source(uint32_t number, int fd)
{
    if (number == 0)
        original_close(fd);
    else if (fd >= 0)
        close(fd);
}

/* Takes the descriptor over. False: out of memory. */
static bool add_source(struct gathered *gathered, const char *path, int fd)
{
    int *sources = realloc(gathered->sources, (gathered->count + 1) * sizeof *sources);
    gathered->sources = sources != NULL ? sources : gathered->sources;
    char **paths = realloc(gathered->paths, (gathered->count + 1) * sizeof *paths);
    gathered->paths = paths != NULL ? paths : gathered->paths;
    char *copy = sources == NULL || paths == NULL ? NULL : strdup(path);
    if (copy == NULL) {
        close_source(gathered->count, fd);
        return false;
    }
    paths[gathered->count] = copy;
    sources[gathered->count++] = fd;
    return true;
}

/* How many entries a journal has, and how many of them the original has. */
static uint64_t entries_of(const struct journal_header *header, uint64_t *home)
{
    uint64_t count = 0;
    journal_number(header, &header->count, &count);
    journal_number(header, &header->home, home);
    return count;
}

static const char *find_oldest(void *context, const struct journal_header *header)
{
    struct gathered *gathered = context;
    struct journal_entry entry;
    int64_t length;
    uint64_t home = 0;
    const uint64_t count = entries_of(header, &home);
    /* Stamps grow within a journal. */
    if (home < count && journal_entry_at(header, home, &entry, &length) && entry.stamp < gathered->oldest)
        gathered->oldest = entry.stamp;
    return NULL;
}

static const char *open_cache(struct gathered *gathered, const struct journal_header *header)
{
    char directory[4096];
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(header->cache, '/') - header->cache), header->cache);
    errno = ETIMEDOUT;
    const int fd = storage_responds(directory, TIMEOUT_LONG)
        ? reservations_reopen(header->cache, journal_cache_inode(header)) : -1;
    const int error = errno;
    if (!add_source(gathered, header->cache, fd))
        return "out of memory";
    if (fd >= 0)
        return NULL;
    if (gathered->speaks)
        print_message("%s: its newest bytes are in %s on node %.64s", gathered->path, header->cache, header->host);
    return error == ETIMEDOUT ? "the storage of the cache file does not answer"
        : !journal_is_of_this_node(header) ? "they are on another node's device"
        : error == EPERM ? "the cache file, or its directory, is another user's, or others can write to it"
                         : "the cache file cannot be opened";
}

/* RATIONALE: a process that was killed while it noted in the journals what is home may have noted it
 * in some of them. Their bytes, which the original has, still replace older ones that wait. */
static const char *add_home(struct gathered *gathered, const struct journal_header *header, uint64_t home)
{
    for (uint64_t i = 0; i < home; i++) {
        struct journal_entry entry;
        int64_t length;
        if (!journal_entry_at(header, i, &entry, &length))
            return "a journal is damaged";
        const int64_t left = gathered->size - entry.start;
        entry.place = (uint64_t)entry.start;
        if (entry.stamp > gathered->oldest && left > 0 && gathered->sources[0] < 0)
            return "the file cannot be read";
        if (entry.stamp > gathered->oldest && left > 0
            && !homeward_add(&gathered->home, 0, i, &entry, length < left ? length : left))
            return "out of memory";
    }
    return NULL;
}

static const char *add_journal(void *context, const struct journal_header *header)
{
    struct gathered *gathered = context;
    uint64_t home = 0;
    const uint64_t count = entries_of(header, &home);
    const char *why = add_home(gathered, header, home < count ? home : count);
    if (why == NULL && home < count)
        why = open_cache(gathered, header);
    for (uint64_t i = home; why == NULL && i < count; i++) {
        struct journal_entry entry;
        int64_t length;
        if (!journal_entry_at(header, i, &entry, &length) || (int64_t)entry.place < 0)
            return "a journal is damaged";
        if (!homeward_add(&gathered->home, gathered->count - 1, i, &entry, length))
            return "out of memory";
        gathered->low = entry.start < gathered->low ? entry.start : gathered->low;
        gathered->high = entry.start + length > gathered->high ? entry.start + length : gathered->high;
    }
    return why;
}

static const char *move(struct file_handle *handle, struct gathered *gathered)
{
    struct writer *writer = writer_of(handle);
    char *buffer = homeward_buffer();
    int error = buffer == NULL ? ENOMEM : 0;
    /* RATIONALE: replicas may have been built before the original had these bytes. */
    replicas_mark(handle, gathered->low, gathered->high);
    original_begin(handle);
    for (size_t i = 0; error == 0 && i < gathered->home.chunk_count; i++)
        error = homeward_move(writer, &gathered->home, i, gathered->sources, buffer);
    if (error == 0 && fdatasync(writer->fd) != 0)
        error = errno;
    original_end(handle);
    homeward_buffer_free(buffer);
    return error == 0 ? NULL
        : error == ENODATA ? "a cache file has lost bytes"
        : error == ENOSPC || error == EDQUOT ? "there is no space for them in the file"
                                             : "the write-back failed before its end";
}

const char *pending_caches_gather(struct gathered *gathered, const char *directory, const char *path,
                                  const struct original_state *original, bool speaks)
{
    *gathered = (struct gathered){.path = path, .speaks = speaks, .size = original->size, .oldest = UINT64_MAX,
                                  .low = INT64_MAX};
    const char *why = add_source(gathered, path, original_open(path, O_RDONLY | O_NOFOLLOW)) ? NULL : "out of memory";
    if (why == NULL)
        why = stale_journals_each(directory, original, find_oldest, gathered);
    return why != NULL ? why : stale_journals_each(directory, original, add_journal, gathered);
}

void pending_caches_free(struct gathered *gathered)
{
    for (uint32_t i = 0; i < gathered->count; i++) {
        close_source(i, gathered->sources[i]);
        free(gathered->paths[i]);
    }
    free(gathered->sources);
    free(gathered->paths);
    homeward_free(&gathered->home);
}

const char *pending_caches_home(struct file_handle *handle, const struct original_state *original)
{
    struct writer *writer = writer_of(handle);
    struct gathered gathered;
    const char *why = pending_caches_gather(&gathered, writer->journals, writer->path, original, true);
    if (why == NULL && !homeward_sort(&gathered.home))
        why = "out of memory";
    if (why == NULL && intent_begin(writer->journals, writer->intent, original) != 0)
        why = "the journals cannot be written";
    if (why == NULL)
        why = move(handle, &gathered);
    pending_caches_free(&gathered);
    return why;
}
