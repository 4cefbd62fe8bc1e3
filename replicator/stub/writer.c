#include "writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "cache_gain.h"
#include "collective_consensus.h"
#include "critical_requests.h"
#include "exchange.h"
#include "file_size.h"
#include "locks.h"
#include "mover.h"
#include "node_home.h"
#include "node_peers.h"
#include "redirected_call.h"
#include "redirection.h"
#include "replica_choice.h"
#include "staleness.h"
#include "transfer.h"
#include "write_stats.h"
#include "writeback.h"

enum {
    BOUNCE_BYTES = 4 << 20,
    SCATTER = 8,            /* replica writes for each one of the original that are too many */
    VIEWED_PIECES = 64,     /* a view is judged by its beginning */
    AHEAD = 4 << 20,        /* bytes that a lease's devices begin with while the program writes on */
    MOST_ENTRIES = 1 << 20  /* of a journal; with more of them the process makes a write-back */
};

static const char no_room[] = "no room in the cache", unwritten_cache[] = "the cache could not be written";
static const char sieved[] = "the MPI library sieves the gaps in less time than the pieces take";
static const char no_gain[] = "for the last such file the computation hid nothing";

int writer_raise(const struct file_handle *handle, int error)
{
    const struct mpi *mpi = running_mpi();
    if (error == 0)
        return 0;
    int code = error == ENOSPC || error == EDQUOT ? mpi->err_no_space : mpi->err_io;
    return raise_error(handle->file, code) == 0 ? code : mpi->err_io;
}

void writer_stop(struct writer *writer, const char *why)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&writer->why_not, &none, why, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

int writer_write_back(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    int error = writer->error != 0 ? writer->error : write_back_own(handle);
    if (error != 0) {
        writer->error = error;
        writer_stop(writer, "an earlier write-back failed");
    }
    return error;
}

int writer_make_room(struct file_handle *handle)
{
    return journal_count(&writer_of(handle)->journal) < MOST_ENTRIES ? 0 : writer_write_back(handle);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* What a call writes. */
struct prepared_write {
    struct view_range range;
    struct typemap *memory; /* NULL: contiguous; to be released */
};

/* Walks the bytes of a call as pieces: contiguous in the original and in the replica that has them. */
struct stitch {
    const struct writer *writer;
    struct typemap_cursor cursor;
    int64_t left;         /* bytes of the call after the cursor */
    struct extent extent; /* the rest of the cursor's last extent */
    uint64_t extents;     /* taken from the cursor */
    uint32_t replica;     /* of the last piece */
};

static void stitch_start(struct stitch *stitch, const struct writer *writer, const struct view_range *range)
{
    *stitch = (struct stitch){.writer = writer, .left = range->bytes};
    typemap_cursor_init(&stitch->cursor, range->view, range->displacement, range->position);
}

/* Whether the replica has the beginning of the extent, as `piece`. */
static bool begins(const struct writer *writer, uint32_t replica, const struct extent *extent, struct piece *piece)
{
    return writer->components[replica] != NULL
        && locate_piece(writer->map, target_replica(writer, replica), extent->offset, extent->offset + extent->length,
                        piece)
        && piece->offset == extent->offset;
}

/* The next piece of the stream; its replica_offset is -1 where no replica has it. False at the end.
 * RATIONALE: the replica of the last piece is tried first. No byte is in two replicas of a target,
 * so the order does not matter. */
static bool stitch_next(struct stitch *stitch, struct piece *piece)
{
    const uint32_t count = stitch->writer->target->replica_count;
    struct extent *extent = &stitch->extent;
    if (extent->length == 0) {
        if (stitch->left == 0)
            return false;
        *extent = typemap_cursor_next(&stitch->cursor, stitch->left);
        stitch->left -= extent->length;
        stitch->extents++;
    }
    uint32_t tries = 0;
    while (tries < count && !begins(stitch->writer, (stitch->replica + tries) % count, extent, piece))
        tries++;
    if (tries == count)
        *piece = (struct piece){extent->offset, extent->length, -1};
    else
        stitch->replica = (stitch->replica + tries) % count;
    extent->offset += piece->length;
    extent->length -= piece->length;
    return true;
}

/* Of `ranks` that write together. NULL: the replicas have all bytes of the range. */
static const char *covers(const struct writer *writer, const struct view_range *range, int ranks)
{
    struct stitch stitch;
    struct piece piece;
    int64_t ends[MOST_REPLICAS];
    uint64_t runs = 0;
    memset(ends, 0xff, sizeof ends);
    stitch_start(&stitch, writer, range);
    while (stitch_next(&stitch, &piece)) {
        if (piece.replica_offset < 0)
            return runs == 0 ? "no replica for these writes" : "only partly in the replica";
        runs += piece.replica_offset != ends[stitch.replica];
        ends[stitch.replica] = piece.replica_offset + piece.length;
    }
    const bool dense = ranks > 1
        && is_dense(range->bytes, ranks, view_range_first(range), view_range_last(range) + 1);
    return runs > SCATTER * (dense ? 1 : stitch.extents) && range->bytes / SCATTER_BYTES < (int64_t)runs
        ? "in too many pieces in the replica" : NULL;
}

/* NULL: the policy caches a call like this one: E10 collective ones, S4D-Cache critical ones, iBridge and
 * LiU parts of independent ones. */
static const char *uncached(const struct io_call *call, const struct view_range *range)
{
    const struct redirection *redirection = redirection_of(call->handle);
    if (redirection->writer->divides)
        return call->flags & CALL_COLLECTIVE ? "the requests of a collective write are those of aggregators" : NULL;
    if (redirection->writer->judges)
        return critical_requests_judge(redirection->critical, call, CACHING_WRITE, range) ? NULL : "not critical";
    return call->flags & CALL_COLLECTIVE ? NULL : "not a collective write";
}

/* NULL: the program may write to these bytes. RATIONALE: otherwise it gets the signal or the error of its own write, at
 * the moment of the call. */
static const char *unallowed(const struct view_range *range)
{
    return file_size_allowed(view_range_last(range) + 1) ? NULL : "beyond the limit for the size of files";
}

/* NULL: the call can be redirected; otherwise why not. */
static const char *prepare(const struct io_call *call, struct prepared_write *write)
{
    const struct writer *writer = writer_of(call->handle);
    const char *why = __atomic_load_n(&writer->why_not, __ATOMIC_ACQUIRE);
    const int ranks = call->flags & CALL_COLLECTIVE ? call->handle->ranks : 1;
    *write = (struct prepared_write){.memory = NULL};
    if (why != NULL || call->bytes == 0)
        return why;
    if ((why = view_range_of(call, &write->range)) != NULL || (why = result_fits(call)) != NULL
        || (why = unallowed(&write->range)) != NULL
        || (why = writer->cache != NULL ? uncached(call, &write->range)
                                         : covers(writer, &write->range, ranks)) != NULL)
        return why;
    return memory_of(call, &write->memory) ? NULL : "the memory datatype cannot be flattened";
}

/* The bytes of a call on their way to the replicas: a transfer for each. */
struct delivery {
    const struct writer *writer;
    struct transfer *each;
};

static bool delivery_start(struct delivery *delivery, const struct writer *writer)
{
    const uint32_t count = writer->target->replica_count;
    *delivery = (struct delivery){writer, calloc(count, sizeof *delivery->each)};
    for (uint32_t i = 0; delivery->each != NULL && i < count; i++)
        delivery->each[i] = (struct transfer){.map = writer->map, .writing = true, .lock = writer->lock};
    return delivery->each != NULL;
}

static int delivery_flush(struct delivery *delivery)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < delivery->writer->target->replica_count; i++)
        error = transfer_flush(&delivery->each[i]);
    return error;
}

