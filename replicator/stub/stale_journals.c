#include "stale_journals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node_directory.h"
#include "older_journals.h"
#include "reservations.h"

enum { MOST_LOOKED_AT = 256 /* journals that an open examines while others write */ };

static const char suffix[] = JOURNAL_SUFFIX, unfinished[] = JOURNAL_UNFINISHED;

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), wanted = strlen(end);
    return length > wanted && strcmp(name + length - wanted, end) == 0;
}

bool lookup_failed(int error)
{
    return error != 0 && error != ENOENT && error != ENOTDIR && error != EACCES && error != EPERM && error != ELOOP
        && error != ENAMETOOLONG;
}

/* The files whose names end in `end` in a directory and in the nodes' directories there. pdla 0.2.0 put all files into
 * the directory itself. */
struct listing {
    DIR *files, *of_node; /* `of_node` NULL: none is being read */
    const char *directory, *end;
    char node[4096];
    bool failed; /* some files may be missing */
};

static struct listing list(const char *directory, const char *end)
{
    struct listing listing = {.files = opendir(directory), .directory = directory, .end = end};
    listing.failed = listing.files == NULL && lookup_failed(errno);
    return listing;
}

static void end_reading(DIR **directory)
{
    if (*directory != NULL)
        closedir(*directory);
    *directory = NULL;
}

static void end_listing(struct listing *listing)
{
    end_reading(&listing->of_node);
    end_reading(&listing->files);
}

static bool is_directory(const char *path, const struct dirent *entry)
{
    struct stat found;
    return entry->d_type == DT_DIR
        || (entry->d_type == DT_UNKNOWN && lstat(path, &found) == 0 && S_ISDIR(found.st_mode));
}

/* The next name in a directory, and its path; at the end it is closed. False: its name is too long, or it is the end.
 */
static const struct dirent *read_name(struct listing *listing, DIR **directory, const char *name, char path[4096])
{
    errno = 0;
    const struct dirent *entry = readdir(*directory);
    if (entry == NULL) {
        listing->failed = listing->failed || errno != 0;
        end_reading(directory);
    } else if (snprintf(path, 4096, "%s/%s", name, entry->d_name) >= 4096) {
        listing->failed = true;
        path[0] = '\0';
    }
    return entry;
}

/* The path of the next file. False: there are no more, or the listing has failed. */
static bool next_file(struct listing *listing, char path[4096])
{
    while (listing->files != NULL) {
        const bool of_node = listing->of_node != NULL;
        const struct dirent *entry = of_node ? read_name(listing, &listing->of_node, listing->node, path)
                                             : read_name(listing, &listing->files, listing->directory, path);
        if (entry == NULL || path[0] == '\0')
            continue;
        if (!of_node && ends_with(entry->d_name, suffix) && is_directory(path, entry)) {
            strcpy(listing->node, path);
            listing->of_node = opendir(path);
            listing->failed = listing->failed || (listing->of_node == NULL && lookup_failed(errno));
        } else if (ends_with(entry->d_name, listing->end)) {
            return true;
        }
    }
    return false;
}

/* Maps an open journal, one of 0.2.0 as one of the present format. MAP_FAILED: not possible, or it is damaged. */
static void *map_journal(int fd, size_t size)
{
    void *base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED || !journal_is_older(base, size))
        return base;
    munmap(base, size);
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED || journal_modernize(base, size))
        return base;
    munmap(base, size);
    return MAP_FAILED;
}

/* Maps a journal. NULL: it cannot be read, or is damaged. */
static const struct journal_header *open_journal(const char *path, size_t *size)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &found) == 0 && found.st_size >= JOURNAL_HEADER && found.st_uid == geteuid())
        base = map_journal(fd, *size = (size_t)found.st_size);
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
    uint64_t count = 0, home = 0;
    journal_number(header, &header->count, &count);
    journal_number(header, &header->home, &home);
    return count > home ? count - home : 0;
}

/* ---- what their entries mean ------------------------------------------------------------------------------------- */

/* What is known after some of the journals. */
struct judgement {
    const struct original_state *original;
    bool damaged;    /* some are damaged, and may have entries */
    bool unlisted;   /* there may be more journals: their directory could not be read */
    bool of_it;      /* some entries are of the original */
    bool of_others;  /* some entries are of another file */
    bool doubtful;   /* some entries may be of either */
    bool as_left;    /* the original is as its last finished writer left it */
    bool explained;  /* other changes than of bytes explain its ctime */
    int64_t busy_ns; /* no killed process began a write to it after this; 0: none was killed */
    const char *why; /* why some entries cannot be trusted: a literal */
};

