/* RATIONALE: a rank writes back all that another rank's journal lists, not only what it reads. Then
 * the journal is cleared, later reads find nothing in it, and whatever else the reader does (sizes,
 * shared pointers, the MPI library's own reads) is right without more work.
 *
 * Each journal has a mutex, which outlives the process that holds it. Its owner holds it while the
 * journal grows, and any rank while it writes back and clears the journal. Nobody waits for a
 * second mutex while holding one. Looking takes no mutex: an entry from before the look is either
 * still there or, if the journal was cleared meanwhile, its bytes are in the original. */
#include "node_peers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collective_consensus.h"
#include "redirected_call.h"
#include "redirection.h"
#include "replica_choice.h"
#include "reservations.h"
#include "writeback.h"
#include "writer.h"

enum {
    SHARED_BYTES = 256,
    MOST_LOOKS = 1 << 16 /* at an entry for a piece; with more, the journal is taken to have the bytes */
};

_Static_assert(sizeof(struct shared) <= SHARED_BYTES, "the end of the page");
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER - SHARED_BYTES, "the header ends before it");

/* RATIONALE: a mapping of its own, since the address identifies a mutex that is held. */
static struct shared *map_shared(int fd)
{
    char *page = mmap(NULL, JOURNAL_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : (void *)(page + JOURNAL_HEADER - SHARED_BYTES);
}

static void unmap_shared(struct shared *shared)
{
    if (shared != NULL)
        munmap((char *)shared + SHARED_BYTES - JOURNAL_HEADER, JOURNAL_HEADER);
}

static struct shared *make_shared(const struct journal *journal)
{
    pthread_mutexattr_t attributes;
    struct shared *shared = map_shared(journal->fd);
    if (shared == NULL)
        return NULL;
    shared->low = INT64_MAX;
    shared->high = 0;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    pthread_mutex_init(&shared->round.mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return shared;
}

/* The journal of a rank that was killed is consistent at any time. */
void shared_lock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_lock(mutex) == EOWNERDEAD)
        pthread_mutex_consistent(mutex);
}

static void unmap_peer(struct peer *peer)
{
    journal_unmap(&peer->journal);
    unmap_shared(peer->shared);
    free(peer->path);
    if (peer->cache >= 0)
        close(peer->cache);
}

static bool map_peer(struct peer *peer, const char *path)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    *peer = (struct peer){.shared = map_shared(fd), .cache = -1, .path = strdup(path)};
    const bool mapped = journal_map(&peer->journal, fd) == 0 && peer->shared != NULL && peer->path != NULL;
    close(fd);
    if (!mapped) {
        unmap_peer(peer);
        return false;
    }
    if (peer->journal.header->cache[0] != '\0')
        peer->cache = reservations_reopen(peer->journal.header->cache, journal_cache_inode(peer->journal.header));
    return true;
}

/* Maps the journal of another rank. */
static bool add_peer(struct peers **peers, const char *path, int *room)
{
    if ((*peers)->count == *room) {
        struct peers *larger = realloc(*peers, sizeof **peers + 2 * (size_t)*room * sizeof *(*peers)->each);
        if (larger == NULL)
            return false;
        *room *= 2;
        *peers = larger;
    }
    struct peer *peer = &(*peers)->each[(*peers)->count];
    if (!map_peer(peer, path))
        return false;
    (*peers)->count++;
    return true;
}

static int by_rank(const void *one, const void *other)
{
    const struct peer *a = one, *b = other;
    return a->journal.header->rank - b->journal.header->rank;
}

/* Maps all journals of this open that are in the node's directory, in the order of the ranks. *complete: all could be
 * mapped. NULL: out of memory. */
static struct peers *find_peers(const struct writer *writer, uint64_t open, bool *complete)
{
    enum { SOME = 16 };
    char ending[32], directory[4096], path[4096];
    int room = SOME;
    struct peers *peers = calloc(1, sizeof *peers + SOME * sizeof *peers->each);
    const char *own = writer->journal.path;
    const size_t length = (size_t)(strrchr(own, '/') - own);
    memcpy(directory, own, length);
    directory[length] = '\0';
    journal_ending(ending, open);
    DIR *files = peers == NULL ? NULL : opendir(directory);
    *complete = files != NULL;
    const struct dirent *entry;
    while (files != NULL && (errno = 0, entry = readdir(files)) != NULL) {
        const size_t name = strlen(entry->d_name), wanted = strlen(ending);
        if (name <= wanted || strcmp(entry->d_name + name - wanted, ending) != 0)
            continue;
        const bool fits = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < (int)sizeof path;
        if (!fits || (strcmp(path, own) != 0 && !add_peer(&peers, path, &room)))
            *complete = false;
    }
    *complete = *complete && errno == 0;
    if (files != NULL)
        closedir(files);
    if (peers == NULL)
        return NULL;
    qsort(peers->each, (size_t)peers->count, sizeof *peers->each, by_rank);
    peers->first = peers->last = writer->rank;
    for (int i = 0; i < peers->count; i++) {
        const int rank = peers->each[i].journal.header->rank;
        peers->first = rank < peers->first ? rank : peers->first;
        peers->last = rank > peers->last ? rank : peers->last;
        *complete = *complete && (peers->each[i].cache >= 0 || writer->cache == NULL);
    }
    return peers;
}