/* Returns the number of contiguous accesses to components. */
static uint64_t delivery_free(struct delivery *delivery)
{
    uint64_t requests = 0;
    for (uint32_t i = 0; delivery->each != NULL && i < delivery->writer->target->replica_count; i++) {
        requests += delivery->each[i].requests;
        transfer_free(&delivery->each[i]);
    }
    free(delivery->each);
    return requests;
}

static int put(struct delivery *delivery, const struct view_range *range, char *buffer)
{
    const struct writer *writer = delivery->writer;
    struct stitch stitch;
    struct piece piece;
    int error = 0;
    stitch_start(&stitch, writer, range);
    while (error == 0 && stitch_next(&stitch, &piece)) {
        struct transfer *transfer = &delivery->each[stitch.replica];
        error = transfer_select(transfer, target_replica(writer, stitch.replica), writer->components[stitch.replica]);
        error = error != 0 ? error : transfer_add(transfer, piece.replica_offset, piece.length, buffer);
        buffer += piece.length;
    }
    return error;
}

static int put_scattered(struct delivery *delivery, const struct view_range *range, const char *buffer,
                         const struct typemap *memory)
{
    struct typemap_cursor cursor;
    char *bounce = malloc(range->bytes < BOUNCE_BYTES ? (size_t)range->bytes : BOUNCE_BYTES);
    int error = bounce == NULL ? ENOMEM : 0;
    typemap_cursor_init(&cursor, memory, 0, 0);
    for (int64_t done = 0; error == 0 && done < range->bytes;) {
        struct view_range part = *range;
        part.position += done;
        part.bytes = range->bytes - done < BOUNCE_BYTES ? range->bytes - done : BOUNCE_BYTES;
        for (int64_t copied = 0; copied < part.bytes;) {
            struct extent place = typemap_cursor_next(&cursor, part.bytes - copied);
            memcpy(bounce + copied, buffer + place.offset, (size_t)place.length);
            copied += place.length;
        }
        error = put(delivery, &part, bounce);
        if (error == 0)
            error = delivery_flush(delivery);
        done += part.bytes;
    }
    free(bounce);
    return error;
}

