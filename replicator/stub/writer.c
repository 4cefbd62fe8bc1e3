#include "writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transfer.h"

enum {
    BOUNCE_BYTES = 4 << 20,
    SCATTER = 8,            /* replica writes for one of the original that are too many, ... */
    SCATTER_BYTES = 65536,  /* ... unless they are this large */
    VIEWED_PIECES = 64,     /* a view is judged by its beginning */
    MOST_ENTRIES = 1 << 20  /* of a journal; with more the process brings back what it has */
};

int writer_raise(const struct file_handle *handle, int error)
{
    const struct mpi *mpi = pdla_mpi();
    if (error == 0)
        return 0;
    int code = error == ENOSPC || error == EDQUOT ? mpi->err_no_space : mpi->err_io;
    return mpi->File_call_errhandler(handle->file, code) == 0 ? code : mpi->err_io;
}

void writer_stop(struct stub_writer *writer, const char *why)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&writer->why_not, &none, why, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

int writer_bring_back(struct file_handle *handle)
{
    struct stub_writer *writer = handle->writer;
    int error = writer->error != 0 ? writer->error : bring_back_own(handle);
    if (error != 0) {
        writer->error = error;
        writer_stop(writer, "an earlier write could not be brought back");
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
        error = writer_bring_back(call->handle);
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
        writer_stop(writer, *why);
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

/* By the MPI library's independent call. Returns what that returned. */
static int write_apart(struct io_call *call, const char *why)
{
    written_passed(call->handle->writer->written, call->bytes, why);
    int rc = stub_write_begin(call->handle, call);
    rc = rc != 0 ? rc : make_alone(call);
    stub_write_end(call->handle);
    return rc;
}

/* The bytes of the original that a call may write to. */
static void hull_of(const struct io_call *call, int64_t *low, int64_t *high)
{
    struct request request;
    struct typemap_cursor cursor;
    *low = call->bytes == 0 ? INT64_MAX : 0;
    *high = call->bytes == 0 ? 0 : INT64_MAX;
    if (call->bytes == 0 || request_of(call, &request) != NULL)
        return;
    typemap_cursor_init(&cursor, request.view, request.displacement, request.position);
    *low = typemap_cursor_next(&cursor, 1).offset;
    *high = request_last(&request) + 1;
}

/* Before all ranks make the MPI library's collective call. RATIONALE: it may read the original's bytes between those of the
 * ranks, and write them back later than a rank that is done with the call brings back newer ones. 0 or, on all ranks, an errno. */
static int make_way(const struct io_call *call)
{
    struct stub_writer *writer = call->handle->writer;
    int64_t low, high, all[4];
    hull_of(call, &low, &high);
    pthread_mutex_lock(&writer->mutex);
    const int64_t mine[4] = {low, -high, writer->low, -writer->high};
    pthread_mutex_unlock(&writer->mutex);
    if (!agree_reduce(mine, all, 4, pdla_mpi()->op_min, writer->comm))
        return EIO;
    return all[0] < -all[3] && all[2] < -all[1] ? bring_back_together(call->handle) : 0;
}

/* A collective write. True when it was done and *rc is its result; false: all ranks make the MPI library's call. */
static bool write_together(struct io_call *call, int *rc, const char **why)
{
    struct stub_writer *writer = call->handle->writer;
    unsigned views = call->handle->views;
    bool holds = agreement_holds(&writer->agreement, views);
    struct plan plan;
    const char *mine = make_plan(call, &plan);
    bool redirects = holds ? writer->agreement.redirects
                           : agreement_make(&writer->agreement, writer->comm, true, views, mine, INT64_MAX);
    *why = agreement_why(holds, mine);
    if (redirects && (mine != NULL || !redirect(call, &plan, &mine)))
        *rc = write_apart(call, mine);
    typemap_release(plan.memory);
    return redirects;
}

/* A nonblocking or split collective write, which cannot wait for the other ranks. RATIONALE: all ranks take the same way, for
 * what one redirects must not meet the MPI library's collective of the others, which may write back what it has read between
 * their bytes at any time until all of them have completed it. So who cannot redirect writes by itself. */
static bool write_joining(struct io_call *call, int *rc, const char **why)
{
    struct stub_writer *writer = call->handle->writer;
    struct plan plan;
    *why = call->handle->atomic ? "atomic mode" : "nonblocking collective beside the replicas";
    if (!writer->joins || call->handle->atomic || call->bytes < 0 || call->position < 0)
        return false;
    call->joins = true;
    const char *mine = make_plan(call, &plan);
    if (mine != NULL || !redirect(call, &plan, &mine))
        *rc = write_apart(call, mine);
    typemap_release(plan.memory);
    return true;
}

bool stub_write(struct io_call *call, int *rc)
{
    struct stub_writer *writer = call->handle->writer;
    const char *why;
    bool done;
    int error = errno;
    *rc = 0;
    if (!(call->flags & CALL_COLLECTIVE))
        done = write_alone(call, &why);
    else if (call->flags & (CALL_NONBLOCKING | CALL_SPLIT))
        done = write_joining(call, rc, &why);
    else
        done = write_together(call, rc, &why) || (*rc = writer_raise(call->handle, make_way(call))) != 0;
    if (!done && call->bytes > 0)
        written_passed(writer->written, call->bytes, why);
    errno = error;
    return done;
}

/* Whether some replica has what this rank's view begins with; of a view without holes a program accesses any part. */
static bool view_is_covered(const struct file_handle *handle)
{
    const struct stub_writer *writer = handle->writer;
    const struct file_view *view = &handle->view;
    if (view->map == NULL || !view->native)
        return false;
    const struct request tile = {view->map, view->displacement, 0, typemap_size(view->map)};
    bool covered = tile.bytes == 0 || typemap_is_contiguous(view->map);
    for (uint32_t i = 0; !covered && request_fits(&tile) && i < writer->target->replica_count; i++) {
        struct walk walk;
        struct piece piece = {0};
        if (writer->components[i] == NULL)
            continue;
        walk_start(&walk, writer->map, target_replica(writer, i), &tile);
        for (int pieces = 0; pieces < VIEWED_PIECES && piece.replica_offset >= 0 && walk_next(&walk, &piece);)
            pieces++;
        covered = piece.replica_offset >= 0;
    }
    return covered;
}

void stub_viewed(struct file_handle *handle)
{
    struct stub_writer *writer = handle->writer;
    int64_t mine = view_is_covered(handle), all;
    int error = errno;
    writer->joins = agree_reduce(&mine, &all, 1, pdla_mpi()->op_min, writer->comm) && all != 0;
    errno = error;
}

/* ---- beside other calls ----------------------------------------------------------------------------------------------- */

/* Whether a call may write to bytes that the journal tells of, or write them back as they were (see make_way()). */
static bool overtakes(const struct stub_writer *writer, const struct io_call *call)
{
    struct request request;
    const unsigned unagreed = CALL_NONBLOCKING | CALL_SPLIT;
    if (journal_count(&writer->journal) == 0)
        return false;
    if (call->flags & CALL_SHARED || (call->flags & CALL_COLLECTIVE && call->flags & unagreed))
        return true;
    if (call->bytes == 0)
        return false;
    if (request_of(call, &request) != NULL)
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
    int error = overtakes(writer, call) ? writer_bring_back(handle) : 0;
    if (error != 0)
        writer->journal.header->overtaken = 1;
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return writer_raise(handle, error);
}

/* Bytes that the file loses are brought back first: natively it has had them, and what is before them stays. */
int writer_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts)
{
    struct stub_writer *writer = handle->writer;
    int64_t all[2];
    pthread_mutex_lock(&writer->mutex);
    const int64_t mine[2] = {cuts ? size : INT64_MAX, -writer->high};
    pthread_mutex_unlock(&writer->mutex);
    int error = !agree_reduce(mine, all, 2, pdla_mpi()->op_min, writer->comm) ? EIO
        : all[0] < -all[1] ? bring_back_together(handle) : 0;
    pthread_mutex_lock(&writer->mutex);
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return writer_raise(handle, error);
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
        error = writer_bring_back(handle);
        pthread_mutex_unlock(&writer->mutex);
    }
    if (how == STUB_FOR_GOOD)
        writer_stop(writer, "shared file pointer");
    int rc = writer_raise(handle, error);
    errno = saved;
    return rc;
}

int stub_look_at_size(struct file_handle *handle, enum stub_look how)
{
    struct stub_writer *writer = handle->writer;
    int saved = errno;
    pthread_mutex_lock(&writer->mutex);
    int error = lengthen(handle);
    pthread_mutex_unlock(&writer->mutex);
    if (how == STUB_TOGETHER)
        error = agree_error(writer, error);
    int rc = writer_raise(handle, error);
    errno = saved;
    return rc;
}
