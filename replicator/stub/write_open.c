/* Opening and closing files whose writes may be redirected. */
#include "write_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "cache_gain.h"
#include "collective_consensus.h"
#include "components.h"
#include "deferred_close.h"
#include "exchange.h"
#include "locks.h"
#include "mover.h"
#include "node_home.h"
#include "node_peers.h"
#include "open.h"
#include "originals.h"
#include "recovery.h"
#include "report.h"
#include "redirection.h"
#include "write_stats.h"
#include "writeback.h"
#include "writer.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct writer *open_writers; /* of this process; atomic, changed under the lock */

/* Rank 0's offer to redirect writes to the file. */
struct offer {
    uint64_t redirects;            /* 1: its writes may be redirected */
    uint64_t cached;               /* 1: to a cache, without a map */
    uint64_t generation, checksum; /* of rank 0's map */
    uint64_t target, lease;
    struct file_identity file;
    uint64_t others_write;         /* 1: others write to the file, too */
    uint64_t open;                 /* of this open, unlike any other */
};

/* What the ranks agree on: the AND of what each can do. */
struct write_abilities {
    uint64_t able, alone; /* all bits or none; `alone`: each process has the file open by this handle only */
    uint64_t usable; /* replicas, by number */
};
_Static_assert(MOST_REPLICAS == 64, "a bit for each");

static const char *unsuitable(int amode)
{
    if (amode & AMODE_DELETE_ON_CLOSE)
        return "deleted on close";
    if (amode & (AMODE_SEQUENTIAL | AMODE_APPEND))
        return "sequential access, or appending";
    return amode & (AMODE_WRONLY | AMODE_RDWR) ? NULL : "not opened for writing";
}

/* Of an open whose writes go to caches. */
static const struct map_target no_replicas;

static bool leases(void)
{
    const char *wish = getenv("PDLA_WRITES");
    return wish != NULL && strcmp(wish, "lease") == 0;
}

static bool replicas_wanted(void)
{
    const char *wish = getenv("PDLA_WRITES");
    return wish != NULL && (strcmp(wish, "lease") == 0 || strcmp(wish, "close") == 0);
}

static const struct map_target *writer_target(const struct loaded_map *map, const char *path)
{
    return replicas_wanted() || cache_policy(path) == POLICY_NONE ? recovery_target(map, path) : NULL;
}

bool writer_place(const struct loaded_map *map, const char *path, char journals[4096])
{
    const struct map_target *target = writer_target(map, path);
    if (target != NULL)
        return snprintf(journals, 4096, "%s", (const char *)map_at(map, target->journals)) < 4096;
    return cache_policy(path) != POLICY_NONE && recovery_cache_directory(path, journals);
}

/* Why the writes of a file opened in this mode are not redirected. NULL: they are. */
static const char *unwanted(const struct map_target *target, const struct opening *opening, const char *unjudged)
{
    struct cache_hints hints;
    const char *why = unsuitable(opening->amode), *uncached = NULL;
    if (target != NULL && !replicas_wanted())
        return "not asked for";
    if (target == NULL)
        uncached = cache_hints_of(opening, 0, unjudged, &hints);
    /* RATIONALE: where it is not known how a file is striped, its reads are not judged, either. */
    return why == NULL || (uncached != NULL && hints.policy == POLICY_IBRIDGE) ? uncached : why;
}

/* Discards the bytes of the replicas. */
static void drop_replicas(const struct loaded_map *map, const struct map_target *target)
{
    for (uint32_t i = 0; i < target->replica_count; i++)
        components_drop(map, &map->replicas[target->first_replica + i]);
}