/* Whether all ranks know all others of their nodes. */
static bool all_found(const struct writer *writer, struct peers *peers, bool complete)
{
    const struct mpi *mpi = running_mpi();
    const bool leads = peers != NULL && peers->first == writer->rank;
    const int64_t size = peers == NULL ? 0 : peers->count + 1;
    /* The ranks that the lowest of each node knows, the nodes, and the ranks that do not know all. */
    const int64_t mine[3] = {leads ? size : 0, leads, !complete || peers == NULL}, smallest = -size;
    int64_t all[3], largest;
    if (!agree_reduce(mine, all, 3, mpi->op_sum, writer->comm)
        || !agree_reduce(&smallest, &largest, 1, mpi->op_min, writer->comm) || peers == NULL)
        return false;
    peers->nodes = (int)all[1];
    peers->most = (int)-largest;
    return all[0] == writer->ranks && all[2] == 0;
}

struct peers *peers_open(const struct writer *writer, uint64_t open)
{
    struct peers *peers = NULL;
    struct shared *own = make_shared(&writer->journal);
    bool complete = false;
    int64_t able = own != NULL, agreed;
    /* RATIONALE: afterwards the journals of all ranks are there. */
    able = agree_reduce(&able, &agreed, 1, running_mpi()->op_min, writer->comm) && agreed;
    if (able)
        peers = find_peers(writer, open, &complete);
    /* RATIONALE: ranks that bring home together must all know each other. */
    const bool found = able && all_found(writer, peers, complete);
    if (peers != NULL && (found || writer->cache == NULL) && (peers->count > 0 || writer->cache != NULL)) {
        peers->own = own;
        peers->round = peers->first < writer->rank ? &peers->each[0].shared->round : &own->round;
        return peers;
    }
    for (int i = 0; peers != NULL && i < peers->count; i++)
        unmap_peer(&peers->each[i]);
    unmap_shared(own);
    free(peers);
    return NULL;
}

bool peers_in_blocks(const struct peers *peers, int ranks)
{
    const int size = peers->count + 1;
    return peers->last - peers->first == size - 1 && peers->first % peers->most == 0
        && (size == peers->most || peers->last == ranks - 1);
}

void peers_close(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (int i = 0; i < peers->count; i++)
        unmap_peer(&peers->each[i]);
    unmap_shared(peers->own);
    free(peers);
}

void peers_lock(const struct writer *writer)
{
    if (writer->peers != NULL)
        shared_lock(&writer->peers->own->mutex);
}

void peers_unlock(const struct writer *writer)
{
    if (writer->peers == NULL)
        return;
    struct shared *own = writer->peers->own;
    __atomic_store_n(&own->low, writer->low, __ATOMIC_RELEASE);
    __atomic_store_n(&own->high, writer->high, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&own->mutex);
}

/* Whether a journal's first `count` entries have bytes of a piece of a replica. */
static bool covers(const struct journal *journal, int64_t count, uint64_t replica, const struct piece *piece)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t length;
        const struct journal_entry entry = journal_entry(journal, (uint64_t)i, &length);
        if (entry.place == replica && entry.start < piece->replica_offset + piece->length
            && piece->replica_offset < entry.start + length)
            return true;
    }
    return false;
}

/* Whether another rank may have any byte of a range (NULL: the range is not known). */
static bool may_have(const struct writer *writer, struct peer *peer, const struct view_range *range)
{
    int64_t count = journal_follow(&peer->journal), looks = MOST_LOOKS;
    if (count <= 0 || range == NULL)
        return count != 0;
    for (uint32_t i = 0; i < writer->target->replica_count; i++) {
        const struct map_replica *replica = target_replica(writer, i);
        struct walk walk;
        struct piece piece;
        walk_start(&walk, writer->map, replica, range);
        while (walk_next(&walk, &piece)) {
            looks -= 1 + (piece.replica_offset < 0 ? 0 : count);
            if (looks < 0 || (piece.replica_offset >= 0 && covers(&peer->journal, count, replica->id, &piece)))
                return true;
        }
    }
    return false;
}

static int write_back_of_peer(struct file_handle *handle, struct peer *peer)
{
    shared_lock(&peer->shared->mutex);
    int error = journal_follow(&peer->journal) < 0 ? ENOMEM
        : write_back_journal(handle, &peer->journal, peer->shared->low, peer->shared->high);
    pthread_mutex_unlock(&peer->shared->mutex);
    return error;
}

int peers_write_back(struct file_handle *handle, const struct io_call *call, bool *found)
{
    const struct writer *writer = writer_of(handle);
    struct peers *peers = writer->peers;
    struct view_range range;
    int error = 0;
    *found = false;
    if (peers == NULL || writer->cache != NULL || (call != NULL && call->bytes == 0))
        return 0;
    const bool known = call != NULL && !(call->flags & CALL_SHARED) && view_range_of(call, &range) == NULL;
    for (int i = 0; error == 0 && i < peers->count; i++)
        if (journal_count(&peers->each[i].journal) != 0 && may_have(writer, &peers->each[i], known ? &range : NULL)) {
            *found = true;
            error = write_back_of_peer(handle, &peers->each[i]);
        }
    return error;
}

int peers_extend_original(struct file_handle *handle)
{
    struct peers *peers = writer_of(handle)->peers;
    int error = 0;
    for (int i = 0; peers != NULL && error == 0 && i < peers->count; i++) {
        struct peer *peer = &peers->each[i];
        if (journal_count(&peer->journal) == 0)
            continue;
        shared_lock(&peer->shared->mutex);
        if (journal_count(&peer->journal) > 0)
            error = extend_original_to(handle, peer->shared->high);
        pthread_mutex_unlock(&peer->shared->mutex);
    }
    return error;
}
