/* RATIONALE: a rank brings home all that a neighbour's journal tells of, not only what it reads: the journal is
 * cleared then, so that later reads find nothing, and whatever else the reader does (sizes, shared pointers, the MPI
 * library's own reads) is right by itself. Each journal has a mutex, which outlives the process that holds it: it is
 * held while the journal grows, by its owner, and while it is brought home and cleared, by anybody. Nobody waits for a
 * second one. To look takes no mutex: what was noted before the look began is either still there or, when the journal
 * was cleared meanwhile, in the original. */
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
#include "read_plan.h"
#include "request.h"
#include "stub.h"
#include "writeback.h"
#include "writer.h"

enum {
    SHARED_BYTES = 128,
    MOST_LOOKS = 1 << 16 /* at an entry for a piece; then bytes are taken for there */
};

/* The last bytes of a journal's first page. */
struct shared {
    pthread_mutex_t mutex;
    int64_t low, high; /* atomic; what the journal tells of is in these bytes of the original */
};
_Static_assert(sizeof(struct shared) <= SHARED_BYTES, "the end of the page");
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER - SHARED_BYTES, "beside the header");

struct neighbour {
    struct journal journal;
    struct shared *shared;
};

struct neighbours {
    struct shared *own;
    int count;
    struct neighbour each[];
};

/* Where a rank's journal is. */
struct address {
    uint64_t node;
    char name[120];
};

/* RATIONALE: a mapping of its own, which stays where it is when that of a journal moves as it grows: a mutex that is
 * held is known by its address. */
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

/* A rank that was killed leaves a journal that is whole at any time. */
static void lock(struct shared *shared)
{
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->mutex);
}

static struct address address_of(const struct stub_writer *writer)
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

static bool map_neighbour(struct neighbour *neighbour, const char *directory, const char *name)
{
    char path[4096];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    *neighbour = (struct neighbour){.journal = {.fd = -1}, .shared = map_shared(fd)};
    void *base = fstat(fd, &found) != 0 || neighbour->shared == NULL ? MAP_FAILED
        : mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) {
        unmap_shared(neighbour->shared);
        return false;
    }
    neighbour->journal.header = base;
    neighbour->journal.size = (size_t)found.st_size;
    return true;
}

static void unmap_neighbour(struct neighbour *neighbour)
{
    munmap(neighbour->journal.header, neighbour->journal.size);
    unmap_shared(neighbour->shared);
}

struct neighbours *peers_open(const struct stub_writer *writer)
{
    const char *directory = map_at(writer->map, writer->target->journals);
    const struct address mine = address_of(writer);
    struct address *all = malloc((size_t)writer->ranks * sizeof *all);
    struct neighbours *neighbours = calloc(1, sizeof *neighbours + (size_t)writer->ranks * sizeof *neighbours->each);
    struct shared *own = make_shared(&writer->journal);
    int64_t able = all != NULL && neighbours != NULL && own != NULL, agreed;
    able = agree_reduce(&able, &agreed, 1, pdla_mpi()->op_min, writer->comm) && agreed
        && agree_gather(&mine, sizeof mine, all, NULL, NULL, writer->comm);
    for (int rank = 0; able && rank < writer->ranks; rank++)
        if (rank != writer->rank && mine.node != 0 && all[rank].node == mine.node)
            neighbours->count += map_neighbour(&neighbours->each[neighbours->count], directory, all[rank].name);
    free(all);
    if (able && neighbours->count > 0) {
        neighbours->own = own;
        return neighbours;
    }
    unmap_shared(own);
    free(neighbours);
    return NULL;
}

void peers_close(struct neighbours *neighbours)
{
    if (neighbours == NULL)
        return;
    for (int i = 0; i < neighbours->count; i++)
        unmap_neighbour(&neighbours->each[i]);
    unmap_shared(neighbours->own);
    free(neighbours);
}

void peers_lock(const struct stub_writer *writer)
{
    if (writer->neighbours != NULL)
        lock(writer->neighbours->own);
}

void peers_unlock(const struct stub_writer *writer)
{
    if (writer->neighbours == NULL)
        return;
    struct shared *own = writer->neighbours->own;
    __atomic_store_n(&own->low, writer->low, __ATOMIC_RELEASE);
    __atomic_store_n(&own->high, writer->high, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&own->mutex);
}

/* Whether a journal's first `count` entries may tell of a piece of a replica. */
static bool tells_of(const struct journal *journal, int64_t count, uint64_t replica, const struct piece *piece)
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

/* Whether a neighbour may have any byte of a request (NULL: it is not known). */
static bool has(const struct stub_writer *writer, struct neighbour *neighbour, const struct request *request)
{
    int64_t count = journal_follow(&neighbour->journal), looks = MOST_LOOKS;
    if (count <= 0 || request == NULL)
        return count != 0;
    for (uint32_t i = 0; i < writer->target->replica_count; i++) {
        const struct map_replica *replica = target_replica(writer, i);
        struct walk walk;
        struct piece piece;
        walk_start(&walk, writer->map, replica, request);
        while (walk_next(&walk, &piece)) {
            looks -= 1 + (piece.replica_offset < 0 ? 0 : count);
            if (looks < 0 || (piece.replica_offset >= 0 && tells_of(&neighbour->journal, count, replica->id, &piece)))
                return true;
        }
    }
    return false;
}

static int bring_back_of(struct file_handle *handle, struct neighbour *neighbour)
{
    lock(neighbour->shared);
    int error = journal_follow(&neighbour->journal) < 0 ? ENOMEM
        : bring_back_journal(handle, &neighbour->journal, neighbour->shared->low, neighbour->shared->high);
    pthread_mutex_unlock(&neighbour->shared->mutex);
    return error;
}

int peers_bring_back(struct file_handle *handle, const struct io_call *call, bool *found)
{
    const struct stub_writer *writer = writer_of(handle);
    struct neighbours *neighbours = writer->neighbours;
    struct request request;
    int error = 0;
    *found = false;
    if (neighbours == NULL || (call != NULL && call->bytes == 0))
        return 0;
    const bool known = call != NULL && !(call->flags & CALL_SHARED) && request_of(call, &request) == NULL;
    for (int i = 0; error == 0 && i < neighbours->count; i++)
        if (journal_count(&neighbours->each[i].journal) != 0 && has(writer, &neighbours->each[i], known ? &request : NULL)) {
            *found = true;
            error = bring_back_of(handle, &neighbours->each[i]);
        }
    return error;
}

int peers_lengthen(struct file_handle *handle)
{
    struct neighbours *neighbours = writer_of(handle)->neighbours;
    int error = 0;
    for (int i = 0; neighbours != NULL && error == 0 && i < neighbours->count; i++) {
        struct neighbour *neighbour = &neighbours->each[i];
        if (journal_count(&neighbour->journal) == 0)
            continue;
        lock(neighbour->shared);
        if (journal_count(&neighbour->journal) > 0)
            error = lengthen_to(handle, neighbour->shared->high);
        pthread_mutex_unlock(&neighbour->shared->mutex);
    }
    return error;
}