/* Rank 0's offer, with the lock of the journals. */
static struct offer make_offer(const struct loaded_map *map, const struct opening *opening, const char *unjudged,
                               int lock)
{
    const char *path = opening->path;
    const struct map_target *target = writer_target(map, path);
    char directory[4096];
    struct write_stats *written = !writer_place(map, path, directory) ? NULL
        : write_stats_of(target == NULL ? path : map_at(map, target->path), target == NULL);
    struct original_state found;
    if (written == NULL)
        return (struct offer){0};
    const char *why = unwanted(target, opening, unjudged);
    if (!original_examine(-1, path, &found) || !S_ISREG(found.attributes.mode))
        why = "not a regular file";
    if (why == NULL && lock < 0)
        why = "the journals cannot be locked";
    if (why == NULL && !lock_none_abandoned(lock))
        why = "an earlier write to the replicas has not ended";
    if (why == NULL && target != NULL && recovery_lock_has_readers(lock))
        why = "other programs read the bytes of an earlier run in the replicas";
    const bool alone = why == NULL && recovery_lock_take_alone(lock);
    if (why == NULL && stale_journals_pending(directory))
        why = "bytes of an earlier run wait for pdla sync";
    if (why == NULL && alone && target != NULL)
        drop_replicas(map, target);
    if (why == NULL && !recovery_lock_share(lock))
        why = "the journals cannot be locked";
    /* RATIONALE: an open without PDLA_MAP finds the bytes by the note only. */
    if (why == NULL && !recovery_note(directory, found.file.inode))
        why = "the note of its journals cannot be written";
    write_stats_refuse(written, why);
    if (why != NULL)
        return (struct offer){0};
    struct offer offer = {.redirects = 1, .cached = target == NULL, .file = found.file, .others_write = !alone};
    if (getrandom(&offer.open, sizeof offer.open, GRND_NONBLOCK) != (ssize_t)sizeof offer.open)
        offer.open = (uint64_t)clock_real_ns();
    if (target != NULL) {
        offer.generation = map->header->generation;
        offer.checksum = map->header->checksum;
        offer.target = (uint64_t)(target - map->targets);
        offer.lease = leases();
    }
    return offer;
}

static void free_writer(struct writer *writer)
{
    for (uint32_t i = 0; writer->components != NULL && i < writer->target->replica_count; i++)
        components_close(writer->map, target_replica(writer, i), writer->components[i]);
    free(writer->components);
    exchange_free(writer->exchange);
    peers_close(writer->peers);
    cache_close(writer);
    deferred_close_free(writer->deferred);
    cache_gain_free(writer->gain);
    journal_close(&writer->journal, true);
    original_close(writer->fd);
    lock_close(writer->lock);
    pthread_mutex_destroy(&writer->mutex);
    free(writer->path);
    free(writer->journals);
    free(writer);
}

/* Notes why the cache file cannot be made. `foreign`: its directory is not this user's. */
static void refuse_cache(struct writer *writer, const struct cache_hints *hints, bool foreign)
{
    char why[1024];
    const bool judges = policy_judges(hints->policy);
    snprintf(why, sizeof why, "%s belongs to another user, or others can write to it", hints->directory);
    write_stats_refuse(writer->written, judges && foreign ? why
                       : judges ? "the cache file cannot be made on the SSD server"
                                : "the cache file cannot be made in the directory e10_cache_path");
}

/* Makes the journal and, for a cache, its file. */
static bool make_journal(struct writer *writer, const struct offer *offer, const struct cache_hints *hints)
{
    const struct journal_owner owner = {.directory = writer->journals,
                                        .target = writer->path,
                                        .open = offer->open,
                                        .cache = offer->cached ? hints->directory : NULL,
                                        .rank = writer->rank,
                                        .lease = writer->lease,
                                        .others_write = offer->others_write};
    int error = journal_create(&writer->journal, &owner, writer->fd);
    const bool listed = error == 0;
    if (listed && offer->cached)
        writer->cache = cache_open(&writer->journal, hints, &error);
    if (error != 0 && offer->cached)
        refuse_cache(writer, hints, listed && error == EPERM);
    return error == 0;
}

/* Opens what this rank needs for redirection, and notes in `mine` what it can do. Takes `lock`
 * over. NULL: out of memory, or the entry of the target is damaged. */
