/* RATIONALE: a rank writes back all that another rank's journal lists, not only what it reads. Then
 * the journal is cleared, later reads find nothing in it, and whatever else the reader does (sizes,
 * shared pointers, the MPI library's own reads) is right without more work.
 *
 * Each journal has a mutex, which outlives the process that holds it. Its owner holds it while the
 * journal grows, and any rank while it writes back and clears the journal. Nobody waits for a
 * second mutex while holding one. Looking takes no mutex: an entry from before the look is either
 * still there or, if the journal was cleared meanwhile, its bytes are in the original. */
#include "node_peers.h"

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
#include "writeback.h"
#include "writer.h"

enum {
    SHARED_BYTES = 256,
    MOST_LOOKS = 1 << 16 /* at an entry for a piece; with more, the journal is taken to have the bytes */
};

_Static_assert(sizeof(struct shared) <= SHARED_BYTES, "the end of the page");
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER - SHARED_BYTES, "the header ends before it");

/* Where a rank's journal is. */
struct address {
    uint64_t node;
    char name[120];
};

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

static struct address address_of(const struct writer *writer)
{
    struct address address = {0};
    struct stat found;
    const char *name = strrchr(writer->journal.path, '/') + 1;
    if (fstat(writer->journal.fd, &found) != 0 || strlen(name) >= sizeof address.name)
        return address;
    address.node = (uint64_t)crc32c(0, writer->journal.header->boot, sizeof writer->journal.header->boot) << 32
        | crc32c(1, &found.st_dev, sizeof found.st_dev);
    strcpy(address.name, name);
    return address;
}

static void unmap_peer(struct peer *peer)
{
    journal_unmap(&peer->journal);
    unmap_shared(peer->shared);
    free(peer->path);
    if (peer->cache >= 0)
        close(peer->cache);
}

static bool map_peer(struct peer *peer, const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
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
        peer->cache = open(peer->journal.header->cache, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return true;
}

struct peers *peers_open(const struct writer *writer)
{
    const char *directory = writer->journals;
    const struct address mine = address_of(writer);
    struct address *all = malloc((size_t)writer->ranks * sizeof *all);
    struct peers *peers = calloc(1, sizeof *peers + (size_t)writer->ranks * sizeof *peers->each);
    struct shared *own = make_shared(&writer->journal);
    if (peers != NULL)
        peers->node = calloc((size_t)writer->ranks, sizeof *peers->node);
    int64_t able = all != NULL && peers != NULL && own != NULL, agreed;
    able = agree_reduce(&able, &agreed, 1, running_mpi()->op_min, writer->comm) && agreed
        && agree_gather(&mine, sizeof mine, all, NULL, NULL, writer->comm);
    bool complete = mine.node != 0 && (peers == NULL || peers->node != NULL);
    for (int rank = 0; able && rank < writer->ranks; rank++) {
        if (peers->node != NULL)
            peers->node[rank] = all[rank].node;
        if (rank != writer->rank && mine.node != 0 && all[rank].node == mine.node) {
            struct peer *peer = &peers->each[peers->count];
            const bool mapped = map_peer(peer, directory, all[rank].name);
            complete = complete && mapped && (peer->cache >= 0 || writer->cache == NULL);
            peers->count += mapped;
            if (mapped && peers->round == NULL && rank < writer->rank)
                peers->round = &peer->shared->round;
        }
    }
    free(all);
    /* RATIONALE: ranks that bring home together must all know each other. */
    if (able && writer->cache != NULL)
        able = agree_reduce(&(int64_t){complete}, &agreed, 1, running_mpi()->op_min, writer->comm) && agreed;
    if (able && (peers->count > 0 || writer->cache != NULL)) {
        peers->own = own;
        peers->round = peers->round != NULL ? peers->round : &own->round;
        return peers;
    }
    for (int i = 0; peers != NULL && i < peers->count; i++)
        unmap_peer(&peers->each[i]);
    unmap_shared(own);
    if (peers != NULL)
        free(peers->node);
    free(peers);
    return NULL;
}

void peers_close(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (int i = 0; i < peers->count; i++)
        unmap_peer(&peers->each[i]);
    unmap_shared(peers->own);
    free(peers->node);
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