static int note_run(struct writer *writer, uint32_t replica, const struct range *run)
{
    const uint64_t id = target_replica(writer, replica)->id;
    const struct journal_entry entry = {.place = id, .start = run->start};
    return run->start == run->stop ? 0 : journal_add(&writer->journal, &entry, run->stop - run->start);
}

/* Notes in the journal that the replicas have the bytes of the range. 0 or an errno. */
static int note(struct writer *writer, const struct view_range *range)
{
    const uint32_t replicas = writer->target->replica_count;
    struct range runs[MOST_REPLICAS] = {{0}};
    struct stitch stitch;
    struct piece piece;
    int error = 0;
    stitch_start(&stitch, writer, range);
    while (error == 0 && stitch_next(&stitch, &piece)) {
        struct range *run = &runs[stitch.replica];
        writer->low = piece.offset < writer->low ? piece.offset : writer->low;
        writer->high = piece.offset + piece.length > writer->high ? piece.offset + piece.length : writer->high;
        if (piece.replica_offset != run->stop) {
            error = note_run(writer, stitch.replica, run);
            run->start = piece.replica_offset;
        }
        run->stop = piece.replica_offset + piece.length;
    }
    for (uint32_t i = 0; error == 0 && i < replicas && i < MOST_REPLICAS; i++)
        error = note_run(writer, i, &runs[i]);
    return error;
}

/* So many more bytes are in the replicas of a lease: now and then their devices begin with what they got.
 * RATIONALE: what a program writes again and again is not written to devices each time. */
static void write_ahead(struct writer *writer, int64_t bytes)
{
    const int64_t before = writer->ahead;
    writer->ahead += bytes;
    if (writer->watched && writer->ahead <= writer->share && writer->ahead / AHEAD > before / AHEAD)
        mover_wake();
}

/* Writes the bytes of a call to its replicas. 0 or an errno. */
static int deliver(const struct io_call *call, const struct prepared_write *write, uint64_t *requests)
{
    struct writer *writer = writer_of(call->handle);
    struct delivery delivery;
    int error = delivery_start(&delivery, writer) ? 0 : ENOMEM;
    /* Replicas for reading are stale from now on. */
    replicas_mark_written(call->handle, call);
    if (error == 0)
        error = write->memory == NULL ? put(&delivery, &write->range, call->buffer)
                                     : put_scattered(&delivery, &write->range, call->buffer, write->memory);
    if (error == 0)
        error = delivery_flush(&delivery);
    peers_lock(writer);
    if (error == 0)
        error = note(writer, &write->range);
    peers_unlock(writer);
    *requests = delivery_free(&delivery);
    write_ahead(writer, write->range.bytes);
    return error;
}

/* Writes the bytes of a call to the cache. 0 or an errno. */
static int deliver_to_cache(const struct io_call *call, const struct prepared_write *write, uint64_t *requests)
{
    struct writer *writer = writer_of(call->handle);
    replicas_mark_written(call->handle, call);
    const int error = cache_write(writer, &write->range, call->buffer, write->memory, requests);
    if (cache_flushes(writer->cache))
        mover_wake();
    return error;
}

/* Whether a prepared call has room, if it goes to a cache. `calls`: how many such calls have. */
static bool has_room(const struct io_call *call, int64_t *calls)
{
    struct writer *writer = writer_of(call->handle);
    *calls = INT64_MAX;
    if (writer->cache == NULL || call->bytes == 0)
        return true;
    pthread_mutex_lock(&writer->mutex);
    *calls = cache_fits(writer, call->bytes);
    pthread_mutex_unlock(&writer->mutex);
    return *calls > 0;
}

/* Counts a call of which so many bytes were redirected. */
static void count_call(struct io_call *call, int64_t bytes, uint64_t requests)
{
    struct write_stats *written = writer_of(call->handle)->written;
    call->redirected = bytes > 0;
    pthread_mutex_lock(&written->lock);
    written->calls += bytes > 0;
    written->bytes += (uint64_t)bytes;
    written->requests += requests;
    pthread_mutex_unlock(&written->lock);
}