static struct writer *make_writer(const struct loaded_map *map, const struct offer *offer,
                                  const struct opening *opening, const struct cache_hints *hints, int rank, int lock,
                                  struct write_abilities *mine)
{
    const struct map_target *target = offer->cached ? &no_replicas : map_target_at(map, offer->target);
    const char *coherence = getenv("PDLA_COHERENCE");
    char directory[4096] = "";
    struct writer *writer = target == NULL ? NULL : calloc(1, sizeof *writer);
    const struct noted_file offered = {&offer->file, opening->path, false};
    struct original_state found;
    if (writer == NULL)
        return NULL;
    *writer = (struct writer){.map = map, .target = target, .lease = offer->lease, .rank = rank, .lock = lock,
                                   .joins = !policy_judges(hints->policy), .low = INT64_MAX, .fd = -1,
                                   .request = hints->request,
                                   .coherent = coherence == NULL || strcmp(coherence, "mpi") != 0};
    pthread_mutex_init(&writer->mutex, NULL);
    writer->components = calloc(target->replica_count + 1, sizeof *writer->components);
    writer->path = strdup(offer->cached ? opening->path : map_at(map, target->path));
    if (writer_place(map, opening->path, directory))
        writer->journals = strdup(directory);
    if (writer->path != NULL)
        writer->written = write_stats_of(writer->path, offer->cached);
    if (writer->lock < 0)
        writer->lock = recovery_lock_shared(directory);
    const int access = opening->amode & AMODE_RDWR ? O_RDWR : O_WRONLY;
    writer->fd = original_open(opening->path, access | O_NOFOLLOW);
    if (writer->components == NULL || writer->journals == NULL || writer->written == NULL || writer->lock < 0
        || writer->fd < 0 || !original_examine(writer->fd, opening->path, &found)
        || !S_ISREG(found.attributes.mode) || file_compare(&offered, &found.file, opening->path) != FILE_THIS)
        return writer;
    writer->device = found.file.device;
    writer->inode = found.file.inode;
    for (uint32_t i = 0; i < target->replica_count && i < MOST_REPLICAS; i++)
        if ((writer->components[i] = components_make(map, target_replica(writer, i), TIMEOUT_SHORT)) != NULL)
            mine->usable |= UINT64_C(1) << i;
    if (offer->cached)
        mine->usable = ~UINT64_C(0);
    if (mine->usable != 0 && make_journal(writer, offer, hints))
        mine->able = ~UINT64_C(0);
    return writer;
}

bool writers_any(void)
{
    return __atomic_load_n(&open_writers, __ATOMIC_RELAXED) != NULL;
}

bool writers_end_redirection(uint64_t device, uint64_t inode, const char *why)
{
    bool any = false;
    pthread_mutex_lock(&open_lock);
    for (struct writer *writer = open_writers; writer != NULL; writer = writer->next)
        if (writer->inode == inode && writer->device == device) {
            bool found;
            pthread_mutex_lock(&writer->mutex);
            if (exchange_waits(writer))
                cache_await(writer, NULL);
            if (writer_write_back(writer->handle) == 0)
                peers_write_back(writer->handle, NULL, &found);
            writer->opened_again = any = true;
            pthread_mutex_unlock(&writer->mutex);
            writer_stop(writer, why);
        }
    pthread_mutex_unlock(&open_lock);
    return any;
}

bool writers_extend_original(uint64_t device, uint64_t inode)
{
    bool any = false;
    pthread_mutex_lock(&open_lock);
    for (struct writer *writer = open_writers; writer != NULL; writer = writer->next)
        if (writer->inode == inode && writer->device == device) {
            pthread_mutex_lock(&writer->mutex);
            any = journal_waiting(&writer->journal) > 0 || any;
            extend_original(writer->handle);
            pthread_mutex_unlock(&writer->mutex);
        }
    pthread_mutex_unlock(&open_lock);
    return any;
}

