#include "writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transfer.h"

enum {
    BOUNCE_BYTES = 4 << 20,
    SCATTER = 8,            /* replica writes for one of the original that are too many, ... */
    SCATTER_BYTES = 65536,  /* ... unless they are this large */
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
    int error = overtakes(writer, call) ? writer_bring_back(handle) : 0;
    if (error != 0)
        writer->journal.header->overtaken = 1;
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