/* Redirects a prepared call. False: the MPI library is to write it. */
static bool redirect(struct io_call *call, const struct prepared_write *write, const char **why)
{
    struct writer *writer = writer_of(call->handle);
    uint64_t requests = 0;
    pthread_mutex_lock(&writer->mutex);
    int error = writer_make_room(call->handle);
    bool full = writer->cache != NULL && cache_fits(writer, call->bytes) == 0;
    if (call->bytes > 0 && error == 0 && !full)
        error = (writer->cache != NULL ? deliver_to_cache : deliver)(call, write, &requests);
    if (writer->cache != NULL && error == ENOMEM) {
        full = true;
        error = 0;
    }
    if (writer->cache != NULL && error == 0)
        cache_called(writer);
    pthread_mutex_unlock(&writer->mutex);
    const char *place = writer->cache != NULL ? unwritten_cache : "the replica could not be written";
    *why = full ? no_room : error == ENOSPC || error == EDQUOT ? "no space in the replica" : place;
    if (error != 0)
        writer_stop(writer, *why);
    if (full || error != 0 || !result_set(call))
        return false;
    count_call(call, call->bytes, requests);
    return true;
}

/* Writes the pieces of a range to the original, and nothing between them, while nobody sieves there. 0 or an errno. */
static int write_pieces(const struct writer *writer, const struct view_range *range, const char *buffer,
                        const struct typemap *memory)
{
    struct typemap_cursor file, source;
    struct extent piece = {0}, part = {0, memory == NULL ? range->bytes : 0};
    struct moving_lock lock = {.fd = writer->fd, .end = view_range_last(range) + 1};
    int error = 0;
    typemap_cursor_init(&file, range->view, range->displacement, range->position);
    if (memory != NULL)
        typemap_cursor_init(&source, memory, 0, 0);
    for (int64_t left = range->bytes; error == 0 && left > 0;) {
        piece = piece.length > 0 ? piece : typemap_cursor_next(&file, left);
        part = part.length > 0 ? part : typemap_cursor_next(&source, left);
        const int64_t length = piece.length < part.length ? piece.length : part.length;
        moving_lock_reach(&lock, piece.offset, piece.offset + length);
        error = write_whole(writer->fd, buffer + part.offset, length, piece.offset);
        piece = (struct extent){piece.offset + length, piece.length - length};
        part = (struct extent){part.offset + length, part.length - length};
        left -= length;
    }
    moving_lock_leave(&lock);
    return error;
}

/* Writes the pieces of a rank's collective call. False: they are not known. RATIONALE: the MPI library's independent
 * call may sieve them: it reads the bytes between them, where other ranks write at the same time, and writes them
 * again. Its locks keep the ranks of other nodes out only where the file system has such locks (not Lustre with
 * localflock, nor NFS with nolock). */
static bool write_only_pieces(struct io_call *call, int *rc)
{
    const struct writer *writer = writer_of(call->handle);
    struct view_range range;
    struct typemap *memory;
    if (writer->ranks == 1 || call->refused || call->bytes <= 0 || view_range_of(call, &range) != NULL
        || unallowed(&range) != NULL || result_fits(call) != NULL || !memory_of(call, &memory))
        return false;
    const int error = write_pieces(writer, &range, call->buffer, memory);
    typemap_release(memory);
    *rc = writer_raise(call->handle, error);
    return error != 0 || result_set(call);
}

/* Writes a rank's part of a collective call that the others may redirect. Returns the result. */
static int write_apart(struct io_call *call, const char *why)
{
    write_stats_passed(writer_of(call->handle)->written, call->bytes, why);
    int rc = redirector_write_begin(call->handle, call);
    if (rc == 0 && !write_only_pieces(call, &rc))
        rc = call_independently(call);
    redirector_write_end(call->handle);
    return rc;
}

/* Redirects a prepared collective call, whose pieces the ranks exchange. False, on all ranks: the MPI library is to
 * write it. */
static bool redirect_exchanged(struct io_call *call, const struct prepared_write *write, int *rc, const char **why)
{
    struct writer *writer = writer_of(call->handle);
    const struct view_range *range = call->bytes > 0 ? &write->range : NULL;
    uint64_t requests = 0;
    replicas_mark_written(call->handle, call);
    *why = exchange_write(call, range, write->memory, &requests);
    mover_wake();
    if (*why != NULL)
        return false;
    pthread_mutex_lock(&writer->mutex);
    cache_called(writer);
    pthread_mutex_unlock(&writer->mutex);
    if (!result_set(call)) {
        *rc = write_apart(call, "the result cannot be set");
        return true;
    }
    count_call(call, call->bytes, requests);
    pthread_mutex_lock(&writer->written->lock);
    writer->written->exchanged += call->bytes > 0;
    writer->written->exchanged_bytes += (uint64_t)call->bytes;
    pthread_mutex_unlock(&writer->written->lock);
    return true;
}

/* ---- iBridge, LiU: fragments or heads go to the cache, the rest to the original ---------------------------------- */

static struct view_range part_of(const struct view_range *range, const struct call_part *part)
{
    return (struct view_range){range->view, range->displacement, part->position, part->bytes};
}

