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
    SHARED_BYTES = 128,
    MOST_LOOKS = 1 << 16 /* at an entry for a piece; with more, the journal is taken to have the bytes */
};

/* The last bytes of a journal's first page. */
struct shared {
    pthread_mutex_t mutex;
    int64_t low, high; /* atomic; bytes of the original that contain all entries of the journal */
};
_Static_assert(sizeof(struct shared) <= SHARED_BYTES, "the end of the page");
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER - SHARED_BYTES, "the header ends before it");

struct peer {
    struct journal journal;
    struct shared *shared;
};

struct peers {
    struct shared *own;
    int count;
    struct peer each[];
};

/* Where a rank's journal is. */
struct address {
    uint64_t node;
    char name[120];
};

/* RATIONALE: a mapping of its own, which does not move when the journal grows and its mapping
 * moves. The address identifies a mutex that is held. */
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
    pthread_mutexattr_destroy(&attributes);
    return shared;
}

/* The journal of a rank that was killed is consistent at any time. */
static void lock(struct shared *shared)
{
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->mutex);
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

static bool map_peer(struct peer *peer, const char *directory, const char *name)
{
    char path[4096];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    *peer = (struct peer){.journal = {.fd = -1}, .shared = map_shared(fd)};
    void *base = fstat(fd, &found) != 0 || peer->shared == NULL ? MAP_FAILED
        : mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) {
        unmap_shared(peer->shared);
        return false;
    }
    peer->journal.header = base;
    peer->journal.size = (size_t)found.st_size;
    return true;
}

static void unmap_peer(struct peer *peer)
{
    munmap(peer->journal.header, peer->journal.size);
    unmap_shared(peer->shared);
}

struct peers *peers_open(const struct writer *writer)
{
    const char *directory = map_at(writer->map, writer->target->journals);
    const struct address mine = address_of(writer);
    struct address *all = malloc((size_t)writer->ranks * sizeof *all);
    struct peers *peers = calloc(1, sizeof *peers + (size_t)writer->ranks * sizeof *peers->each);
    struct shared *own = make_shared(&writer->journal);
    int64_t able = all != NULL && peers != NULL && own != NULL, agreed;
    able = agree_reduce(&able, &agreed, 1, running_mpi()->op_min, writer->comm) && agreed
        && agree_gather(&mine, sizeof mine, all, NULL, NULL, writer->comm);
    for (int rank = 0; able && rank < writer->ranks; rank++)
        if (rank != writer->rank && mine.node != 0 && all[rank].node == mine.node)
            peers->count += map_peer(&peers->each[peers->count], directory, all[rank].name);
    free(all);
    if (able && peers->count > 0) {
        peers->own = own;
        return peers;
    }
    unmap_shared(own);
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
    free(peers);
}

void peers_lock(const struct writer *writer)
{
    if (writer->peers != NULL)
        lock(writer->peers->own);
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
        if (entry.replica == replica && entry.start < piece->replica_offset + piece->length
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
    lock(peer->shared);
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
    if (peers == NULL || (call != NULL && call->bytes == 0))
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
        lock(peer->shared);
        if (journal_count(&peer->journal) > 0)
            error = extend_original_to(handle, peer->shared->high);
        pthread_mutex_unlock(&peer->shared->mutex);
    }
    return error;
}
