#include "recovery.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache_marks.h"
#include "cached_index.h"
#include "collective_consensus.h"
#include "components.h"
#include "deferred_close.h"
#include "launch.h"
#include "leased_open.h"
#include "locks.h"
#include "open.h"
#include "originals.h"
#include "pending_caches.h"
#include "published_map.h"
#include "report.h"
#include "redirection.h"
#include "transfer.h"
#include "write_stats.h"
#include "writeback.h"
#include "writer.h"

enum {
    NOTE_TRIES = 100,
    LOCK_PAUSE_NS = 2000000,
    LOCK_TRIES = 150000,  /* five minutes */
    REPORT_TRIES = 2500,  /* five seconds */
    BROADCAST_RANGES = 1 << 20, /* at a time */
    BROADCAST_BYTES = 1 << 24
};

#define CACHE_JOURNALS "cache-" /* begins the names of directories that are made for the journals of caches */

static const struct map_target no_replicas;

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* RATIONALE: whoever redirects says why nothing is (report.c). Other programs may have read old bytes. */
static void say_once(const char *why)
{
    static int said;
    const char *map = getenv("PDLA_MAP");
    if ((map == NULL || *map == '\0') && launch_is_first() && !__atomic_exchange_n(&said, 1, __ATOMIC_ACQ_REL))
        print_message("nothing is redirected, and bytes that wait for their write-back are not found, because %s", why);
}

/* The directory of all directories of journals, next to the map. False: its name is too long or, with an empty root,
 * there is none. */
static bool journals_root(char root[4096])
{
    const char *why, *map = published_map_path(&why);
    if (map == NULL) {
        root[0] = '\0';
        say_once(why);
        return false;
    }
    return snprintf(root, 4096, "%.*s/journals", (int)(strrchr(map, '/') - map), map) < 4096;
}

/* `root`/inodes/<inode> has a file for each directory of journals of that inode, with its name. */
static bool inode_place(const char *root, uint64_t inode, char place[4096])
{
    return snprintf(place, 4096, "%s/inodes/%llu", root, (unsigned long long)inode) < 4096;
}

bool recovery_noted(uint64_t inode)
{
    char root[4096], place[4096];
    return journals_root(root) && inode_place(root, inode, place)
        && (access(place, F_OK) == 0 || lookup_failed(errno));
}

/* The place of a directory of journals, and the path of its note there. */
static bool note_of(const char *directory, uint64_t inode, char place[4096], char note[4096])
{
    char root[4096];
    const char *name = strrchr(directory, '/');
    return name != NULL && snprintf(root, sizeof root, "%.*s", (int)(name - directory), directory) < (int)sizeof root
        && inode_place(root, inode, place) && snprintf(note, 4096, "%s%s", place, name) < 4096;
}