/* Writes the fragments of a call to the cache. NULL, or why not: a literal. */
static const char *put_fragments(const struct io_call *call, const struct view_range *range,
                                 const struct call_parts *parts, const char *buffer, uint64_t *requests)
{
    struct writer *writer = writer_of(call->handle);
    struct critical_requests *critical = redirection_of(call->handle)->critical;
    pthread_mutex_lock(&writer->mutex);
    int error = writer_make_room(call->handle);
    bool full = cache_fits(writer, parts->on_ssd) == 0;
    for (int64_t i = 0; error == 0 && !full && i < parts->count; i++) {
        const struct view_range part = part_of(range, &parts->each[i]);
        const int64_t start = clock_ns();
        if (!parts->each[i].on_ssd)
            continue;
        error = cache_write(writer, &part, buffer + (part.position - range->position), NULL, requests);
        critical_requests_part_served(critical, &part, true, clock_ns() - start);
    }
    full = full || error == ENOMEM;
    if (error == 0)
        cache_called(writer);
    pthread_mutex_unlock(&writer->mutex);
    if (error != 0 && !full)
        writer_stop(writer, unwritten_cache);
    if (error == 0 && !full && cache_flushes(writer->cache))
        mover_wake();
    return full ? no_room : error != 0 ? unwritten_cache : NULL;
}

/* To be called before a part of a call is written to the original. What caches have of these bytes is older. 0 or an
 * errno. */
static int original_part_begin(struct file_handle *handle, const struct view_range *part)
{
    struct writer *writer = writer_of(handle);
    pthread_mutex_lock(&writer->mutex);
    const int error = node_home_waits(writer, part, HOME_OWN | HOME_PEERS) ? writer_write_back(handle) : 0;
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return error;
}

static int write_part(struct file_handle *handle, const struct view_range *part, const char *buffer)
{
    const struct writer *writer = writer_of(handle);
    struct typemap_cursor cursor;
    int error = original_part_begin(handle, part);
    const int64_t start = clock_ns();
    typemap_cursor_init(&cursor, part->view, part->displacement, part->position);
    for (int64_t left = part->bytes; error == 0 && left > 0;) {
        const struct extent piece = typemap_cursor_next(&cursor, left);
        error = write_whole(writer->fd, buffer, piece.length, piece.offset);
        buffer += piece.length;
        left -= piece.length;
    }
    critical_requests_part_served(redirection_of(handle)->critical, part, false, clock_ns() - start);
    writer_original_end(handle);
    return error;
}

/* Writes the parts of a call. NULL, or why not: a literal. RATIONALE: the SSD works at the same time as the disks: the
 * fragments are in its page cache when the rest is written. If that fails, the MPI library writes all of it again,
 * after the fragments have come home. */
static const char *put_parts(const struct io_call *call, const struct view_range *range,
                             const struct call_parts *parts, const char *buffer, uint64_t *requests)
{
    const char *why = put_fragments(call, range, parts, buffer, requests);
    for (int64_t i = 0; why == NULL && i < parts->count; i++) {
        const struct view_range part = part_of(range, &parts->each[i]);
        if (!parts->each[i].on_ssd && write_part(call->handle, &part, buffer + (part.position - range->position)) != 0)
            why = "the rest of the call could not be written";
    }
    return why;
}

/* The bytes of a call, one after the other: its buffer, or a copy to be freed. NULL: out of memory. */
static char *gathered(const struct io_call *call, const struct typemap *memory, char **copy)
{
    struct typemap_cursor cursor;
    *copy = NULL;
    if (memory == NULL)
        return call->buffer;
    if (call->bytes > BOUNCE_BYTES || (*copy = malloc((size_t)call->bytes)) == NULL)
        return NULL;
    typemap_cursor_init(&cursor, memory, 0, 0);
    for (int64_t done = 0; done < call->bytes;) {
        const struct extent part = typemap_cursor_next(&cursor, call->bytes - done);
        memcpy(*copy + done, (const char *)call->buffer + part.offset, (size_t)part.length);
        done += part.length;
    }
    return *copy;
}