/* Bytes in the journal when the file is closed. */
static uint64_t bytes_left(const struct writer *writer)
{
    uint64_t left = 0;
    const uint64_t count = journal_count(&writer->journal);
    for (uint64_t i = count - journal_waiting(&writer->journal); i < count; i++) {
        int64_t length;
        journal_entry(&writer->journal, i, &length);
        left += (uint64_t)length;
    }
    return left;
}

/* Writes back what this process has of a file that it has not closed. */
static void write_back_unclosed(struct writer *writer, bool over)
{
    const bool held = pthread_mutex_trylock(&writer->mutex) == 0;
    const bool waits = held && writer->error == 0 && journal_waiting(&writer->journal) > 0;
    const int error = waits ? writer_write_back(writer->handle) : over && !held ? EBUSY : 0;
    if (held && over && error == 0 && writer->cache != NULL)
        cache_abandon(writer);
    if (held)
        pthread_mutex_unlock(&writer->mutex);
    if (error == 0)
        return;
    const char *path = writer->path;
    print_message("%s: the program did not close it, and the write-back failed (%s): its newest bytes are in replicas "
                  "(run pdla sync)", path, strerror(error));
    if (held)
        write_stats_left(writer->written, bytes_left(writer), writer->journal.path);
    pthread_mutex_lock(&writer->written->lock);
    writer->written->error = error;
    pthread_mutex_unlock(&writer->written->lock);
}

/* Says what the thread leaves that has interrupted itself. RATIONALE: it may hold any lock, and may have been anywhere
 * in the C library. The journals have all that was written, as after a kill. */
static void say_unclosed(void)
{
    static const char left[] = "the program ended in a signal handler, within a call";
    if (pthread_mutex_trylock(&open_lock) != 0) {
        print_message("%s: its newest bytes may be in replicas or caches (run pdla sync)", left);
        return;
    }
    for (struct writer *writer = open_writers; writer != NULL; writer = writer->next)
        if (journal_waiting(&writer->journal) > 0)
            print_message("%s: %s: its newest bytes are in %s (run pdla sync)", writer->path, left,
                          writer->cache != NULL ? "caches" : "replicas");
    pthread_mutex_unlock(&open_lock);
}

void redirector_ending(bool over, bool interrupts)
{
    int error = errno;
    if (interrupts) {
        if (over)
            say_unclosed();
        return;
    }
    if (!over)
        deferred_close_await(NULL, 0);
    mover_end();
    if (pthread_mutex_trylock(&open_lock) != 0)
        return;
    for (struct writer *writer = open_writers; writer != NULL; writer = writer->next)
        write_back_unclosed(writer, over);
    pthread_mutex_unlock(&open_lock);
    errno = error;
}

/* The process opens the file once more: its other handles of the file redirect no more writes.
 * Returns whether there are any. */
static bool end_other_handles(const char *path)
{
    struct stat found;
    return writers_any() && stat(path, &found) == 0
        && writers_end_redirection(found.st_dev, found.st_ino, "the file was opened again");
}

static void enter_open(struct writer *writer)
{
    pthread_mutex_lock(&open_lock);
    writer->next = open_writers;
    __atomic_store_n(&open_writers, writer, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&open_lock);
}

