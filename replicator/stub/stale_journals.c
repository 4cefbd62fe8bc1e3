#include "stale_journals.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LOOKED_AT = 256 /* journals that an open examines while others write */ };
/* The file system's time of a killed program's write is at most this much later than the program's
 * own note of it. */
static const int64_t STAMP_SLACK_NS = INT64_C(2000000000);

static const char suffix[] = ".journal", unfinished[] = JOURNAL_UNFINISHED;

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), wanted = strlen(end);
    return length > wanted && strcmp(name + length - wanted, end) == 0;
}

/* The path of the next file whose name ends in `end`. False: there are no more. */
static bool next_file(DIR *files, const char *directory, const char *end, char path[4096])
{
    for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;)
        if (ends_with(entry->d_name, end) && snprintf(path, 4096, "%s/%s", directory, entry->d_name) < 4096)
            return true;
    if (files != NULL)
        closedir(files);
    return false;
}

/* Maps a journal. NULL: it cannot be read, or is damaged. */
static const struct journal_header *open_journal(const char *path, size_t *size)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &found) == 0 && found.st_size >= JOURNAL_HEADER && found.st_uid == geteuid())
        base = mmap(NULL, *size = (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (base == MAP_FAILED)
        return NULL;
    if (journal_check(base, *size))
        return base;
    munmap(base, *size);
    return NULL;
}

static void close_journal(const struct journal_header *header, size_t size)
{
    munmap((void *)(uintptr_t)header, size);
}

static uint64_t entries_in(const struct journal_header *header)
{
    uint64_t count = 0;
    journal_number(header, &header->count, &count);
    return count;
}

/* ---- what their entries mean ----------------------------------------------------------------------------------------- */

/* What is known after some of the journals. */
struct judgement {
    const struct original_state *original;
    bool pending;    /* some have entries, */
    bool damaged;    /* or may have, and are damaged */
    bool of_it;      /* entries are of the original, */
    bool of_others;  /* or of another file */
    bool as_left;    /* the original is as a process left it that no longer writes to it */
    int64_t busy_ns; /* a killed process began no write to it after this; 0: none was killed */
    const char *why; /* why some entries cannot be trusted: a literal */
};

/* RATIONALE: the ctime is not compared. It also differs after a chmod or a new link. Whoever writes
 * to the file leaves another mtime. */
static bool is_as_left(const struct original_state *original, uint64_t inode, int64_t size, int64_t mtime_ns)
{
    return original->inode == inode && original->size == size && original->mtime_ns == mtime_ns;
}

static bool is_of(const struct journal_header *header, const struct original_state *original)
{
    return original != NULL && header->inode == original->inode
        && (header->birth_ns == 0 || original->birth_ns == 0 || header->birth_ns == original->birth_ns);
}

static int64_t later(int64_t one, int64_t other) { return one > other ? one : other; }

/* RATIONALE: journals without entries count, too. One may be the only one that has the last state
 * of the original. */
static void judge(struct judgement *judgement, const struct journal_header *header)
{
    struct journal_state state = {0};
    const bool pending = entries_in(header) > 0, of_it = is_of(header, judgement->original);
    uint64_t synced = 0;
    journal_state_of(header, &state);
    judgement->pending = judgement->pending || pending;
    judgement->of_it = judgement->of_it || (pending && of_it);
    judgement->of_others = judgement->of_others || (pending && !of_it);
    if (!of_it)
        return;
    if (state.busy != 0)
        judgement->busy_ns = later(judgement->busy_ns, state.stamp_ns);
    else if (is_as_left(judgement->original, header->inode, state.size, state.mtime_ns))
        judgement->as_left = true;
    journal_number(header, &header->synced, &synced);
    if (pending && state.overtaken != 0)
        judgement->why = "the file may have newer bytes, from a run whose write-back failed";
    else if (pending && synced < entries_in(header) && !journal_is_of_this_boot(header))
        judgement->why = "the node crashed before all of them were durable";
}

static void judge_intent(struct judgement *judgement, const char *directory)
{
    struct intent intent;
    const enum intent_found found = intent_read(directory, &intent);
    if (found == INTENT_DAMAGED)
        judgement->why = "the record of an interrupted write-back (the intent) is damaged";
    if (found != INTENT_THERE || judgement->original == NULL || intent.inode != judgement->original->inode)
        return;
    if (intent.busy != 0)
        judgement->busy_ns = later(judgement->busy_ns, intent.until_ns);
    else if (is_as_left(judgement->original, intent.inode, intent.size, intent.mtime_ns))
        judgement->as_left = true;
}

static enum pending_state verdict(struct judgement *judgement)
{
    const struct original_state *original = judgement->original;
    if (!judgement->pending && !judgement->damaged)
        return PENDING_NONE;
    if (original == NULL || (!judgement->of_it && !judgement->damaged))
        return PENDING_OF_OTHERS;
    if (judgement->damaged)
        judgement->why = "a journal is damaged";
    else if (judgement->of_others)
        judgement->why = "some journals are of another file";
    else if (judgement->why == NULL && !judgement->as_left
             && later(original->mtime_ns, original->ctime_ns) - STAMP_SLACK_NS > judgement->busy_ns)
        judgement->why = "somebody else has changed the file since";
    return judgement->why == NULL ? PENDING_READY : PENDING_BLOCKED;
}

/* Adds a journal's entries. NULL, or why that is not possible. */
static const char *add_entries(const struct loaded_map *map, const struct map_target *target, const struct journal_header *header,
                               struct pending *left)
{
    const uint64_t count = entries_in(header);
    if (count == 0)
        return NULL;
    if (map == NULL)
        return "no map of the replicas is published";
    if (count > MOST_RANGES - left->count)
        return "the journals have too many entries";
    struct range *larger = realloc(left->ranges, (left->count + count) * sizeof *larger);
    if (larger == NULL)
        return "out of memory";
    left->ranges = larger;
    for (uint64_t i = 0; i < count; i++) {
        struct journal_entry entry;
        int64_t length;
        if (!journal_entry_at(header, i, &entry, &length))
            return "a journal is damaged";
        uint32_t replica = 0;
        while (replica < target->replica_count && map->replicas[target->first_replica + replica].id != entry.replica)
            replica++;
        if (replica == target->replica_count)
            return "a replica that holds them is not in the published map";
        if (entry.start > map->replicas[target->first_replica + replica].size - length)
            return "a journal is damaged";
        larger[left->count++] = (struct range){replica, entry.start, entry.start + length};
    }
    return NULL;
}

enum pending_state stale_journals_read(const struct loaded_map *map, const struct map_target *target,
                                       const char *directory, const struct original_state *original, struct pending *left)
{
    struct judgement judgement = {.original = original};
    const char *problem = NULL;
    char path[4096];
    DIR *files = opendir(directory);
    *left = (struct pending){0};
    while (next_file(files, directory, suffix, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        judgement.damaged = judgement.damaged || header == NULL;
        if (header == NULL)
            continue;
        judge(&judgement, header);
        if (problem == NULL && is_of(header, original))
            problem = add_entries(map, target, header, left);
        close_journal(header, size);
    }
    judge_intent(&judgement, directory);
    enum pending_state result = verdict(&judgement);
    left->why = judgement.why;
    if (result == PENDING_READY && problem != NULL) {
        left->why = problem;
        result = PENDING_BLOCKED;
    }
    if (result != PENDING_READY) {
        free(left->ranges);
        left->ranges = NULL;
        left->count = 0;
    }
    return result;
}

bool stale_journals_any(const char *directory)
{
    char path[4096];
    DIR *files = opendir(directory);
    const bool seen = next_file(files, directory, suffix, path);
    if (seen)
        closedir(files);
    return seen;
}

uint64_t stale_journals_count(const char *directory)
{
    char path[4096];
    uint64_t count = 0;
    DIR *files = opendir(directory);
    while (next_file(files, directory, suffix, path))
        count++;
    return count;
}

/* Whether the process of this journal still has the file open. */
static bool is_in_use(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool living = fd >= 0 && journal_is_owned(fd);
    if (fd >= 0)
        close(fd);
    return living;
}

/* Whether an ended process left the journal, with entries. A journal that is gone by now has none.
 */
static bool is_pending(const char *path)
{
    size_t size;
    if (is_in_use(path))
        return false;
    const struct journal_header *header = open_journal(path, &size);
    if (header == NULL)
        return access(path, F_OK) == 0;
    const bool pending = entries_in(header) > 0;
    close_journal(header, size);
    return pending;
}

bool stale_journals_pending(const char *directory)
{
    char path[4096];
    bool any = stale_journals_count(directory) > MOST_LOOKED_AT;
    DIR *files = any ? NULL : opendir(directory);
    while (next_file(files, directory, suffix, path))
        any = any || is_pending(path);
    return any;
}

/* ---- removing them ---------------------------------------------------------------------------------------------------- */

/* Returns whether there were any. */
static bool remove_all(const char *directory, const char *end)
{
    char path[4096];
    bool any = false;
    DIR *files = opendir(directory);
    while (next_file(files, directory, end, path))
        any = unlink(path) == 0 || any;
    return any;
}

void stale_journals_remove(const char *directory)
{
    const bool any = remove_all(directory, suffix);
    remove_all(directory, unfinished);
    /* RATIONALE: if a crash brought journals back without the intent, the bytes written back would
     * look like a change by somebody else. */
    if (any)
        directory_sync(directory);
    intent_remove(directory);
}

void stale_journals_discard(const char *directory, uint64_t inode)
{
    char path[4096];
    DIR *files = opendir(directory);
    while (next_file(files, directory, suffix, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        if (header == NULL)
            continue;
        if (header->inode == inode)
            unlink(path);
        close_journal(header, size);
    }
    if (!stale_journals_any(directory))
        intent_remove(directory);
}

void stale_journals_remove_empty(const char *directory)
{
    char path[4096];
    DIR *files = opendir(directory);
    while (next_file(files, directory, suffix, path)) {
        size_t size;
        const struct journal_header *header = is_in_use(path) ? NULL : open_journal(path, &size);
        if (header == NULL)
            continue;
        if (entries_in(header) == 0)
            unlink(path);
        close_journal(header, size);
    }
}