/* An independent write. False: the MPI library is to write it. */
static bool write_divided(struct io_call *call, const char **why)
{
    struct writer *writer = writer_of(call->handle);
    struct prepared_write write;
    struct call_parts parts = {0};
    char *copy = NULL;
    uint64_t requests = 0;
    bool done = false;
    *why = prepare(call, &write);
    if (*why == NULL) {
        pthread_mutex_lock(&writer->mutex);
        const struct fragment_room room = cache_room(writer);
        pthread_mutex_unlock(&writer->mutex);
        *why = critical_requests_divide(redirection_of(call->handle)->critical, call, &write.range, &room, &parts);
    }
    if (*why == NULL && parts.on_ssd < call->bytes && call->flags & CALL_NONBLOCKING)
        *why = "a nonblocking write would wait for the original";
    const char *buffer = *why == NULL ? gathered(call, write.memory, &copy) : NULL;
    if (*why == NULL && buffer == NULL)
        *why = "too large for data that are not contiguous in memory";
    if (*why == NULL) {
        replicas_mark_written(call->handle, call);
        *why = put_parts(call, &write.range, &parts, buffer, &requests);
        done = *why == NULL && result_set(call);
        *why = *why == NULL ? "the result cannot be set" : *why;
    }
    if (done) {
        count_call(call, parts.on_ssd, requests);
        if (parts.on_ssd < call->bytes)
            write_stats_passed(writer->written, call->bytes - parts.on_ssd,
                               critical_requests_segments(redirection_of(call->handle)->critical) != NULL
                                   ? "bodies, beside heads" : "whole strips, beside fragments");
    }
    free(copy);
    free(parts.each);
    typemap_release(write.memory);
    return done;
}

static bool write_alone(struct io_call *call, const char **why)
{
    struct prepared_write write;
    if (writer_of(call->handle)->divides)
        return call->bytes != 0 && write_divided(call, why);
    bool done = call->bytes != 0 && (*why = prepare(call, &write)) == NULL && redirect(call, &write, why);
    if (call->bytes != 0)
        typemap_release(write.memory);
    return done;
}

/* The bytes of the original that a call may write to. */
static void span_of_call(const struct io_call *call, int64_t *low, int64_t *high)
{
    struct view_range range;
    struct typemap_cursor cursor;
    *low = call->bytes == 0 ? INT64_MAX : 0;
    *high = call->bytes == 0 ? 0 : INT64_MAX;
    if (call->bytes == 0 || view_range_of(call, &range) != NULL)
        return;
    typemap_cursor_init(&cursor, range.view, range.displacement, range.position);
    *low = typemap_cursor_next(&cursor, 1).offset;
    *high = view_range_last(&range) + 1;
}

/* To be called before all ranks make the MPI library's collective call. Makes a write-back if the
 * call may touch redirected bytes. RATIONALE: the library may read bytes of the original between
 * those of the ranks, and write them again after a rank that has finished the call has written back
 * newer ones. 0 or, on all ranks, an errno. */
static int write_back_overlap(const struct io_call *call)
{
    struct writer *writer = writer_of(call->handle);
    int64_t low, high, all[4];
    span_of_call(call, &low, &high);
    pthread_mutex_lock(&writer->mutex);
    const int64_t mine[4] = {low, -high, writer->low, -writer->high};
    pthread_mutex_unlock(&writer->mutex);
    if (!agree_reduce(mine, all, 4, running_mpi()->op_min, writer->comm))
        return EIO;
    return all[0] < -all[3] && all[2] < -all[1] ? write_back_together(call->handle) : 0;
}

/* A collective write. True: it was done, and *rc is its result. False: all ranks make the MPI
 * library's call. */
static bool write_together(struct io_call *call, int *rc, const char **why)
{
    struct writer *writer = writer_of(call->handle);
    unsigned views = call->handle->views;
    bool holds = exchange_stays(writer) && agreement_holds(&writer->agreement, views);
    struct prepared_write write;
    const char *mine = prepare(call, &write);
    int64_t fit;
    if (!has_room(call, &fit) && mine == NULL)
        mine = no_room;
    bool redirects = holds ? writer->agreement.redirects
                           : agreement_make(&writer->agreement, writer->comm, !writer->judges, views, mine, fit);
    *why = agreement_why(holds, mine);
    enum pieces pieces = PIECES_STAY;
    if (redirects && !holds && writer->exchange != NULL)
        pieces = exchange_decide(call, call->bytes > 0 ? &write.range : NULL);
    if (pieces == PIECES_FAIL || pieces == PIECES_SIEVED) {
        redirects = false;
        *why = pieces == PIECES_FAIL ? "the pieces cannot be exchanged" : sieved;
    } else if (pieces == PIECES_GO) {
        redirects = redirect_exchanged(call, &write, rc, why);
    } else if (redirects && (mine != NULL || !redirect(call, &write, &mine))) {
        *rc = write_apart(call, mine);
    }
    exchange_called(writer);
    typemap_release(write.memory);
    return redirects;
}

/* A nonblocking or split collective write, which cannot wait for the other ranks. RATIONALE: all
 * ranks must take the same way. The MPI library's collective call may, until all ranks have
 * completed it, write again what it read between their bytes, over the redirected bytes of another
 * rank. So a rank that cannot redirect writes independently, but not while another may still be in
 * an earlier collective call of the MPI library. */
