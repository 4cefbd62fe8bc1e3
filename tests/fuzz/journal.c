/* libFuzzer on the journals that an earlier program left: an entry that an open trusts must lie
 * inside the replicas.
 *
 * An input is a byte that says what is to be right (enum right), the changes of the journal's
 * header, its entries and, if there is one, the intent. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "intent.h"
#include "stale_journals.h"

enum right {
    RIGHT_HEADER = 1, RIGHT_SEALS = 2, RIGHT_COUNT = 4, RIGHT_ORIGINAL = 8, RIGHT_STATE = 16, RIGHT_REPLICA = 32,
    INTENT = 64, RIGHT_INTENT = 128
};
enum { MOST_ENTRIES = 64, CHANGES = sizeof(struct journal_header) - offsetof(struct journal_header, count) };

static char directory[] = "/dev/shm/pdla-fuzz-XXXXXX", original[64], journal[64], intent[64];
static struct map_replica replicas[] = {{.id = 7, .size = 1000}, {.id = 9, .size = INT64_MAX}, {.id = 3, .size = 1}};

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void clean_up(void)
{
    unlink(original);
    unlink(journal);
    unlink(intent);
    rmdir(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    expect(mkdtemp(directory) != NULL);
    snprintf(original, sizeof original, "%s/original", directory);
    snprintf(journal, sizeof journal, "%s/fuzzed.journal", directory);
    snprintf(intent, sizeof intent, "%s/intent", directory);
    expect(close(open(original, O_WRONLY | O_CREAT, 0600)) == 0);
    atexit(clean_up);
    return 0;
}

static void seal(struct journal_entry *entry)
{
    uint64_t length = entry->seal & UINT32_MAX;
    const uint64_t words[] = {entry->place, (uint64_t)entry->start, entry->stamp, length};
    entry->seal = (uint64_t)crc32c(0, words, sizeof words) << 32 | length;
}

static void seal_number(struct journal_header *header, uint64_t *which, uint64_t number)
{
    const uint64_t words[] = {number, (uint64_t)((const char *)which - (const char *)header)};
    *which = (uint64_t)crc32c(header->checksum, words, sizeof words) << 32 | number;
}

/* The journal that an input stands for, `*size` bytes of it. */
static const void *image_of(const uint8_t *data, size_t length, size_t *size)
{
    static union {
        struct journal_header header;
        char bytes[JOURNAL_HEADER + MOST_ENTRIES * sizeof(struct journal_entry)];
    } image;
    struct journal_header *header = &image.header;
    struct journal_entry *entries = (struct journal_entry *)(void *)(image.bytes + JOURNAL_HEADER);
    const unsigned right = length > 0 ? *data++ : 0;
    const char *changes = (const char *)&header->count;
    size_t places = sizeof image - (size_t)(changes - image.bytes),
           head = JOURNAL_HEADER - (size_t)(changes - image.bytes);
    memset(&image, 0, sizeof image);
    length -= length > 0;
    memcpy(&header->count, data, length < CHANGES ? length : CHANGES);
    *size = JOURNAL_HEADER;
    if (length > CHANGES) {
        size_t more = length - CHANGES < places - head ? length - CHANGES : places - head;
        memcpy(entries, data + CHANGES, more);
        *size += more;
    }
    const size_t count = (*size - JOURNAL_HEADER) / sizeof *entries;
    struct stat found;
    expect(stat(original, &found) == 0);
    struct journal_state *state = &header->states[0];
    if (right & RIGHT_ORIGINAL) {
        struct statx ignored;
        expect(file_identify(-1, original, &header->original, &ignored));
        state->size = found.st_size;
        state->mtime_ns = nanoseconds(found.st_mtim);
        state->ctime_ns = nanoseconds(found.st_ctim);
    }
    if (right & RIGHT_STATE)
        state->busy = state->overtaken = 0;
    for (size_t i = 0; i < count; i++) {
        if (right & RIGHT_REPLICA)
            entries[i].place = replicas[entries[i].place % 3].id;
        if (right & RIGHT_SEALS)
            seal(&entries[i]);
    }
    if (right & RIGHT_HEADER) {
        memcpy(header->magic, JOURNAL_MAGIC, sizeof header->magic);
        header->checksum = crc32c(0, &header->rank, (size_t)(changes - (const char *)&header->rank));
        for (int i = 0; i < 2; i++)
            header->states[i].checksum =
                crc32c(header->checksum, &header->states[i], offsetof(struct journal_state, checksum));
    }
    if (right & RIGHT_COUNT) {
        seal_number(header, &header->count, count);
        seal_number(header, &header->synced, count);
        seal_number(header, &header->home, 0);
    }
    return &image;
}

static void put(const char *path, const void *image, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    expect(write(fd, image, size) == (ssize_t)size && close(fd) == 0);
}

/* Writes the intent that an input has at its end. Returns the length of the rest. */
static size_t put_intent(const uint8_t *data, size_t length)
{
    struct intent image;
    unlink(intent);
    if (length == 0 || (*data & INTENT) == 0)
        return length;
    const size_t size = length - 1 < sizeof image ? length - 1 : sizeof image;
    memcpy(&image, data + length - size, size);
    if (*data & RIGHT_INTENT && size == sizeof image) {
        memcpy(image.magic, INTENT_MAGIC, sizeof image.magic);
        image.checksum = crc32c(0, &image.busy, sizeof image - offsetof(struct intent, busy));
    }
    put(intent, &image, size);
    return length - size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct map_target target = {.replica_count = sizeof replicas / sizeof *replicas};
    const struct loaded_map map = {.base = directory, .replicas = replicas};
    struct pending left;
    struct original_state sight;
    size_t bytes;
    const void *image = image_of(data, put_intent(data, size), &bytes);
    put(journal, image, bytes);
    expect(original_examine(-1, original, &sight));
    const enum pending_state found = stale_journals_read(&map, &target, directory, &sight, &left);
    if (found == PENDING_READY)
        for (uint64_t i = 0; i < left.count; i++) {
            const struct range *range = &left.ranges[i];
            expect(range->replica >= 0 && range->replica < target.replica_count);
            expect(range->start >= 0 && range->start < range->stop && range->stop <= replicas[range->replica].size);
        }
    expect(stale_journals_pending(directory) == (found != PENDING_NONE));
    stale_journals_remove_empty(directory);
    expect(stale_journals_count(directory) == (found != PENDING_NONE));
    free(left.ranges);
    return 0;
}