/* On all ranks; the result is the same. */
static bool begin_cache(struct writer *writer, const struct cache_hints *hints)
{
    writer->deferred = deferred_close_make(writer, writer->handle, hints->guard);
    writer->judges = policy_judges(hints->policy);
    writer->divides = hints->policy == POLICY_IBRIDGE || hints->policy == POLICY_LIU;
    if (writer->peers != NULL)
        writer->exchange = exchange_make(writer, hints);
    if (!writer->judges)
        writer->gain = cache_gain_make(writer->path, !hints->on_close);
    const bool judges = redirection_of(writer->handle)->critical != NULL;
    const enum cache_gain_guess gain = writer->gain == NULL ? GAIN_NOT_KNOWN : cache_gain_guess(writer->gain);
    const int64_t mine[7] = {writer->exchange != NULL && judges == writer->judges && cache_begin(writer, hints),
                             writer->deferred != NULL, writer->judges, !writer->judges,
                             gain != GAIN_LIKELY, gain != GAIN_UNLIKELY,
                             writer->peers != NULL && peers_in_blocks(writer->peers, writer->ranks)};
    int64_t all[7];
    if (!agree_reduce(mine, all, 7, running_mpi()->op_min, writer->comm) || all[0] == 0 || all[2] == all[3])
        return false;
    exchange_take_turns(writer->exchange, all[6] != 0 ? writer->peers->most : 1);
    if (writer->judges) {
        exchange_free(writer->exchange);
        writer->exchange = NULL;
    }
    if (all[1] == 0) {
        deferred_close_free(writer->deferred);
        writer->deferred = NULL;
    }
    if (writer->deferred != NULL) {
        cache_gain_free(writer->gain); /* what the program computes after the close is not known */
        writer->gain = NULL;
    }
    /* Ranks that wrote nothing to earlier files know nothing. */
    writer->straight = writer->deferred == NULL && all[4] != 0 && all[5] == 0;
    return true;
}

static void watch(struct writer *writer)
{
    for (uint32_t i = 0; i < writer->target->replica_count; i++)
        writer->share += target_replica(writer, i)->size / writer->ranks;
    if (writer->deferred != NULL)
        writer->watched = mover_watch(deferred_close_handle(writer->deferred), deferred_close_move);
    else if (writer->cache == NULL)
        writer->watched = writer->lease && mover_watch(writer->handle, begin_durable);
    else if (cache_flushes(writer->cache) || exchange_is_possible(writer))
        writer->watched = mover_watch(writer->handle, node_home_some);
}

/* With rank 0's offer, which has the `lock` and hands it over. `objection`: why this rank's writes are not to be
 * redirected; NULL: they may be. */
static void open_offered(struct file_handle *handle, mpi_handle comm, int ranks, int rank,
                         const struct opening *opening, const struct loaded_map *map, const struct offer *offer,
                         int lock, const char *objection)
{
    const struct mpi *mpi = running_mpi();
    struct write_abilities mine = {.alone = objection != NULL ? 0 : ~UINT64_C(0)}, all;
    struct writer *writer = NULL;
    struct cache_hints hints = {0};
    const char *unjudged = handle == NULL ? NULL : redirection_of(handle)->unjudged;
    const bool same = offer->cached ? cache_hints_of(opening, rank, unjudged, &hints) == NULL
        : map != NULL && map->header->generation == offer->generation && map->header->checksum == offer->checksum;
    if (handle != NULL && same)
        writer = make_writer(map, offer, opening, &hints, rank, lock, &mine);
    if (!agree_reduce(&mine, &all, (int)(sizeof mine / 8), mpi->op_band, comm))
        all.able = 0;
    if (writer == NULL)
        return;
    if (objection != NULL && writer->written != NULL)
        write_stats_refuse(writer->written, objection);
    writer->ranks = ranks;
    writer->comm = mpi->comm_null;
    bool opened = all.able != 0 && all.usable != 0 && (ranks == 1 || mpi->Comm_dup(comm, &writer->comm) == 0);
    for (uint32_t i = 0; opened && i < writer->target->replica_count && i < MOST_REPLICAS; i++)
        if (!(all.usable >> i & 1) && writer->components[i] != NULL) {
            components_close(writer->map, target_replica(writer, i), writer->components[i]);
            writer->components[i] = NULL;
        }
    writer->handle = handle;
    redirection_of(handle)->writer = writer;
    opened = opened && all.alone != 0;
    if (opened && (ranks > 1 || offer->cached))
        writer->peers = peers_open(writer, offer->open);
    if (opened && offer->cached)
        opened = begin_cache(writer, &hints);
    if (opened) {
        enter_open(writer);
        watch(writer);
    } else {
        redirection_of(handle)->writer = NULL;
        if (writer->comm != mpi->comm_null)
            mpi->Comm_free(&writer->comm);
        free_writer(writer);
    }
}