static bool write_joining(struct io_call *call, int *rc, const char **why)
{
    struct writer *writer = writer_of(call->handle);
    struct prepared_write write;
    *why = call->handle->atomic ? "atomic mode"
        : writer->library_wrote ? "nonblocking or split collective after a write by the MPI library"
                                : "nonblocking or split collective that the replicas do not cover";
    if (!writer->joins || writer->library_wrote || call->handle->atomic || call->bytes < 0 || call->position < 0)
        return false;
    call->joins = true;
    const char *mine = prepare(call, &write);
    /* RATIONALE: a cache of another node may have older bytes, which must not go home after these. */
    if (mine == NULL && exchange_waits(writer))
        mine = "nonblocking or split collective after exchanged pieces";
    if (mine != NULL || !redirect(call, &write, &mine))
        *rc = write_apart(call, mine);
    typemap_release(write.memory);
    return true;
}

/* The program waits until the MPI library has made a collective write, too. */
static void pass(struct writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    writer->passing = true;
    exchange_passes(writer);
    pthread_mutex_unlock(&writer->mutex);
}

bool redirector_write(struct io_call *call, int *rc)
{
    struct writer *writer = writer_of(call->handle);
    const bool measured = writer->cache != NULL && call->flags & CALL_COLLECTIVE
        && !(call->flags & (CALL_NONBLOCKING | CALL_SPLIT)) && !call->refused;
    const char *why;
    bool done;
    int error = errno;
    *rc = 0;
    if (measured)
        cache_gain_wait_begins(writer->gain, call->bytes > 0 ? call->bytes : 0);
    if (!(call->flags & CALL_COLLECTIVE)) {
        done = write_alone(call, &why);
    } else if (writer->straight) {
        why = no_gain;
        done = false;
    } else if (call->flags & (CALL_NONBLOCKING | CALL_SPLIT)) {
        done = write_joining(call, rc, &why);
    } else {
        done = write_together(call, rc, &why);
        writer->library_wrote = writer->library_wrote || (!done && writer->ranks > 1);
        done = done || (*rc = writer_raise(call->handle, write_back_overlap(call))) != 0;
    }
    if (measured && done)
        cache_gain_wait_ends(writer->gain);
    else if (measured)
        pass(writer);
    if (!done && call->bytes > 0)
        write_stats_passed(writer->written, call->bytes, why);
    errno = error;
    return done;
}

/* Whether the replicas have the beginning of this rank's view. A view without holes is accepted,
 * since a program may access any part of it. */
static bool view_is_covered(const struct file_handle *handle)
{
    const struct writer *writer = writer_of(handle);
    const struct file_view *view = &handle->view;
    if (view->map == NULL || !view->native)
        return false;
    const struct view_range tile = {view->map, view->displacement, 0, typemap_size(view->map)};
    struct stitch stitch;
    struct piece piece = {0};
    if (tile.bytes == 0 || typemap_is_contiguous(view->map) || writer->cache != NULL)
        return true;
    if (!view_range_fits(&tile))
        return false;
    stitch_start(&stitch, writer, &tile);
    for (int pieces = 0; pieces < VIEWED_PIECES && piece.replica_offset >= 0 && stitch_next(&stitch, &piece);)
        pieces++;
    return piece.replica_offset >= 0;
}

void redirector_viewed(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    int64_t mine = view_is_covered(handle) && !writer->judges, all;
    int error = errno;
    writer->joins = agree_reduce(&mine, &all, 1, running_mpi()->op_min, writer->comm) && all != 0;
    writer->library_wrote = false;
    errno = error;
}

/* ---- before other calls ------------------------------------------------------------------------------------------ */

/* Whether a call may write to bytes that the journal lists, or write them again as they were (see
 * write_back_overlap()). */
static bool overtakes(const struct writer *writer, const struct io_call *call)
{
    struct view_range range;
    const unsigned unagreed = CALL_NONBLOCKING | CALL_SPLIT;
    if (writer->cache != NULL ? !node_home_waits(writer, NULL, HOME_OWN | HOME_PEERS)
                              : journal_count(&writer->journal) == 0)
        return false;
    if (call->flags & CALL_SHARED || (call->flags & CALL_COLLECTIVE && call->flags & unagreed))
        return true;
    if (call->bytes == 0)
        return false;
    if (view_range_of(call, &range) != NULL)
        return true;
    if (writer->cache != NULL)
        return node_home_waits(writer, &range, HOME_OWN | HOME_PEERS);
    for (uint32_t i = 0; i < writer->target->replica_count; i++)
        if (writer->components[i] != NULL && view_range_touches(writer->map, target_replica(writer, i), &range))
            return true;
    return false;
}

/* The bytes of a call. NULL: they are not known. */
static const struct view_range *known_range(const struct io_call *call, struct view_range *range)
{
    return !(call->flags & CALL_SHARED) && view_range_of(call, range) == NULL ? range : NULL;
}