static int64_t later(int64_t one, int64_t other) { return one > other ? one : other; }

/* RATIONALE: journals without entries count, too. One may be the only one that has the last state
 * of the original. */
static void judge(struct judgement *judgement, const struct journal_header *header)
{
    struct journal_state state = {0};
    const bool pending = entries_in(header) > 0;
    const enum which_file file = journal_is_of(header, judgement->original);
    uint64_t synced = 0, count = 0;
    journal_state_of(header, &state);
    judgement->of_it = judgement->of_it || (pending && file == FILE_THIS);
    judgement->of_others = judgement->of_others || (pending && file == FILE_OTHER);
    judgement->doubtful = judgement->doubtful || (pending && file == FILE_UNKNOWN);
    if (file != FILE_THIS)
        return;
    judgement->explained = judgement->explained || journal_explains_ctime(header, &state, judgement->original);
    if (state.busy != 0)
        judgement->busy_ns = later(judgement->busy_ns, state.stamp_ns);
    else if (journal_left_as(header, &state, judgement->original))
        judgement->as_left = true;
    journal_number(header, &header->synced, &synced);
    journal_number(header, &header->count, &count);
    if (pending && state.overtaken != 0)
        judgement->why = "the file may have newer bytes, from a run whose write-back failed";
    else if (pending && synced < count && !journal_is_of_this_boot(header))
        judgement->why = journal_is_of_this_node(header)
            ? "the node crashed before all of them were durable"
            : "another node may have some of them in memory only (run pdla sync there)";
}

static void judge_intent(struct judgement *judgement, const char *directory)
{
    struct intent intent;
    const struct original_state *original = judgement->original;
    const enum intent_found found = intent_read(directory, &intent);
    if (found == INTENT_DAMAGED)
        judgement->why = "the record of an interrupted write-back (the intent) is damaged";
    if (found != INTENT_THERE || original == NULL)
        return;
    if (intent.inode != original->file.inode && judgement->of_others)
        judgement->why = "the write-back of another file with journals in the same directory was interrupted";
    if (intent.inode != original->file.inode)
        return;
    if (intent.busy != 0)
        judgement->busy_ns = later(judgement->busy_ns, intent.until_ns);
    else if (intent_left_as(&intent, original, judgement->explained))
        judgement->as_left = true;
}

/* When the bytes of the original were changed, as far as its times say. */
static int64_t changed_ns(const struct judgement *judgement)
{
    const struct original_state *original = judgement->original;
    return judgement->explained ? original->mtime_ns : later(original->mtime_ns, original->ctime_ns);
}

static enum pending_state verdict(struct judgement *judgement)
{
    const struct original_state *original = judgement->original;
    if (judgement->unlisted && original != NULL) {
        judgement->why = "the journals cannot be listed";
        return PENDING_BLOCKED;
    }
    if (!judgement->of_it && !judgement->of_others && !judgement->doubtful && !judgement->damaged)
        return PENDING_NONE;
    if (original == NULL || (!judgement->of_it && !judgement->doubtful && !judgement->damaged))
        return PENDING_OF_OTHERS;
    if (judgement->damaged)
        judgement->why = "a journal is damaged";
    else if (judgement->doubtful)
        judgement->why = "they may be of this file or of another one with its number, such as a clone";
    else if (judgement->why == NULL && !judgement->as_left
             && changed_ns(judgement) - STAMP_SLACK_NS > judgement->busy_ns)
        judgement->why = "somebody else has changed the file since";
    return judgement->why == NULL ? PENDING_READY : PENDING_BLOCKED;
}

static const char absent[] = "a replica that holds them is not in the published map";

/* Adds a journal's entries. NULL, or why that is not possible. */
static const char *add_entries(const struct loaded_map *map, const struct map_target *target,
                               const struct journal_header *header, struct pending *left)
{
    const uint64_t count = entries_in(header);
    if (count == 0)
        return NULL;
    if (header->cache[0] != '\0') {
        left->cached = true;
        return NULL;
    }
    if (map == NULL)
        return "no map of the replicas is published";
    if (target == NULL)
        return absent;
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
        while (replica < target->replica_count && map->replicas[target->first_replica + replica].id != entry.place)
            replica++;
        if (replica == target->replica_count)
            return absent;
        if (entry.start > map->replicas[target->first_replica + replica].size - length)
            return "a journal is damaged";
        larger[left->count++] = (struct range){replica, entry.start, entry.start + length};
    }
    return NULL;
}