bool writer_wanted(const char *path, int amode)
{
    return (replicas_wanted() || cache_policy(path) != POLICY_NONE) && unsuitable(amode) == NULL;
}

void writer_open(struct file_handle *handle, mpi_handle comm, int rank, int ranks, const struct loaded_map *map,
                 struct opening *opening, bool target)
{
    struct offer offer = {0};
    const char *path = opening->path, *objection = NULL;
    if (opening->notes[NOTE_OPEN_BY_POSIX])
        objection = "the program has the file open without MPI, too";
    if (end_other_handles(path))
        objection = "another handle of this process redirects its writes";
    if (!target)
        return;
    int lock = (int)opening->notes[NOTE_LOCK];
    opening->notes[NOTE_LOCK] = -1;
    if (rank == 0 && handle != NULL)
        offer = make_offer(map, opening, redirection_of(handle)->unjudged, lock);
    if (agree_broadcast(&offer, (int)sizeof offer, comm) && offer.redirects)
        open_offered(handle, comm, ranks, rank, opening, map, &offer, lock, objection);
    else if (lock >= 0)
        close(lock);
}

static void leave_open(struct writer *writer)
{
    pthread_mutex_lock(&open_lock);
    struct writer **link = &open_writers;
    while (*link != writer)
        link = &(*link)->next;
    __atomic_store_n(link, writer->next, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&open_lock);
}

static bool is_deleted(const struct writer *writer)
{
    struct stat found;
    return fstat(writer->fd, &found) == 0 && found.st_nlink == 0;
}

/* Whether the next open may find the bytes of a lease: every process has the file open only by this handle, and the
 * file has a name. RATIONALE: afterwards all ranks are here, so that none of them waits at another open for this close
 * to end. */
static bool may_keep(const struct writer *writer)
{
    int64_t mine = !writer->opened_again && !is_deleted(writer), all;
    return agree_reduce(&mine, &all, 1, running_mpi()->op_min, writer->comm) && all != 0;
}

/* Who else has the file open while it is closed. */
enum other_writers {
    OTHERS_WRITE,
    OTHERS_LEFT_BYTES, /* nobody has it open, but an ended process left bytes */
    OTHERS_NONE
};

/* On rank 0. */
static enum other_writers find_other_writers(const struct writer *writer)
{
    const char *directory = writer->journals;
    if (!recovery_lock_last(writer->lock))
        return OTHERS_WRITE;
    const bool left = stale_journals_count(directory) > (uint64_t)writer->ranks;
    if (left && stale_journals_pending(directory))
        return OTHERS_LEFT_BYTES;
    if (left)
        stale_journals_remove_empty(directory);
    return OTHERS_NONE;
}

/* The answer of rank 0, on all ranks. */
static enum other_writers other_writers_of(const struct writer *writer)
{
    uint64_t others = writer->rank == 0 ? find_other_writers(writer) : OTHERS_WRITE;
    return agree_broadcast(&others, (int)sizeof others, writer->comm) ? others : OTHERS_WRITE;
}

/* RATIONALE: if others still write, or have left bytes, this journal may be the only one that has
 * the last state of the original. Recovery of their journals needs it. */
static void end_journal(struct write_stats *written, struct journal *journal, enum other_writers others)
{
    const bool kept = others != OTHERS_NONE && journal->state.size >= 0;
    if (kept && journal_waiting(journal) == 0)
        write_stats_kept(written, journal->path);
    journal_close(journal, !kept);
}