int writer_original_begin(struct file_handle *handle, const struct io_call *call)
{
    struct writer *writer = writer_of(handle);
    struct view_range range;
    bool found;
    int error = exchange_waits(writer) && call->bytes != 0 ? cache_await(writer, known_range(call, &range)) : 0;
    pthread_mutex_lock(&writer->mutex);
    if (error == 0 && overtakes(writer, call))
        error = writer_write_back(handle);
    if (error != 0)
        journal_overtaken(&writer->journal);
    else
        error = peers_write_back(handle, call, &found);
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return writer_raise(handle, error);
}

/* Bytes that the file loses are written back first: natively the file had them, and the bytes
 * before them stay. */
int writer_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts)
{
    struct writer *writer = writer_of(handle);
    int64_t all[2];
    pthread_mutex_lock(&writer->mutex);
    const int64_t mine[2] = {cuts ? size : INT64_MAX, -writer->high};
    pthread_mutex_unlock(&writer->mutex);
    int error = !agree_reduce(mine, all, 2, running_mpi()->op_min, writer->comm) ? EIO
        : all[0] < -all[1] ? write_back_together(handle) : 0;
    pthread_mutex_lock(&writer->mutex);
    journal_original_begin(&writer->journal);
    pthread_mutex_unlock(&writer->mutex);
    return writer_raise(handle, error);
}

void writer_exchange_service_times(struct file_handle *handle)
{
    if (redirection_of(handle)->measures)
        critical_requests_exchange(redirection_of(handle)->critical, writer_of(handle)->comm);
}

void writer_original_end(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    pthread_mutex_lock(&writer->mutex);
    journal_original_end(&writer->journal, writer->fd);
    if (writer->passing) {
        cache_gain_wait_ends(writer->gain);
        exchange_passed(writer);
    }
    writer->passing = false;
    pthread_mutex_unlock(&writer->mutex);
}

/* Whether a call of one rank may see bytes that are in caches. Ranks of a node see each other's, unless
 * they are content with what MPI promises. */
static bool is_looked_at(const struct writer *writer, const struct io_call *call)
{
    struct view_range range;
    const int whose = writer->coherent ? HOME_OWN | HOME_PEERS : HOME_OWN;
    return call->bytes != 0 && node_home_waits(writer, known_range(call, &range), whose);
}

bool redirector_read_cached(struct io_call *call)
{
    struct writer *writer = writer_of(call->handle);
    struct view_range range;
    struct typemap *memory = NULL;
    if (writer->cache == NULL || call->refused || !(call->handle->amode & AMODE_RDWR) || call->bytes <= 0
        || call->flags & (CALL_COLLECTIVE | CALL_SHARED)
        || __atomic_load_n(&writer->why_not, __ATOMIC_ACQUIRE) != NULL || view_range_of(call, &range) != NULL
        || result_fits(call) != NULL || !memory_of(call, &memory))
        return false;
    const int saved = errno;
    pthread_mutex_lock(&writer->mutex);
    const bool serves = node_home_waits(writer, &range, HOME_OWN)
        && !(writer->coherent && node_home_waits(writer, &range, HOME_PEERS))
        && !node_home_came(writer, &range) && !cache_is_behind(writer, &range);
    const int64_t here = serves ? cache_read(writer, &range, call->buffer, memory) : 0;
    const bool served = here > 0 && result_set(call);
    pthread_mutex_unlock(&writer->mutex);
    typemap_release(memory);
    if (served) {
        call->redirected = true;
        write_stats_hit(writer->written, here);
    }
    errno = saved;
    return served;
}

int make_visible(struct file_handle *handle, const struct io_call *call, enum make_visible how)
{
    struct writer *writer = writer_of(handle);
    struct view_range range;
    int saved = errno, error;
    bool found = false;
    if (how == VISIBLE_BY_ALL) {
        error = write_back_together(handle);
    } else {
        pthread_mutex_lock(&writer->mutex);
        error = writer->cache != NULL && !is_looked_at(writer, call) ? 0 : writer_write_back(handle);
        if (error == 0 && call->flags & CALL_READ)
            error = peers_write_back(handle, call, &found);
        pthread_mutex_unlock(&writer->mutex);
        if (error == 0 && writer->cache != NULL && call->flags & CALL_READ && call->bytes != 0)
            error = cache_await(writer, known_range(call, &range));
    }
    if (found)
        write_stats_peer_read(writer->written);
    if (how == VISIBLE_FOR_GOOD)
        writer_stop(writer, "shared file pointer");
    int rc = writer_raise(handle, error);
    errno = saved;
    return rc;
}

int make_size_visible(struct file_handle *handle, bool together)
{
    struct writer *writer = writer_of(handle);
    int saved = errno;
    pthread_mutex_lock(&writer->mutex);
    int error = extend_original(handle);
    pthread_mutex_unlock(&writer->mutex);
    if (together)
        error = agree_error(writer, error);
    int rc = writer_raise(handle, error);
    errno = saved;
    return rc;
}