enum pending_state stale_journals_read(const struct loaded_map *map, const struct map_target *target,
                                       const char *directory, const struct original_state *original,
                                       struct pending *left)
{
    struct judgement judgement = {.original = original};
    struct intent intent;
    const char *problem = NULL;
    char path[4096];
    *left = (struct pending){0};
    const bool done = intent_read(directory, &intent) == INTENT_THERE && intent.busy == INTENT_DONE;
    struct listing files = list(directory, suffix);
    while (next_file(&files, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        judgement.damaged = judgement.damaged || header == NULL;
        if (header == NULL)
            continue;
        if (!(done && header->original.inode == intent.inode)) {
            judge(&judgement, header);
            if (problem == NULL && journal_is_of(header, original) == FILE_THIS)
                problem = add_entries(map, target, header, left);
        }
        close_journal(header, size);
    }
    judgement.unlisted = files.failed;
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

const char *stale_journals_each(const char *directory, const struct original_state *original,
                                const char *(*each)(void *context, const struct journal_header *), void *context)
{
    const char *why = NULL;
    char path[4096];
    struct listing files = list(directory, suffix);
    while (why == NULL && next_file(&files, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        if (header != NULL && journal_is_of(header, original) == FILE_THIS)
            why = each(context, header);
        if (header != NULL)
            close_journal(header, size);
    }
    end_listing(&files);
    return why != NULL ? why : files.failed ? "the journals cannot be listed" : NULL;
}

bool stale_journals_any(const char *directory)
{
    char path[4096];
    struct listing files = list(directory, suffix);
    const bool seen = next_file(&files, path) || files.failed;
    end_listing(&files);
    return seen;
}

bool stale_journals_of(const char *directory, uint64_t inode)
{
    char path[4096];
    bool any = false;
    struct listing files = list(directory, suffix);
    while (!any && next_file(&files, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        any = header == NULL || header->original.inode == inode;
        if (header != NULL)
            close_journal(header, size);
    }
    end_listing(&files);
    return any || files.failed;
}

uint64_t stale_journals_count(const char *directory)
{
    char path[4096];
    uint64_t count = 0;
    struct listing files = list(directory, suffix);
    while (next_file(&files, path))
        count++;
    return files.failed ? UINT64_MAX : count;
}

/* Whether the process of this journal still has the file open; `unknown` if that cannot be found out. */
static bool is_in_use(const char *path, bool unknown)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return unknown && errno != ENOENT;
    const bool in_use = journal_is_owned(fd, unknown);
    close(fd);
    return in_use;
}

/* Whether an ended process left the journal, with entries. A journal that is gone by now has none. */
static bool is_pending(const char *path)
{
    size_t size;
    if (is_in_use(path, false))
        return false;
    const struct journal_header *header = open_journal(path, &size);
    if (header == NULL)
        return access(path, F_OK) == 0 || lookup_failed(errno);
    const bool pending = entries_in(header) > 0;
    close_journal(header, size);
    return pending;
}

bool stale_journals_wait(const char *directory)
{
    char path[4096];
    bool any = false;
    struct listing files = list(directory, suffix);
    while (!any && next_file(&files, path))
        any = is_pending(path);
    end_listing(&files);
    return any || files.failed;
}

bool stale_journals_pending(const char *directory)
{
    return stale_journals_count(directory) > MOST_LOOKED_AT || stale_journals_wait(directory);
}

bool stale_journals_in_use(const char *directory, const char *but)
{
    char path[4096];
    bool any = false;
    struct listing files = list(directory, suffix);
    while (!any && next_file(&files, path))
        any = strcmp(path, but) != 0 && is_in_use(path, true);
    end_listing(&files);
    return any || files.failed;
}

/* ---- removing them ----------------------------------------------------------------------------------------------- */

/* Removes the cache file of a journal. RATIONALE: without its journal nobody would find it, so the
 * journal goes later. */
static void remove_cache(const char *journal)
{
    size_t size;
    const struct journal_header *header = open_journal(journal, &size);
    if (header == NULL)
        return;
    if (header->cache[0] != '\0')
        reservations_remove(header->cache);
    close_journal(header, size);
}

/* Which journals: those of the original, of the inode or, if both are none, all. */
struct choice {
    const struct original_state *original;
    uint64_t inode;
};

static bool is_chosen(const struct choice *which, const struct journal_header *header)
{
    return which->original != NULL ? journal_is_of(header, which->original) == FILE_THIS
        : which->inode == 0 || header->original.inode == which->inode;
}

/* Whether one of them, of a cache, names bytes. */
static bool caches_wait(const char *directory, const struct choice *which)
{
    char path[4096];
    bool any = false;
    struct listing files = list(directory, suffix);
    while (!any && next_file(&files, path)) {
        size_t size;
        const struct journal_header *header = open_journal(path, &size);
        if (header == NULL)
            continue;
        any = is_chosen(which, header) && header->cache[0] != '\0' && entries_in(header) > 0;
        close_journal(header, size);
    }
    end_listing(&files);
    return any;
}

/* Whether the journal at `path` is one of them. A damaged one is of nobody. */
static bool is_chosen_at(const struct choice *which, const char *path)
{
    size_t size;
    if (which->original == NULL && which->inode == 0)
        return true;
    const struct journal_header *header = open_journal(path, &size);
    const bool chosen = header != NULL && is_chosen(which, header);
    if (header != NULL)
        close_journal(header, size);
    return chosen;
}

/* Whether all of them are gone. *any: there was one. */
static bool remove_chosen(const char *directory, const char *end, const struct choice *which, bool *any)
{
    char path[4096];
    bool all = true;
    struct listing files = list(directory, end);
    while (next_file(&files, path)) {
        if (!is_chosen_at(which, path))
            continue;
        remove_cache(path);
        all = (unlink(path) == 0 || errno == ENOENT) && all;
        *any = true;
    }
    return all && !files.failed;
}

/* Removes the nodes' directories that are empty, and makes what was removed from the others durable. */
static void remove_nodes(const char *directory)
{
    char path[4096];
    struct listing nodes = list(directory, suffix);
    while (nodes.files != NULL) {
        const struct dirent *entry = read_name(&nodes, &nodes.files, directory, path);
        if (entry != NULL && path[0] != '\0' && ends_with(entry->d_name, suffix) && is_directory(path, entry)
            && rmdir(path) != 0)
            directory_sync(path);
    }
}

/* Makes durable that they are gone, then removes the intent. */
static void end_removal(const char *directory, bool any, bool all)
{
    /* RATIONALE: if a crash brought journals back without the intent, the bytes written back would
     * look like a change by somebody else. */
    if (any) {
        remove_nodes(directory);
        directory_sync(directory);
    }
    if (all)
        intent_remove(directory);
}

void stale_journals_remove(const char *directory, const struct original_state *original)
{
    const struct choice which = {.original = original};
    bool any = false;
    /* RATIONALE: if some journals went before the intent says so, those that are left would bring home
     * older bytes than those that are gone, or name cache files that are gone. */
    if (caches_wait(directory, &which) && intent_end(directory) != 0)
        return; /* the next one to come does all of it again */
    const bool all = remove_chosen(directory, suffix, &which, &any);
    if (original == NULL)
        remove_chosen(directory, unfinished, &which, &any);
    end_removal(directory, any, all);
}

void stale_journals_finish(const char *directory)
{
    struct intent intent;
    bool any = false;
    if (intent_read(directory, &intent) != INTENT_THERE || intent.busy != INTENT_DONE)
        return;
    const struct choice which = {.inode = intent.inode};
    const bool all = remove_chosen(directory, suffix, &which, &any);
    end_removal(directory, any, all);
}

void stale_journals_discard(const char *directory, const struct original_state *original)
{
    const struct choice which = {.original = original};
    struct intent intent;
    bool any = false;
    remove_chosen(directory, suffix, &which, &any);
    remove_nodes(directory);
    if (!stale_journals_any(directory)
        || (intent_read(directory, &intent) == INTENT_THERE && intent.inode == original->file.inode))
        intent_remove(directory);
}

void stale_journals_remove_empty(const char *directory)
{
    char path[4096];
    struct listing files = list(directory, suffix);
    while (next_file(&files, path)) {
        size_t size;
        const struct journal_header *header = is_in_use(path, true) ? NULL : open_journal(path, &size);
        const bool empty = header != NULL && entries_in(header) == 0;
        if (header != NULL)
            close_journal(header, size);
        if (empty) {
            remove_cache(path);
            unlink(path);
        }
    }
    remove_nodes(directory);
}
