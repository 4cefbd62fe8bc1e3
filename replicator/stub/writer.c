#include "writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "locks.h"
#include "transfer.h"

enum {
    BOUNCE_BYTES = 4 << 20,
    SCATTER = 8,            /* replica writes for one of the original that are too many, ... */
    SCATTER_BYTES = 65536,  /* ... unless they are this large */
    MOST_ENTRIES = 1 << 20, /* of a journal; with more the process brings back what it has */
    MOST_REPLICAS = 64      /* of a target */
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stub_writer *open_writers; /* of this process */

/* What MPI is to return for an errno, after its error handler. */
static int raise_error(const struct file_handle *handle, int error)
{
    const struct mpi *mpi = pdla_mpi();
    if (error == 0)
        return 0;
    int code = error == ENOSPC || error == EDQUOT ? mpi->err_no_space : mpi->err_io;
    return mpi->File_call_errhandler(handle->file, code) == 0 ? code : mpi->err_io;
}

static void stop(struct stub_writer *writer, const char *why)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&writer->why_not, &none, why, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* With the mutex held. What cannot be brought back stays in the journal, for pdla sync. */
static int bring_back(struct file_handle *handle)
{
    struct stub_writer *writer = handle->writer;
    int error = writer->error != 0 ? writer->error : bring_back_own(handle);
    if (error != 0) {
        writer->error = error;
        stop(writer, "an earlier write could not be brought back");
    }
    return error;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

struct plan {
    struct request request;
    uint32_t chosen;
    struct typemap *memory; /* NULL: contiguous; to be released */
};

/* NULL: the replica has all of the request. */
static const char *covers(const struct loaded_map *map, const struct map_replica *replica, const struct request *request)
{
    struct walk walk;
    struct piece piece;
    int64_t end = -1;
    uint64_t runs = 0;
    walk_start(&walk, map, replica, request);
    while (walk_next(&walk, &piece)) {
        if (piece.replica_offset < 0)
            return runs == 0 ? "no replica for these writes" : "partly in the replica";
        runs += piece.replica_offset != end;
        end = piece.replica_offset + piece.length;
    }
    return runs > SCATTER * walk.extents && request->bytes / SCATTER_BYTES < (int64_t)runs ? "in pieces in the replica" : NULL;
}

/* NULL: the call can be redirected; else why not. */
static const char *make_plan(const struct io_call *call, struct plan *plan)
{
    const struct stub_writer *writer = call->handle->writer;
    const char *why = __atomic_load_n(&writer->why_not, __ATOMIC_ACQUIRE);
    *plan = (struct plan){.chosen = 0};
    if (why != NULL || call->bytes == 0)
        return why;
    if ((why = request_of(call, &plan->request)) != NULL || (why = result_fits(call)) != NULL)
        return why;
    why = "no replica for these writes";
    for (uint32_t i = 0; i < writer->target->replica_count; i++) {
        if (writer->components[i] == NULL)
            continue;
        const char *missing = covers(writer->map, target_replica(writer, i), &plan->request);
        if (missing == NULL) {
            plan->chosen = i;
            return memory_of(call, &plan->memory) ? NULL : "the memory datatype is opaque";
        }
        why = missing;
    }
    return why;
}

static int put(struct transfer *transfer, const struct request *request, char *buffer)
{
    struct walk walk;
    struct piece piece;
    int error = 0;
    walk_start(&walk, transfer->map, transfer->replica, request);
    while (error == 0 && walk_next(&walk, &piece)) {
        error = transfer_add(transfer, piece.replica_offset, piece.length, buffer);
        buffer += piece.length;
    }
    return error;
}

static int put_scattered(struct transfer *transfer, const struct request *request, const char *buffer,
                         const struct typemap *memory)
{
    struct typemap_cursor cursor;
    char *bounce = malloc(request->bytes < BOUNCE_BYTES ? (size_t)request->bytes : BOUNCE_BYTES);
    int error = bounce == NULL ? ENOMEM : 0;
    typemap_cursor_init(&cursor, memory, 0, 0);
    for (int64_t done = 0; error == 0 && done < request->bytes;) {
        struct request part = *request;
        part.position += done;
        part.bytes = request->bytes - done < BOUNCE_BYTES ? request->bytes - done : BOUNCE_BYTES;
        for (int64_t copied = 0; copied < part.bytes;) {
            struct extent place = typemap_cursor_next(&cursor, part.bytes - copied);
            memcpy(bounce + copied, buffer + place.offset, (size_t)place.length);
            copied += place.length;
        }
        error = put(transfer, &part, bounce);
        if (error == 0)
            error = transfer_flush(transfer);
        done += part.bytes;
    }
    free(bounce);
    return error;
}

/* Notes in the journal that the request is in the replica. 0 or an errno. */
static int note(struct stub_writer *writer, const struct plan *plan)
{
    const struct map_replica *replica = target_replica(writer, plan->chosen);
    struct walk walk;
    struct piece piece;
    int64_t start = -1, end = -1;
    int error = 0;
    walk_start(&walk, writer->map, replica, &plan->request);
    while (error == 0 && walk_next(&walk, &piece)) {
        writer->low = piece.offset < writer->low ? piece.offset : writer->low;
        writer->high = piece.offset + piece.length > writer->high ? piece.offset + piece.length : writer->high;
        if (piece.replica_offset != end) {
            if (start >= 0)
                error = journal_add(&writer->journal, replica->id, start, end - start);
            start = piece.replica_offset;
        }
        end = piece.replica_offset + piece.length;
    }
    return error == 0 && start >= 0 ? journal_add(&writer->journal, replica->id, start, end - start) : error;
}

/* Writes a planned call to its replica. False: it is to be written by the MPI library. */
static bool redirect(struct io_call *call, const struct plan *plan, const char **why)
{
    struct stub_writer *writer = call->handle->writer;
    const struct map_replica *replica = target_replica(writer, plan->chosen);
    struct transfer transfer = {.map = writer->map, .writing = true};
    int error = 0;
    pthread_mutex_lock(&writer->mutex);
    if (journal_count(&writer->journal) >= MOST_ENTRIES)
        error = bring_back(call->handle);
    if (call->bytes > 0 && error == 0) {
        /* Replicas for reading are out of date from now on. */
        replicas_write_begin(call->handle, call);
        error = transfer_select(&transfer, replica, writer->components[plan->chosen]);
        if (error == 0)
            error = plan->memory == NULL ? put(&transfer, &plan->request, call->buffer)
                                         : put_scattered(&transfer, &plan->request, call->buffer, plan->memory);
        if (error == 0)
            error = transfer_flush(&transfer);
        if (error == 0)
            error = note(writer, plan);
        replicas_write_end(call->handle);
    }
    pthread_mutex_unlock(&writer->mutex);
    transfer_free(&transfer);
    *why = error == ENOSPC || error == EDQUOT ? "no space in the replica" : "the replica could not be written";
    if (error != 0)
        stop(writer, *why);
    if (error != 0 || !result_give(call))
        return false;
    call->redirected = call->bytes > 0;
    pthread_mutex_lock(&writer->written->lock);
    writer->written->calls += call->bytes > 0;
    writer->written->bytes += (uint64_t)call->bytes;
    writer->written->requests += transfer.requests;
    pthread_mutex_unlock(&writer->written->lock);
    return true;
}

static bool write_alone(struct io_call *call, const char **why)
{
    struct plan plan;
    bool done = call->bytes != 0 && (*why = make_plan(call, &plan)) == NULL && redirect(call, &plan, why);
    if (call->bytes != 0)
        typemap_release(plan.memory);
    return done;
}

/* A collective write. True when it was done and *rc is its result; false: all ranks make the MPI library's call. */
static bool write_together(struct io_call *call, int *rc, const char **why)
{
    struct stub_writer *writer = call->handle->writer;
    unsigned views = call->handle->views;
    bool holds = agreement_holds(&writer->agreement, views);
    *why = writer->agreement.why_not;
    if (holds && !writer->agreement.redirects)
        return false;
    struct plan plan;
    const char *mine = make_plan(call, &plan);
    bool redirects = holds || agreement_make(&writer->agreement, writer->comm, true, views, mine, INT64_MAX);
    if (redirects && (mine != NULL || !redirect(call, &plan, &mine))) {
        written_passed(writer->written, call->bytes, mine);
        *rc = stub_write_begin(call->handle, call);
        *rc = *rc != 0 ? *rc : make_alone(call);
        stub_write_end(call->handle);
    }
    *why = writer->agreement.why_not;
    typemap_release(plan.memory);
    return redirects;
}

bool stub_write(struct io_call *call, int *rc)
{
    struct stub_writer *writer = call->handle->writer;
    const bool collective = call->flags & CALL_COLLECTIVE;
    const char *why = "nonblocking collective";
    bool done = false;
    int error = errno;
    *rc = 0;
    if (!collective)
        done = write_alone(call, &why);
    else if (!(call->flags & CALL_NONBLOCKING))
        done = write_together(call, rc, &why);
    if (!done && call->bytes > 0)
        written_passed(writer->written, call->bytes, why);
    errno = error;
    return done;
}

/* ---- beside other calls ----------------------------------------------------------------------------------------------- */

/* Whether a call may write to bytes that the journal tells of. */
static bool overtakes(const struct stub_writer *writer, const struct io_call *call)
{
    struct request request;
    if (journal_count(&writer->journal) == 0 || (call != NULL && call->bytes == 0))
        return false;
    if (call == NULL || request_of(call, &request) != NULL)
        return true;
    for (uint32_t i = 0; i < writer->target->replica_count; i++)
        if (writer->components[i] != NULL && request_touches(writer->map, target_replica(writer, i), &request))
            return true;
    return false;
}

int writer_original_begin(struct file_handle *handle, const struct io_call *call)
{
    struct stub_writer *writer = handle->writer;
    pthread_mutex_lock(&writer->mutex);
    int error = overtakes(writer, call) ? bring_back(handle) : 0;
    if (error != 0)
        writer->journal.header->overtaken = 1;
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return raise_error(handle, error);
}

void writer_original_end(struct file_handle *handle)
{
    struct stub_writer *writer = handle->writer;
    pthread_mutex_lock(&writer->mutex);
    journal_original_end(&writer->journal, writer->fd);
    pthread_mutex_unlock(&writer->mutex);
}

int stub_look(struct file_handle *handle, enum stub_look how)
{
    struct stub_writer *writer = handle->writer;
    int saved = errno, error;
    if (how == STUB_TOGETHER) {
        error = bring_back_together(handle);
    } else {
        pthread_mutex_lock(&writer->mutex);
        error = bring_back(handle);
        pthread_mutex_unlock(&writer->mutex);
    }
    if (how == STUB_FOR_GOOD)
        stop(writer, "shared file pointer");
    int rc = raise_error(handle, error);
    errno = saved;
    return rc;
}

/* ---- opening and closing ------------------------------------------------------------------------------------------------ */

/* What rank 0 says about the file. */
struct offer {
    uint64_t found;                /* 1: its writes may be redirected */
    uint64_t generation, checksum; /* of rank 0's map */
    uint64_t target, lease;
    uint64_t inode;
};

/* What the ranks agree on: the AND of what each can do. */
struct abilities {
    uint64_t able;   /* all bits or none */
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

/* The lock file of a target's journals, locked; -1: that cannot be. */
static int lock_journals(const char *directory, enum lock_kind kind)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/lock", directory) < (int)sizeof path ? lock_file(path, kind) : -1;
}

/* Whether the journals that killed programs left tell of anything; those that do not are removed. With the lock. */
static bool has_journals(const char *directory)
{
    static const char suffix[] = ".journal";
    DIR *journals = opendir(directory);
    bool found = journals == NULL;
    for (struct dirent *entry; journals != NULL && (entry = readdir(journals)) != NULL;) {
        size_t length = strlen(entry->d_name);
        char path[4096];
        if (length < sizeof suffix || strcmp(entry->d_name + length - (sizeof suffix - 1), suffix) != 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < (int)sizeof path && journal_is_empty(path))
            unlink(path);
        else
            found = true;
    }
    if (journals != NULL)
        closedir(journals);
    return found;
}

static const struct map_target *find_target(const struct loaded_map *map, const char *path)
{
    char directory[4096];
    struct stat found;
    const char *name = strrchr(path, '/');
    size_t length = name == NULL ? sizeof directory : (size_t)(name - path);
    if (length >= sizeof directory)
        return NULL;
    memcpy(directory, path, length);
    strcpy(directory + length, length == 0 ? "/" : "");
    return stat(directory, &found) == 0 ? map_find_target(map, found.st_dev, found.st_ino, name + 1) : NULL;
}

/* Rank 0's offer; *lock is the journals' lock file if it is one. */
static struct offer make_offer(const struct loaded_map *map, const char *path, int amode, int *lock)
{
    const char *wish = getenv("PDLA_WRITES");
    const bool lease = wish != NULL && strcmp(wish, "lease") == 0;
    const struct map_target *target = map->header->target_count > 0 ? find_target(map, path) : NULL;
    struct written *written = target == NULL ? NULL : written_of(map, target);
    struct stat found;
    if (written == NULL)
        return (struct offer){0};
    const char *directory = map_at(map, target->journals), *why = unsuitable(amode);
    if (wish == NULL || (!lease && strcmp(wish, "close") != 0))
        why = "not asked for";
    else if (why == NULL && (stat(path, &found) != 0 || !S_ISREG(found.st_mode)))
        why = "not a regular file";
    else if (why == NULL && (*lock = lock_journals(directory, LOCK_ALONE)) < 0)
        why = "another open file's writes are redirected";
    else if (why == NULL && has_journals(directory))
        why = "earlier writes wait for pdla sync";
    if (why == NULL && !lock_bytes(*lock, LOCK_SHARED, 0, 1))
        why = "the journals cannot be locked";
    pthread_mutex_lock(&written->lock);
    written->refused = why;
    pthread_mutex_unlock(&written->lock);
    if (why != NULL)
        return (struct offer){0};
    return (struct offer){
        .found = 1,
        .generation = map->header->generation,
        .checksum = map->header->checksum,
        .target = (uint64_t)(target - map->targets),
        .lease = lease,
        .inode = found.st_ino,
    };
}

static void close_components(int *components, uint32_t servers)
{
    for (uint32_t i = 0; components != NULL && i < servers; i++)
        if (components[i] >= 0)
            close(components[i]);
    free(components);
}

/* NULL: the replica cannot be used. */
static int *open_components(const struct loaded_map *map, const struct map_replica *replica)
{
    const struct map_component *wanted = map_at(map, replica->components);
    int *components = malloc(replica->servers * sizeof *components);
    bool usable = components != NULL;
    for (uint32_t i = 0; components != NULL && i < replica->servers; i++) {
        struct stat found;
        components[i] = usable ? open(map_at(map, wanted[i].path), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
        usable = usable && components[i] >= 0 && fstat(components[i], &found) == 0 && S_ISREG(found.st_mode)
            && found.st_ino == wanted[i].inode && found.st_size == wanted[i].size
            && (found.st_uid == 0 || found.st_uid == geteuid());
    }
    if (usable)
        return components;
    close_components(components, components == NULL ? 0 : replica->servers);
    return NULL;
}

static void free_writer(struct stub_writer *writer)
{
    for (uint32_t i = 0; writer->components != NULL && i < writer->target->replica_count; i++)
        close_components(writer->components[i], target_replica(writer, i)->servers);
    free(writer->components);
    journal_close(&writer->journal);
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->lock >= 0)
        close(writer->lock);
    pthread_mutex_destroy(&writer->mutex);
    free(writer);
}

/* Opens what redirecting needs and says so in `mine`; `lock` is taken over. NULL: out of memory. */
static struct stub_writer *make_writer(const struct loaded_map *map, const struct offer *offer, const char *path, int rank,
                                       int lock, struct abilities *mine)
{
    const struct map_target *target = &map->targets[offer->target];
    const char *directory = map_at(map, target->journals);
    struct stub_writer *writer = calloc(1, sizeof *writer);
    struct stat found;
    if (writer == NULL)
        return NULL;
    *writer = (struct stub_writer){.map = map, .target = target, .lease = offer->lease, .rank = rank, .lock = lock,
                                   .low = INT64_MAX, .fd = -1};
    pthread_mutex_init(&writer->mutex, NULL);
    writer->components = calloc(target->replica_count, sizeof *writer->components);
    writer->written = written_of(map, target);
    if (writer->lock < 0)
        writer->lock = lock_journals(directory, LOCK_SHARED);
    writer->fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (writer->components == NULL || writer->written == NULL || writer->lock < 0 || writer->fd < 0
        || fstat(writer->fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_ino != offer->inode)
        return writer;
    writer->device = found.st_dev;
    writer->inode = found.st_ino;
    for (uint32_t i = 0; i < target->replica_count && i < MOST_REPLICAS; i++)
        if ((writer->components[i] = open_components(map, target_replica(writer, i))) != NULL)
            mine->usable |= UINT64_C(1) << i;
    const struct journal_owner owner = {directory, map_at(map, target->path), found.st_dev, found.st_ino, rank, writer->lease};
    if (mine->usable != 0 && journal_create(&writer->journal, &owner, writer->fd) == 0)
        mine->able = ~UINT64_C(0);
    return writer;
}

/* The file is being opened once more in this process: who writes to it by another handle goes on with the original. */
static void settle_others(const char *path)
{
    struct stat found;
    pthread_mutex_lock(&open_lock);
    if (open_writers != NULL && stat(path, &found) == 0)
        for (struct stub_writer *writer = open_writers; writer != NULL; writer = writer->next)
            if (writer->inode == found.st_ino && writer->device == found.st_dev) {
                pthread_mutex_lock(&writer->mutex);
                bring_back(writer->handle);
                pthread_mutex_unlock(&writer->mutex);
                stop(writer, "the file was opened again");
            }
    pthread_mutex_unlock(&open_lock);
}

void writer_open(struct file_handle *handle, mpi_handle comm, const char *path, int amode)
{
    const struct mpi *mpi = pdla_mpi();
    int rank, ranks, lock = -1;
    const char *why;
    if (mpi == NULL || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return;
    if (ranks == 1)
        comm = mpi->comm_null;
    settle_others(path);
    const struct loaded_map *map = map_current(getenv("PDLA_MAP"), &why);
    struct offer offer = {0};
    if (rank == 0 && map != NULL && handle != NULL)
        offer = make_offer(map, path, amode, &lock);
    if (!agree_broadcast(&offer, (int)sizeof offer, comm) || offer.found == 0) {
        if (lock >= 0)
            close(lock);
        return;
    }
    struct abilities mine = {0}, all;
    struct stub_writer *writer = NULL;
    if (handle != NULL && map != NULL && map->header->generation == offer.generation
        && map->header->checksum == offer.checksum)
        writer = make_writer(map, &offer, path, rank, lock, &mine);
    else if (lock >= 0)
        close(lock);
    if (!agree_reduce(&mine, &all, (int)(sizeof mine / 8), mpi->op_band, comm))
        all.able = 0;
    if (writer == NULL)
        return;
    writer->ranks = ranks;
    writer->comm = mpi->comm_null;
    if (all.able == 0 || all.usable == 0 || (ranks > 1 && mpi->Comm_dup(comm, &writer->comm) != 0)) {
        free_writer(writer);
        return;
    }
    for (uint32_t i = 0; i < writer->target->replica_count && i < MOST_REPLICAS; i++)
        if (!(all.usable >> i & 1) && writer->components[i] != NULL) {
            close_components(writer->components[i], target_replica(writer, i)->servers);
            writer->components[i] = NULL;
        }
    writer->handle = handle;
    handle->writer = writer;
    pthread_mutex_lock(&open_lock);
    writer->next = open_writers;
    open_writers = writer;
    pthread_mutex_unlock(&open_lock);
}

static void leave_open(struct stub_writer *writer)
{
    pthread_mutex_lock(&open_lock);
    struct stub_writer **link = &open_writers;
    while (*link != writer)
        link = &(*link)->next;
    *link = writer->next;
    pthread_mutex_unlock(&open_lock);
}

int writer_close(struct file_handle *handle)
{
    struct stub_writer *writer = handle->writer;
    int error = writer->lease ? keep_together(handle) : bring_back_together(handle);
    uint64_t left = 0;
    for (uint64_t i = 0; i < journal_count(&writer->journal); i++) {
        int64_t length;
        journal_entry(&writer->journal, i, &length);
        left += (uint64_t)length;
    }
    pthread_mutex_lock(&writer->written->lock);
    writer->written->left += left;
    if (error != 0)
        writer->written->error = error;
    pthread_mutex_unlock(&writer->written->lock);
    int rc = raise_error(handle, error);
    leave_open(writer);
    handle->writer = NULL;
    if (writer->comm != pdla_mpi()->comm_null)
        pdla_mpi()->Comm_free(&writer->comm);
    free_writer(writer);
    return rc;
}