bool recovery_note(const char *directory, uint64_t inode)
{
    char place[4096], note[4096], *name;
    int fd = -1;
    if (!note_of(directory, inode, place, note))
        return false;
    name = strrchr(place, '/');
    /* Others remove the place when it is empty. */
    for (int tries = 0; fd < 0 && tries < NOTE_TRIES; tries++) {
        *name = '\0';
        mkdir(place, 0700);
        *name = '/';
        mkdir(place, 0700);
        fd = open(note, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != ENOENT)
            break;
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Removes the note, unless another file that had or has this inode has journals there. */
static void recovery_forget(const char *directory, uint64_t inode)
{
    char place[4096], note[4096];
    if (stale_journals_of(directory, inode) || !note_of(directory, inode, place, note))
        return;
    unlink(note);
    rmdir(place);
}

const struct map_target *recovery_target(const struct loaded_map *map, const char *path)
{
    char directory[4096];
    struct stat found;
    const char *name = map == NULL || map->header->target_count == 0 ? NULL : strrchr(path, '/');
    size_t length = name == NULL ? sizeof directory : (size_t)(name - path);
    if (length >= sizeof directory)
        return NULL;
    memcpy(directory, path, length);
    strcpy(directory + length, length == 0 ? "/" : "");
    return stat(directory, &found) == 0 ? map_find_target(map, path, found.st_dev, found.st_ino, name + 1) : NULL;
}

__extension__ typedef unsigned __int128 uint128;

/* FNV-1a. */
static uint128 hash_of(const char *text)
{
    const uint128 prime = (uint128)1 << 88 | 0x13b;
    uint128 hash = (uint128)UINT64_C(0x6c62272e07bb0142) << 64 | UINT64_C(0x62b821756295c58d);
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * prime;
    return hash;
}

bool recovery_cache_directory(const char *path, char directory[4096])
{
    char root[4096];
    const uint128 hash = hash_of(path);
    return journals_root(root)
        && snprintf(directory, 4096, "%s/" CACHE_JOURNALS "%016llx%016llx", root, (unsigned long long)(hash >> 64),
                    (unsigned long long)hash) < 4096;
}

/* The target that has its journals in the directory. */
static const struct map_target *target_with(const struct loaded_map *map, const char *directory)
{
    for (uint32_t i = 0; map != NULL && i < map->header->target_count; i++)
        if (strcmp(map_at(map, map->targets[i].journals), directory) == 0)
            return map_target_at(map, i);
    return NULL;
}

/* RATIONALE: the directory of the map may be given by a link, or with a slash too many. Two names of
 * a directory would wait for each other's lock. */
static bool same_directory(const char *one, const char *other)
{
    struct stat a, b;
    return strcmp(one, other) == 0
        || (stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}

/* Directories of journals, in the order in which they are examined. */
struct directories {
    char **paths;
    size_t count;
    bool failed; /* a lookup failed: there may be more */
};

/* Adds a directory, unless it is there. */
static void add_directory(struct directories *found, const char *directory)
{
    for (size_t i = 0; i < found->count; i++)
        if (same_directory(found->paths[i], directory))
            return;
    char **larger = realloc(found->paths, (found->count + 1) * sizeof *larger);
    found->paths = larger == NULL ? found->paths : larger;
    char *copy = larger == NULL ? NULL : strdup(directory);
    found->failed = found->failed || copy == NULL;
    if (copy != NULL)
        found->paths[found->count++] = copy;
}

/* Adds those that are noted for the inode. */
static void add_noted(struct directories *found, uint64_t inode)
{
    char root[4096], place[4096], noted[4096];
    if (!journals_root(root) || !inode_place(root, inode, place)) {
        found->failed = found->failed || root[0] != '\0';
        return;
    }
    DIR *notes = opendir(place);
    found->failed = found->failed || (notes == NULL && lookup_failed(errno));
    errno = 0;
    for (struct dirent *note; notes != NULL && (note = readdir(notes)) != NULL; errno = 0) {
        if (note->d_name[0] == '.')
            continue;
        if (snprintf(noted, sizeof noted, "%s/%s", root, note->d_name) < (int)sizeof noted)
            add_directory(found, noted);
        else
            found->failed = true;
    }
    found->failed = found->failed || lookup_failed(errno);
    if (notes != NULL)
        closedir(notes);
}

/* The directories that may have journals of the file, `first` (NULL: none) before that of its name. */
static struct directories directories_of(const struct loaded_map *map, const char *path,
                                         const struct original_state *original, const char *first)
{
    struct directories found = {0};
    if (first != NULL)
        add_directory(&found, first);
    errno = 0;
    const struct map_target *target = recovery_target(map, path);
    found.failed = found.failed || (target == NULL && lookup_failed(errno));
    if (target != NULL)
        add_directory(&found, map_at(map, target->journals));
    if (original != NULL)
        add_noted(&found, original->file.inode);
    return found;
}

static void free_directories(struct directories *found)
{
    for (size_t i = 0; i < found->count; i++)
        free(found->paths[i]);
    free(found->paths);
}

/* ---- the lock of the journals ------------------------------------------------------------------------------------ */

/* Bytes of the lock file. The writers share the first. Ranks that help another rank with the
 * write-back share the second. One rank of each open with redirected writes shares the third, and
 * the last one to close has it alone. The fourth is that of lock_abandoned(). */
enum { WRITERS, HELPERS, OPENS, LOCK_ALL };
_Static_assert((int)LOCK_ALL == (int)LOCK_ABANDONED, "the byte after the others");

static int open_lock(const char *directory)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/lock", directory) >= (int)sizeof path)
        return -1;
    return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* How many names the lock file has: none if its directory was removed while the lock was awaited. -1: not known. */
static long names_of(int lock)
{
    struct stat found;
    return fstat(lock, &found) == 0 ? (long)found.st_nlink : -1;
}

/* A descriptor; LOCK_IMPOSSIBLE; or -1: others have the lock. */
static int lock_journals(const char *directory, enum lock_kind kind, int64_t low, int64_t high)
{
    int fd = open_lock(directory);
    if (fd < 0)
        return LOCK_IMPOSSIBLE;
    const bool locked = lock_bytes(fd, kind, low, high);
    const long names = locked ? names_of(fd) : 0;
    if (names > 0)
        return fd;
    const bool others = locked ? names == 0 : errno == EAGAIN || errno == EACCES;
    close(fd);
    return others ? -1 : LOCK_IMPOSSIBLE;
}

int recovery_lock_shared(const char *directory)
{
    return lock_journals(directory, LOCK_SHARED, WRITERS, HELPERS);
}

bool recovery_lock_take_alone(int lock)
{
    return lock_bytes(lock, LOCK_ALONE, 0, LOCK_ALL);
}

bool recovery_lock_share(int lock)
{
    return lock_bytes(lock, LOCK_SHARED, WRITERS, HELPERS) && lock_bytes(lock, LOCK_NONE, HELPERS, OPENS)
        && lock_bytes(lock, LOCK_SHARED, OPENS, LOCK_ALL);
}

bool recovery_lock_last(int lock)
{
    return lock_bytes(lock, LOCK_ALONE, OPENS, LOCK_ALL);
}

bool recovery_lock_is_only(int lock)
{
    return !lock_held(lock, LOCK_ALONE, OPENS, LOCK_ALL, true);
}

int recovery_lock_readers(const char *directory)
{
    return lock_journals(directory, LOCK_SHARED, LOCK_READERS, LOCK_READERS + 1);
}

bool recovery_lock_has_readers(int lock)
{
    return lock_held(lock, LOCK_ALONE, LOCK_READERS, LOCK_READERS + 1, true);
}

/* A process that has the lock alone writes its name into the lock file, for those who wait.
 * replicator/journals.py reads and writes it, too. */
static void sign_lock(int fd)
{
    char host[64] = "", note[256];
    const time_t now = time(NULL);
    struct tm since;
    gethostname(host, sizeof host - 1);
    int length = snprintf(note, sizeof note, "a program (process %ld on %s) since ", (long)getpid(), host);
    if (gmtime_r(&now, &since) != NULL)
        length += (int)strftime(note + length, sizeof note - (size_t)length, "%Y-%m-%dT%H:%M:%SZ", &since);
    if (write_whole(fd, note, length, 0) == 0 && ftruncate(fd, length) != 0)
        return; /* the rest is of an older note */
}

static void print_holder(const char *directory, const char *path)
{
    char note[256] = "";
    int fd = open_lock(directory);
    ssize_t length = fd < 0 ? 0 : pread(fd, note, sizeof note - 1, 0);
    note[length > 0 ? length : 0] = '\0';
    if (fd >= 0)
        close(fd);
    print_message("%s: waiting, because its newest bytes are being written back by %s", path,
                  note[0] == '\0' ? "another process" : note);
}

/* Shares the lock with those who have the file open. -1: nobody has, or the last one is closing it. RATIONALE: whoever
 * had the lock alone a moment ago may have left since. That nobody has it alone does not mean that somebody writes. */
static int lock_with_others(const char *directory, bool joins)
{
    const int fd = open_lock(directory);
    if (fd >= 0 && names_of(fd) > 0 && lock_shared(fd, OPENS, LOCK_ALL)
        && (!joins || (lock_bytes(fd, LOCK_SHARED, WRITERS, HELPERS) && lock_bytes(fd, LOCK_SHARED, OPENS, LOCK_ALL))))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* -1; the file is closed. */
static int closed(int fd)
{
    close(fd);
    return -1;
}

/* Removes a directory that was made for the journals of a cache and has none. The caller has it locked alone. Others
 * that wait for the lock find out that its file is gone. */
static void remove_directory(const char *directory)
{
    char path[4096];
    const char *name = strrchr(directory, '/');
    struct intent intent;
    if (name == NULL || strncmp(name + 1, CACHE_JOURNALS, sizeof CACHE_JOURNALS - 1) != 0
        || stale_journals_any(directory) || intent_read(directory, &intent) != INTENT_NONE)
        return;
    cache_marks_remove(directory);
    if (snprintf(path, sizeof path, "%s/lock", directory) < (int)sizeof path && unlink(path) == 0)
        rmdir(directory);
}

/* Takes the lock alone or, if the open `joins` others, shares it with those who have the file open.
 * RATIONALE: it waits for pdla sync and for programs that open or close the file. All of these end
 * soon. */
static int lock_or_wait(const char *directory, const char *path, bool joins)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int tries = 0;; tries++) {
        int fd = lock_journals(directory, LOCK_ALONE, 0, LOCK_ALL);
        if (fd >= 0)
            sign_lock(fd);
        if (fd != -1)
            return fd;
        fd = lock_with_others(directory, joins);
        if (fd >= 0)
            return joins ? fd : closed(fd);
        if (tries > LOCK_TRIES)
            return LOCK_HELD;
        if (tries == REPORT_TRIES)
            print_holder(directory, path);
        nanosleep(&pause, NULL);
    }
}

/* ---- write-back -------------------------------------------------------------------------------------------------- */

/* What rank 0 has found. */
struct recovery_task {
    uint64_t ranges;               /* to be written back */
    uint64_t generation, checksum; /* of its map */
    uint64_t target;
    struct file_identity file;     /* of the original */
    uint64_t refused;              /* 1: the file must not be opened */
    uint32_t word;                 /* the caller's */
    uint32_t in_place;             /* 1: they may be read where they are, */
    int64_t size, mtime_ns;        /* while the original is like this */
    int64_t index;                 /* bytes of the index of cache files; 0: they are in replicas */
};

/* One rank's part in a recovery. */
struct participant {
    struct file_handle handle;
    struct redirection redirection;
    struct writer writer;
    struct intent intent;
    int lock; /* of a rank that helps rank 0, which has the lock itself; -1: none */
};

static void participant_free(struct participant *participant)
{
    struct writer *writer = &participant->writer;
    for (uint32_t i = 0; writer->components != NULL && i < writer->target->replica_count; i++)
        components_close(writer->map, target_replica(writer, i), writer->components[i]);
    free(writer->components);
    original_close(writer->fd);
    if (participant->lock >= 0)
        close(participant->lock);
    if (participant->redirection.reader != NULL)
        reader_free(participant->redirection.reader);
    free(writer->path);
    free(writer->journals);
    pthread_mutex_destroy(&writer->mutex);
}

/* False: this rank cannot take part. The participant is to be freed all the same. */
static bool participant_make(struct participant *participant, const struct loaded_map *map,
                             const struct recovery_task *what, const char *path, mpi_handle comm, int rank, int ranks)
{
    struct writer *writer = &participant->writer;
    *participant = (struct participant){.handle = {.intercepted = &participant->redirection},
                                        .redirection = {.writer = writer}, .lock = -1};
    *writer = (struct writer){.map = map, .target = &map->targets[what->target], .handle = &participant->handle,
                              .fd = -1,
                                   .lock = -1, .comm = comm, .rank = rank, .ranks = ranks, .low = INT64_MAX,
                                   .intent = &participant->intent};
    pthread_mutex_init(&writer->mutex, NULL);
    writer->path = strdup(path);
    writer->journals = strdup(map_at(map, writer->target->journals));
    writer->written = write_stats_of(map_at(map, writer->target->path), false);
    writer->components = calloc(writer->target->replica_count, sizeof *writer->components);
    writer->fd = original_open(path, O_WRONLY | O_NOFOLLOW);
    const struct noted_file noted = {&what->file, path, false};
    struct original_state found;
    if (writer->path == NULL || writer->journals == NULL || writer->written == NULL || writer->components == NULL
        || writer->fd < 0
        || !original_examine(writer->fd, path, &found) || file_compare(&noted, &found.file, path) != FILE_THIS)
        return false;
    writer->device = found.file.device;
    writer->inode = found.file.inode;
    participant->redirection.reader = reader_to_mark(map, path);
    if (rank != 0)
        participant->lock = lock_journals(map_at(map, writer->target->journals), LOCK_SHARED, HELPERS, OPENS);
    bool able = rank == 0 || participant->lock >= 0;
    for (uint32_t i = 0; able && i < writer->target->replica_count; i++)
        able = (writer->components[i] = components_make(map, target_replica(writer, i), TIMEOUT_LONG)) != NULL;
    return able;
}

static bool agree(mpi_handle comm, int ranks, bool mine)
{
    int64_t word = mine, all = 0;
    return ranks == 1 ? mine : agree_reduce(&word, &all, 1, running_mpi()->op_min, comm) && all != 0;
}

static bool all_agree(const struct participant *participant, bool mine)
{
    return agree(participant->writer.comm, participant->writer.ranks, mine);
}

/* The write-back, on all ranks, which have the same ranges. NULL, or why it failed. */
static const char *recover(struct participant *participant, bool able, struct range *ranges, uint64_t count)
{
    struct writer *writer = &participant->writer;
    struct original_state found = {0};
    if (!all_agree(participant, able))
        return "a replica that holds them cannot be used, or the file cannot be written";
    const char *directory = writer->journals;
    int error = !original_examine(writer->fd, writer->path, &found) ? errno
        : writer->rank == 0 ? intent_begin(directory, &participant->intent, &found)
                            : 0;
    if (writer->rank != 0)
        participant->intent = intent_now(&found);
    if (!all_agree(participant, error == 0))
        return "the journals cannot be written";
    const bool earlier = all_agree(participant, write_stats_waits(writer->written) == 0);
    const int64_t start = clock_ns();
    pthread_mutex_lock(&writer->written->lock);
    const struct write_stats before = *writer->written;
    pthread_mutex_unlock(&writer->written->lock);
    error = write_back_pending(&participant->handle, ranges, count);
    if (error == 0 && earlier)
        write_stats_earlier(writer->written, &before, clock_ns() - start);
    if (writer->rank != 0)
        return error == 0 ? NULL : "the write-back failed before its end";
    if (error == 0) {
        original_examine(writer->fd, writer->path, &found);
        stale_journals_remove(directory, &found);
        recovery_forget(directory, writer->inode);
    } else if (original_examine(writer->fd, writer->path, &found)) {
        intent_stop(directory, &participant->intent, &found);
    }
    if (error == 0)
        return NULL;
    return error == ENOSPC || error == EDQUOT ? "there is no space for them in the file"
                                              : "the write-back failed before its end";
}

/* What caches of ended programs have goes to the original, by this process alone, which has locked
 * the journals. NULL, or why it failed. */
static const char *bring_home(const struct loaded_map *map, const char *directory, const char *path,
                              const struct original_state *original)
{
    struct participant participant = {.handle = {.intercepted = &participant.redirection},
                                      .redirection = {.writer = &participant.writer}, .lock = -1};
    struct writer *writer = &participant.writer;
    struct original_state found;
    *writer = (struct writer){.map = map, .target = &no_replicas, .handle = &participant.handle, .lock = -1,
                              .intent = &participant.intent, .ranks = 1, .path = strdup(path),
                              .journals = strdup(directory), .device = original->file.device,
                              .inode = original->file.inode,
                              .written = write_stats_of(path, true),
                              .fd = original_open(path, O_WRONLY | O_NOFOLLOW)};
    pthread_mutex_init(&writer->mutex, NULL);
    participant.redirection.reader = map == NULL ? NULL : reader_to_mark(map, path);
    const char *why = writer->path == NULL || writer->journals == NULL || writer->written == NULL ? "out of memory"
        : writer->fd < 0 ? "the file cannot be written" : pending_caches_home(&participant.handle, original);
    if (why == NULL) {
        stale_journals_remove(directory, original);
        recovery_forget(directory, original->file.inode);
    } else if (participant.intent.busy && original_examine(writer->fd, path, &found)) {
        intent_stop(directory, &participant.intent, &found);
    }
    participant_free(&participant);
    return why;
}

/* Rank 0's ranges, on all ranks. NULL, on all ranks: one of them is out of memory. */
static struct range *broadcast_ranges(struct range *ranges, uint64_t count, int rank, int ranks, mpi_handle comm)
{
    if (rank != 0)
        ranges = malloc(count * sizeof *ranges);
    bool complete = agree(comm, ranks, ranges != NULL);
    for (uint64_t first = 0; complete && ranks > 1 && first < count; first += BROADCAST_RANGES) {
        const uint64_t part = count - first < BROADCAST_RANGES ? count - first : BROADCAST_RANGES;
        complete = agree_broadcast(ranges + first, (int)(part * sizeof *ranges), comm);
    }
    if (complete)
        return ranges;
    free(ranges);
    return NULL;
}

/* Whether this rank has the target of rank 0. */
static bool same_map(const struct loaded_map *map, const struct recovery_task *what)
{
    return map != NULL && map->header->generation == what->generation && map->header->checksum == what->checksum
        && map_target_at(map, what->target) != NULL;
}

/* Rank 0's index, on all ranks. NULL: this rank has none. */
static struct loaded_map *broadcast_index(struct loaded_map *index, int64_t bytes, int rank, int ranks, mpi_handle comm)
{
    char *base = rank == 0 ? (char *)(uintptr_t)index->base : malloc((size_t)bytes);
    bool complete = agree(comm, ranks, base != NULL);
    for (int64_t first = 0; complete && ranks > 1 && first < bytes; first += BROADCAST_BYTES) {
        const int64_t part = bytes - first < BROADCAST_BYTES ? bytes - first : BROADCAST_BYTES;
        complete = agree_broadcast(base + first, (int)part, comm);
    }
    if (rank == 0)
        return index;
    if (complete)
        return cached_index_map(base);
    free(base);
    return NULL;
}

/* All ranks get ready to read where they are the bytes that rank 0 has found: in replicas, or in the cache files of
 * its `index`, which is taken over. NULL, on all ranks: one of them cannot. */
static struct leased *lease_in_place(mpi_handle comm, int rank, int ranks, const char *path,
                                     const struct loaded_map *map, const struct recovery_task *what,
                                     struct range *ranges, struct loaded_map *index)
{
    const struct original_state original = {.file = what->file, .size = what->size, .mtime_ns = what->mtime_ns};
    const bool cached = what->index > 0;
    struct leased *leased = NULL;
    uint64_t count = what->ranges;
    if (cached) {
        map = index = broadcast_index(index, what->index, rank, ranks, comm);
        if (rank != 0)
            ranges = index == NULL ? NULL : cached_index_ranges(index, &count);
    } else {
        ranges = broadcast_ranges(ranges, count, rank, ranks, comm);
    }
    if (ranges != NULL && (cached ? index != NULL : same_map(map, what)))
        leased = leased_make(map, cached, &map->targets[what->target], path, &original, ranges, count);
    else
        free(ranges);
    if (leased == NULL && index != NULL)
        cached_index_free(index);
    if (agree(comm, ranks, leased != NULL))
        return leased;
    if (leased != NULL)
        leased_free(leased);
    return NULL;
}

/* All ranks write back what rank 0 has found. Rank 0 keeps the journals locked. */
static const char *write_back(mpi_handle comm, int rank, int ranks, const char *path, const struct loaded_map *map,
                              const struct recovery_task *what, struct range *ranges)
{
    struct participant participant;
    const bool same = same_map(map, what);
    ranges = broadcast_ranges(ranges, what->ranges, rank, ranks, comm);
    if (!same)
        participant = (struct participant){.lock = -1,
                                           .writer = {.fd = -1, .comm = comm, .rank = rank, .ranks = ranks}};
    const bool able = same && participant_make(&participant, map, what, path, comm, rank, ranks) && ranges != NULL;
    const char *why = recover(&participant, able, ranges, what->ranges);
    if (same)
        participant_free(&participant);
    free(ranges);
    return why;
}

/* ---- before an open ---------------------------------------------------------------------------------------------- */

/* Those of targets are made when they are published. */
static void make_directory(const char *directory)
{
    char root[4096];
    if (journals_root(root))
        mkdir(root, 0700);
    mkdir(directory, 0700);
}

/* The lock of a directory, which is `made` here, since others remove it when it has no journals. */
static int lock_for_open(const char *directory, const char *path, bool keep, bool made)
{
    int lock = LOCK_IMPOSSIBLE;
    for (int tries = 0; lock == LOCK_IMPOSSIBLE && tries < NOTE_TRIES; tries++) {
        if (keep && made)
            make_directory(directory);
        lock = lock_or_wait(directory, path, keep);
        if (!keep || !made)
            break;
    }
    return lock;
}

/* Examines one directory. *lock: the lock of its journals, alone, if something can be written back
 * or, with `keep`, for the open. What is in caches is brought home, unless it may be read `in_place`. */
static enum pending_state examine_directory(const struct loaded_map *map, const char *directory, const char *path,
                                            const struct original_state *original, bool keep, bool in_place,
                                            int *lock, struct pending *left)
{
    const struct map_target *target = target_with(map, directory);
    *left = (struct pending){0};
    *lock = -1;
    if (!keep && !stale_journals_any(directory))
        return PENDING_NONE;
    *lock = lock_for_open(directory, path, keep, target == NULL);
    if (*lock == -1 || (*lock >= 0 && !recovery_lock_take_alone(*lock)))
        return PENDING_NONE; /* of programs that are writing to the file now */
    const bool locked = *lock >= 0;
    if (locked)
        stale_journals_finish(directory);
    enum pending_state found = stale_journals_read(locked ? map : NULL, target, directory,
                                                   original, left);
    const bool comes_home = found == PENDING_READY && left->cached && !(in_place && locked && left->count == 0);
    if (comes_home) {
        left->why = !locked ? "the journals cannot be locked" : bring_home(map, directory, path, original);
        found = left->why == NULL ? PENDING_NONE : PENDING_BLOCKED;
    }
    if (found == PENDING_NONE && locked && !comes_home)
        stale_journals_remove(directory, NULL);
    if (found == PENDING_NONE && locked && original != NULL)
        recovery_forget(directory, original->file.inode);
    if (found == PENDING_NONE && locked && !keep)
        remove_directory(directory);
    if (found == PENDING_BLOCKED && !locked)
        left->why = *lock == LOCK_HELD ? "the write-back by another process has not ended in five minutes"
                                       : "the journals cannot be locked";
    if (locked && found != PENDING_READY && !keep) {
        close(*lock);
        *lock = -1;
    }
    return found;
}

static bool old_bytes_allowed(void)
{
    const char *wish = getenv("PDLA_OLD_BYTES");
    return wish != NULL && strcmp(wish, "1") == 0;
}

static void print_refusal(const char *path, const char *why)
{
    const char *consequence = old_bytes_allowed() ? "the program gets old bytes" : "cannot be opened";
    print_message("%s: %s: its newest bytes are in replicas, and their write-back is not possible: %s (run pdla sync)",
                  path, consequence, why);
}

/* Rank 0's findings in one directory. */
struct finding {
    const struct map_target *target;
    struct loaded_map *index; /* of bytes in caches; NULL: they are in replicas, or it is not made yet */
    const char *directory;
    struct pending left;
    int lock;
};

static void drop_finding(struct finding *finding)
{
    free(finding->left.ranges);
    if (finding->index != NULL)
        cached_index_free(finding->index);
    if (finding->lock >= 0)
        close(finding->lock);
    *finding = (struct finding){.lock = -1};
}

static struct recovery_task task_of(const struct loaded_map *map, const struct finding *finding,
                                    const struct original_state *original)
{
    return (struct recovery_task){.ranges = finding->left.count, .generation = map->header->generation,
                                  .checksum = map->header->checksum, .file = original->file,
                                  .target = (uint64_t)(finding->target - map->targets)};
}

/* The same, if its bytes may stay where they are. */
static struct recovery_task task_in_place(const struct loaded_map *published, struct finding *finding, const char *path,
                                          struct original_state *original)
{
    const struct loaded_map *map = finding->index != NULL ? finding->index : published;
    const bool in_place = leased_prepare(published, map, finding->target, finding->directory, path, original,
                                         finding->left.ranges, &finding->left.count);
    struct recovery_task what = task_of(map, finding, original);
    what.in_place = in_place;
    what.index = finding->index != NULL ? (int64_t)map->header->total_size : 0;
    what.size = original->size;
    what.mtime_ns = original->mtime_ns;
    return what;
}

/* What is in caches, which may be read where it is if an index can be made of it; it is brought home otherwise. */
static struct recovery_task task_of_caches(const struct loaded_map *map, struct finding *finding, const char *path,
                                           struct original_state *original)
{
    int64_t size;
    struct recovery_task what = {0};
    void *index = cached_index_make(finding->directory, path, original, &size);
    if (index != NULL && (finding->index = cached_index_map(index)) != NULL
        && (finding->left.ranges = cached_index_ranges(finding->index, &finding->left.count)) != NULL) {
        finding->target = finding->index->targets;
        what = task_in_place(map, finding, path, original);
    }
    if (what.in_place)
        return what;
    if (finding->index != NULL)
        cached_index_free(finding->index);
    free(finding->left.ranges);
    finding->index = NULL;
    finding->left.ranges = NULL;
    finding->left.why = bring_home(map, finding->directory, path, original);
    return (struct recovery_task){.refused = finding->left.why != NULL};
}

/* Rank 0's part: finds one directory with something to write back or, with `in_place`, only one whose
 * bytes can be read where they are. False: nothing is left for the ranks to do. */
static bool find_pending(const struct loaded_map *map, const char *path, const char *keep, bool in_place, int *kept,
                         struct recovery_task *what, struct finding *finding)
{
    struct original_state original;
    const bool exists = original_examine(-1, path, &original), unknown = !exists && lookup_failed(errno);
    struct directories directories = {.failed = unknown};
    if (!unknown)
        directories = directories_of(map, path, exists ? &original : NULL, keep);
    bool found = directories.failed;
    struct finding stays = {.lock = -1};
    *what = (struct recovery_task){.refused = found};
    *finding = (struct finding){.lock = -1, .left.why = "the journals cannot be looked up"};
    for (size_t i = 0; !found && i < directories.count; i++) {
        const bool mine = i == 0 && keep != NULL;
        if (mine && *kept >= 0)
            continue;
        const bool stay = in_place && stays.directory == NULL;
        const enum pending_state state = examine_directory(map, directories.paths[i], path, exists ? &original : NULL,
                                                           mine, stay, &finding->lock, &finding->left);
        finding->target = target_with(map, directories.paths[i]);
        finding->directory = directories.paths[i];
        if (state == PENDING_READY && stay) {
            stays = *finding;
            *finding = (struct finding){.lock = -1};
            continue;
        }
        if (state == PENDING_READY)
            *what = task_of(map, finding, &original);
        what->refused = state == PENDING_BLOCKED;
        found = what->ranges > 0 || what->refused;
        if (mine) {
            *kept = finding->lock;
            finding->lock = -1;
        }
    }
    if (stays.directory != NULL && !found) {
        *finding = stays;
        *what = stays.left.cached ? task_of_caches(map, finding, path, &original)
                                  : task_in_place(map, finding, path, &original);
        found = what->ranges > 0 || what->refused;
    } else if (stays.directory != NULL) {
        drop_finding(&stays);
    }
    const int lock = finding->lock >= 0 ? finding->lock : *kept;
    if (what->ranges > 0 && !what->in_place) /* the other ranks help */
        lock_bytes(lock, LOCK_SHARED, HELPERS, OPENS);
    finding->directory = NULL;
    free_directories(&directories);
    return found;
}

/* RATIONALE: without PDLA_MAP a map is read only where a note of the inode says that bytes may
 * wait. */
static const struct loaded_map *map_for(const char *path)
{
    const char *name = getenv("PDLA_MAP"), *ignored;
    struct stat found;
    const bool wanted = (name != NULL && *name != '\0') || (stat(path, &found) == 0 && recovery_noted(found.st_ino));
    return wanted ? published_map(&ignored) : NULL;
}

/* RATIONALE: rank 0 keeps others out until the file is open. A rank that first opens the file by
 * itself would wait for rank 0. */
static const char *wait_for_all_ranks(mpi_handle comm, int ranks)
{
    if (ranks == 1)
        return NULL;
    int64_t mine = -(int64_t)deferred_close_error(), all;
    if (!agree_reduce(&mine, &all, 1, running_mpi()->op_min, comm))
        return "the ranks cannot agree";
    return all == 0 ? NULL : DEFERRED_CLOSE_FAILED;
}

const char *recovery_before_open(mpi_handle comm, int rank, int ranks, const char *path, const char *keep, int *kept,
                                 struct leased **leased, uint32_t *word)
{
    const char *why = wait_for_all_ranks(comm, ranks), *ignored;
    const struct loaded_map *map = rank == 0 ? map_for(path) : NULL;
    bool in_place = leased != NULL;
    *kept = -1;
    for (bool more = true; more && why == NULL;) {
        struct recovery_task what = {0};
        struct finding finding = {.lock = -1};
        if (rank == 0 && find_pending(map, path, keep, in_place, kept, &what, &finding) && what.refused) {
            print_refusal(path, finding.left.why);
            what.refused = !old_bytes_allowed();
        }
        what.word = *word;
        if (ranks > 1 && !agree_broadcast(&what, (int)sizeof what, comm)) {
            drop_finding(&finding);
            why = "the ranks cannot agree";
            break;
        }
        *word = what.word;
        more = what.ranges > 0;
        if (rank != 0 && more)
            map = published_map(&ignored);
        if (what.in_place && leased != NULL) {
            *leased = lease_in_place(comm, rank, ranks, path, map, &what, finding.left.ranges, finding.index);
            in_place = false;
            more = *leased == NULL;
        } else {
            why = more ? write_back(comm, rank, ranks, path, map, &what, finding.left.ranges)
                : what.refused ? "its newest bytes are in replicas" : NULL;
            if (more && why != NULL && rank == 0)
                print_refusal(path, why);
            if (more && why != NULL && old_bytes_allowed()) {
                why = NULL;
                more = false;
            }
        }
        if (finding.lock >= 0)
            close(finding.lock);
    }
    if (why != NULL && *kept >= 0) {
        close(*kept);
        *kept = -1;
    }
    return why;
}

/* RATIONALE: calls of the C library that recovery makes may come back here through
 * libpdla-coherence.so. */
int recovery_by_one_process(const char *path)
{
    int kept;
    uint32_t word = 0;
    return recovery_before_open(0, 0, 1, path, NULL, &kept, NULL, &word) == NULL ? 0 : EIO;
}

void recovery_deleted(const struct original_state *deleted)
{
    const char *path = deleted->path, *ignored;
    struct directories directories = directories_of(published_map(&ignored), path, deleted, NULL);
    for (size_t i = 0; i < directories.count; i++) {
        const char *directory = directories.paths[i];
        const int lock = stale_journals_any(directory) ? lock_or_wait(directory, path, false)
                                                       : lock_journals(directory, LOCK_ALONE, 0, LOCK_ALL);
        if (lock < 0)
            continue;
        stale_journals_discard(directory, deleted);
        recovery_forget(directory, deleted->file.inode);
        remove_directory(directory);
        close(lock);
    }
    free_directories(&directories);
}