/* Frees all of a writer but its journal and, on rank 0, the lock. Returns that; -1: elsewhere. */
static int take_down(struct writer *writer, struct journal *journal)
{
    const int lock = writer->rank == 0 ? writer->lock : -1;
    write_stats_left(writer->written, bytes_left(writer), writer->journal.path);
    leave_open(writer);
    cache_close(writer);
    *journal = writer->journal;
    writer->journal = (struct journal)JOURNAL_NONE;
    if (lock >= 0)
        writer->lock = -1;
    free_writer(writer);
    return lock;
}

void writer_end(struct writer *writer)
{
    struct write_stats *written = writer->written;
    const bool removes = writer->rank == 0;
    const bool left = removes && stale_journals_wait(writer->journals);
    struct journal journal;
    writer->deferred = NULL; /* its owner is the caller */
    if (removes && !left)
        stale_journals_remove_empty(writer->journals);
    if (!removes && journal_waiting(&writer->journal) == 0)
        journal_sync(&writer->journal);
    const int lock = take_down(writer, &journal);
    if (removes)
        end_journal(written, &journal, left ? OTHERS_LEFT_BYTES : OTHERS_NONE);
    else
        journal_close(&journal, false);
    lock_close(lock);
}

/* Leaves the rest of the close to the mover. False, the same on all ranks: this is not possible. */
static bool defer_close(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    const struct mpi *mpi = running_mpi();
    if (writer->deferred == NULL)
        return false;
    pthread_mutex_lock(&writer->mutex);
    const bool moves = writer->watched && mover_runs();
    int64_t mine = moves && writer->error == 0 && !writer->opened_again && extend_original(handle) == 0, all;
    pthread_mutex_unlock(&writer->mutex);
    if (!agree_reduce(&mine, &all, 1, mpi->op_min, writer->comm) || all == 0
        || other_writers_of(writer) != OTHERS_NONE)
        return false;
    if (writer->comm != mpi->comm_null)
        mpi->Comm_free(&writer->comm);
    /* Other threads may be at work with the writer's handle, which the program frees now. */
    pthread_mutex_lock(&open_lock);
    pthread_mutex_lock(&writer->mutex);
    redirection_of(handle)->writer = NULL;
    writer->handle = deferred_close_handle(writer->deferred);
    pthread_mutex_unlock(&writer->mutex);
    deferred_close_begin(writer->deferred);
    pthread_mutex_unlock(&open_lock);
    return true;
}

int writer_close(struct file_handle *handle)
{
    if (defer_close(handle))
        return 0;
    struct writer *writer = writer_of(handle);
    const struct mpi *mpi = running_mpi();
    struct write_stats *written = writer->written;
    mpi_handle comm = writer->comm;
    /* A lease is for the next open. Programs that have the file open now would not see its bytes. */
    const bool keeps = writer->lease && may_keep(writer);
    enum other_writers others = keeps ? other_writers_of(writer) : OTHERS_WRITE;
    int error = others != OTHERS_WRITE ? make_durable_together(handle) : write_back_together(handle);
    if (others == OTHERS_WRITE)
        others = other_writers_of(writer);
    pthread_mutex_lock(&written->lock);
    if (error != 0)
        written->error = error;
    pthread_mutex_unlock(&written->lock);
    if (error == 0)
        cache_gain_learn(writer->gain, writer->straight);
    mover_leave(writer->deferred != NULL ? deferred_close_handle(writer->deferred) : handle);
    redirection_of(handle)->writer = NULL;
    struct journal journal;
    const int lock = take_down(writer, &journal);
    /* Rank 0 is the last to release the lock, so the next open of the file finds it free.
     * RATIONALE: until then any rank's journal may be the only one with the last state of the
     * original, which is needed for ranks that have not yet cleared theirs. */
    int64_t mine = 0, all;
    agree_reduce(&mine, &all, 1, mpi->op_min, comm);
    end_journal(written, &journal, others);
    lock_close(lock);
    if (comm != mpi->comm_null)
        mpi->Comm_free(&comm);
    /* Last, since an error handler may not return. */
    return writer_raise(handle, error);
}
