#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "writer.h"

enum { MOST_RANGES = 1 << 20 };

static const char suffix[] = ".journal";

/* The next journal's path; false: there are no more. */
static bool next_journal(DIR *journals, const char *directory, char path[4096])
{
    for (struct dirent *entry; (entry = readdir(journals)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length >= sizeof suffix && strcmp(entry->d_name + length - (sizeof suffix - 1), suffix) == 0
            && snprintf(path, 4096, "%s/%s", directory, entry->d_name) < 4096)
            return true;
    }
    return false;
}

/* Maps a journal; NULL: it is none, or damaged. */
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

/* Whether the original is as the journal's process left it, and all entries can be believed. */
static bool is_good(const struct journal_header *header, const struct stat *original)
{
    return header->busy == 0 && header->overtaken == 0 && header->inode == original->st_ino
        && (header->synced == header->count || journal_is_of_this_boot(header));
}

static bool is_as_left(const struct journal_header *header, const struct stat *original)
{
    return header->size == original->st_size && header->mtime_ns == nanoseconds(original->st_mtim)
        && header->ctime_ns == nanoseconds(original->st_ctim);
}

/* Adds a journal's entries to `ranges`. */
static bool add_entries(const struct loaded_map *map, const struct map_target *target, const struct journal_header *header,
                        struct range **ranges, uint64_t *count)
{
    if (header->count > MOST_RANGES - *count)
        return false;
    struct range *larger = realloc(*ranges, (*count + header->count) * sizeof *larger);
    if (larger == NULL)
        return false;
    *ranges = larger;
    for (uint64_t i = 0; i < header->count; i++) {
        struct journal_entry entry;
        int64_t length;
        if (!journal_entry_at(header, i, &entry, &length))
            return false;
        uint32_t replica = 0;
        while (replica < target->replica_count && map->replicas[target->first_replica + replica].id != entry.replica)
            replica++;
        if (replica == target->replica_count || entry.start < 0
            || length > map->replicas[target->first_replica + replica].size - entry.start)
            return false;
        larger[(*count)++] = (struct range){replica, entry.start, entry.start + length};
    }
    return true;
}

enum leftover leftover_read(const struct loaded_map *map, const struct map_target *target, const char *path,
                            struct range **ranges, uint64_t *count)
{
    const char *directory = map_at(map, target->journals);
    struct stat original;
    char name[4096];
    bool any = false, good = stat(path, &original) == 0, as_left = false;
    DIR *journals = opendir(directory);
    *ranges = NULL;
    *count = 0;
    if (journals == NULL)
        return LEFTOVER_WAITS;
    while (next_journal(journals, directory, name)) {
        size_t size;
        const struct journal_header *header = open_journal(name, &size);
        if (header != NULL && header->count == 0) {
            /* It still may be the one that knows how the original was left. */
            as_left = as_left || is_as_left(header, &original);
        } else {
            any = any || header != NULL || !journal_is_empty(name);
            good = good && header != NULL && is_good(header, &original) && add_entries(map, target, header, ranges, count);
            as_left = as_left || (header != NULL && is_as_left(header, &original));
        }
        if (header != NULL)
            munmap((void *)(uintptr_t)header, size);
    }
    closedir(journals);
    if (!any)
        leftover_remove(directory, false);
    if (any && good && as_left)
        return LEFTOVER_GOOD;
    free(*ranges);
    *ranges = NULL;
    return any ? LEFTOVER_WAITS : LEFTOVER_NONE;
}

bool leftover_closed(const char *directory)
{
    char name[4096];
    bool closed = false;
    DIR *journals = opendir(directory);
    while (journals != NULL && !closed && next_journal(journals, directory, name)) {
        size_t size;
        const struct journal_header *header = open_journal(name, &size);
        closed = header != NULL && header->closed != 0;
        if (header != NULL)
            munmap((void *)(uintptr_t)header, size);
    }
    if (journals != NULL)
        closedir(journals);
    return closed;
}

void leftover_remove(const char *directory, bool telling)
{
    char name[4096];
    DIR *journals = opendir(directory);
    while (journals != NULL && next_journal(journals, directory, name))
        if (journal_is_empty(name) != telling)
            unlink(name);
    if (journals != NULL)
        closedir(journals);
}

void leftover_discard(const char *directory, const struct file_identity *file)
{
    char name[4096];
    DIR *journals = opendir(directory);
    while (journals != NULL && next_journal(journals, directory, name)) {
        size_t size;
        const struct journal_header *header = open_journal(name, &size);
        if (header == NULL)
            continue;
        if (header->device == file->device && header->inode == file->inode)
            unlink(name);
        munmap((void *)(uintptr_t)header, size);
    }
    if (journals != NULL)
        closedir(journals);
}
