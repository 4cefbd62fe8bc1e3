#include "writeback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "cache_gain.h"
#include "collective_consensus.h"
#include "components.h"
#include "exchange.h"
#include "locks.h"
#include "node_home.h"
#include "node_peers.h"
#include "partial_pages.h"
#include "staleness.h"
#include "redirection.h"
#include "transfer.h"
#include "write_stats.h"
#include "writer.h"

enum {
    BATCH_BYTES = 16 << 20,
    BATCH_PIECES = 1 << 16,
    AHEAD_BYTES = 8 << 20, /* of the original, fetched before they are written to, twice */
    SHARE_GRAIN = 1 << 20, /* RATIONALE: ranks write to different blocks of the original on any file system */
};

/* The entries of a journal. NULL: out of memory. */
static struct range *ranges_of(const struct writer *writer, const struct journal *journal, size_t *count)
{
    *count = journal_count(journal);
    struct range *ranges = malloc((*count + 1) * sizeof *ranges);
    if (ranges == NULL)
        return NULL;
    for (size_t i = 0; i < *count; i++) {
        int64_t length;
        struct journal_entry entry = journal_entry(journal, i, &length);
        uint32_t replica = 0;
        while (target_replica(writer, replica)->id != entry.place)
            replica++;
        ranges[i] = (struct range){replica, entry.start, entry.start + length};
    }
    *count = ranges_merge(ranges, *count);
    return ranges;
}

/* ---- a batch of pieces ------------------------------------------------------------------------------------------- */

/* Bytes that are contiguous in the original and in replica `replica`. */
struct chunk {
    int64_t offset, length, replica_offset;
    uint32_t replica;
};

struct batch {
    struct writer *writer;
    struct moving_lock lock;
    char *memory;
    struct chunk *chunks;
    size_t count;
    int64_t bytes;
    int64_t low, high;        /* bytes of the original that contain all that is to be written back */
    uint64_t requests, moved; /* of all batches */
};

static int by_offset(const void *one, const void *other)
{
    const struct chunk *a = one, *b = other;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static bool batch_start(struct batch *batch, struct writer *writer)
{
    *batch = (struct batch){.writer = writer, .lock = {.fd = writer->fd}, .low = writer->low, .high = writer->high};
    batch->memory = malloc(BATCH_BYTES);
    batch->chunks = malloc(BATCH_PIECES * sizeof *batch->chunks);
    return batch->memory != NULL && batch->chunks != NULL;
}

static void batch_free(struct batch *batch)
{
    free(batch->memory);
    free(batch->chunks);
}

/* Reads the chunks, replica by replica, into memory in the order of the original. */
static int fetch(const struct batch *batch)
{
    struct writer *writer = batch->writer;
    struct transfer transfer = {.map = writer->map};
    int error = 0;
    for (uint32_t replica = 0; error == 0 && replica < writer->target->replica_count; replica++) {
        char *memory = batch->memory;
        error = transfer_select(&transfer, target_replica(writer, replica), writer->components[replica]);
        for (size_t i = 0; error == 0 && i < batch->count; i++) {
            const struct chunk *chunk = &batch->chunks[i];
            if (chunk->replica == replica)
                error = transfer_add(&transfer, chunk->replica_offset, chunk->length, memory);
            memory += chunk->length;
        }
    }
    if (error == 0)
        error = transfer_flush(&transfer);
    transfer_free(&transfer);
    return error;
}

/* The end of the span of chunks that begins with chunk `first` and is contiguous in the original.
 * *after: the first chunk after it. */
static int64_t span_end(const struct batch *batch, size_t first, size_t *after)
{
    int64_t end = batch->chunks[first].offset;
    for (*after = first; *after < batch->count && batch->chunks[*after].offset == end; ++*after)
        end += batch->chunks[*after].length;
    return end;
}

/* Fetches the pages of which the spans from chunk `first` on have parts. Returns the first chunk
 * that is left for later. */
static size_t look_ahead(const struct batch *batch, struct partial_pages *pages, size_t first)
{
    const int64_t most = pages->asked + AHEAD_BYTES;
    for (size_t after; first < batch->count && pages->asked < most; first = after) {
        const int64_t end = span_end(batch, first, &after);
        partial_pages_add(pages, batch->chunks[first].offset, end);
    }
    partial_pages_flush(pages);
    return first;
}

int note_write(struct writer *writer)
{
    if (writer->intent != NULL)
        return intent_renew(writer->journals, writer->intent);
    journal_original_stamp(&writer->journal);
    return 0;
}

static int batch_flush(struct batch *batch)
{
    if (batch->count == 0)
        return 0;
    qsort(batch->chunks, batch->count, sizeof *batch->chunks, by_offset);
    struct partial_pages pages;
    partial_pages_start(&pages, batch->writer->fd, batch->writer->device);
    size_t turn = 0, ahead = look_ahead(batch, &pages, 0);
    int error = fetch(batch);
    const char *memory = batch->memory;
    const struct chunk *last = &batch->chunks[batch->count - 1];
    batch->lock.end = last->offset + last->length;
    for (size_t first = 0, after; error == 0 && first < batch->count; first = after) {
        if (first == turn) {
            turn = ahead;
            ahead = look_ahead(batch, &pages, ahead);
        }
        const int64_t start = batch->chunks[first].offset, stop = span_end(batch, first, &after), length = stop - start;
        moving_lock_reach(&batch->lock, start, stop);
        error = note_write(batch->writer);
        if (error == 0)
            error = write_whole(batch->writer->fd, memory, length, start);
        memory += length;
        batch->requests++;
        batch->moved += error == 0 ? (uint64_t)length : 0;
    }
    moving_lock_leave(&batch->lock);
    batch->count = 0;
    batch->bytes = 0;
    return error;
}

static int batch_add(struct batch *batch, struct chunk chunk)
{
    while (chunk.length > 0) {
        if (batch->count == BATCH_PIECES || batch->bytes == BATCH_BYTES) {
            int error = batch_flush(batch);
            if (error != 0)
                return error;
        }
        struct chunk part = chunk;
        if (part.length > BATCH_BYTES - batch->bytes)
            part.length = BATCH_BYTES - batch->bytes;
        batch->chunks[batch->count++] = part;
        batch->bytes += part.length;
        chunk.offset += part.length;
        chunk.replica_offset += part.length;
        chunk.length -= part.length;
    }
    return 0;
}

/* ---- in the original's order ------------------------------------------------------------------------------------- */

/* Adds what the ranges have of a piece of replica `replica`. */
static int add_piece(struct batch *batch, const struct range *ranges, size_t count, int64_t replica,
                     const struct piece *piece)
{
    const int64_t stop = piece->replica_offset + piece->length;
    int error = 0;
    for (size_t i = ranges_after(ranges, count, replica, piece->replica_offset);
         error == 0 && i < count && ranges[i].replica == replica && ranges[i].start < stop; i++) {
        int64_t from = ranges[i].start > piece->replica_offset ? ranges[i].start : piece->replica_offset;
        int64_t to = ranges[i].stop < stop ? ranges[i].stop : stop;
        error = batch_add(
            batch, (struct chunk){piece->offset + from - piece->replica_offset, to - from, from, (uint32_t)replica});
    }
    return error;
}

/* Adds what the ranges have of irregular replica `replica`. */
static int add_irregular(struct batch *batch, const struct range *ranges, size_t count, uint32_t replica)
{
    const struct writer *writer = batch->writer;
    const struct map_replica *irregular = target_replica(writer, replica);
    struct piece piece;
    int error = 0;
    for (int64_t at = batch->low; error == 0 && at < batch->high; at = piece.offset + piece.length) {
        if (!locate_piece(writer->map, irregular, at, batch->high, &piece))
            break;
        error = add_piece(batch, ranges, count, replica, &piece);
    }
    return error;
}

static int add_ranges(struct batch *batch, const struct range *ranges, size_t count)
{
    const struct writer *writer = batch->writer;
    int error = 0;
    for (size_t i = 0; error == 0 && i < count; i++) {
        const struct map_replica *replica = target_replica(writer, (uint32_t)ranges[i].replica);
        if (replica->extent_count > 0) {
            if (i == 0 || ranges[i - 1].replica != ranges[i].replica)
                error = add_irregular(batch, ranges, count, (uint32_t)ranges[i].replica);
            continue;
        }
        for (int64_t at = ranges[i].start; error == 0 && at < ranges[i].stop;) {
            int64_t length, offset = locate_original(writer->map, replica, at, &length);
            if (length > ranges[i].stop - at)
                length = ranges[i].stop - at;
            error = batch_add(batch, (struct chunk){offset, length, at, (uint32_t)ranges[i].replica});
            at += length;
        }
    }
    return error == 0 ? batch_flush(batch) : error;
}

/* Adds bytes [low, high) of the original, from all replicas in the order of the original. */
static int add_share(struct batch *batch, const struct range *ranges, size_t count, int64_t low, int64_t high)
{
    const struct writer *writer = batch->writer;
    const uint32_t replicas = writer->target->replica_count;
    struct piece *next = malloc(replicas * sizeof *next);
    int error = next == NULL ? ENOMEM : 0;
    for (uint32_t i = 0; error == 0 && i < replicas; i++)
        if (!locate_piece(writer->map, target_replica(writer, i), low, high, &next[i]))
            next[i].length = 0;
    while (error == 0) {
        uint32_t first = replicas;
        for (uint32_t i = 0; i < replicas; i++)
            if (next[i].length > 0 && (first == replicas || next[i].offset < next[first].offset))
                first = i;
        if (first == replicas)
            break;
        error = add_piece(batch, ranges, count, first, &next[first]);
        int64_t at = next[first].offset + next[first].length;
        if (!locate_piece(writer->map, target_replica(writer, first), at, high, &next[first]))
            next[first].length = 0;
    }
    free(next);
    return error == 0 ? batch_flush(batch) : error;
}

/* ---- write-back -------------------------------------------------------------------------------------------------- */

static int end_batch(struct batch *batch, int error)
{
    struct writer *writer = batch->writer;
    /* RATIONALE: the journal is cleared next, so the bytes must survive a power failure. */
    if (error == 0 && batch->moved > 0 && fdatasync(writer->fd) != 0)
        error = errno;
    pthread_mutex_lock(&writer->written->lock);
    writer->written->back_bytes += batch->moved;
    writer->written->back_requests += batch->requests;
    if (error != 0)
        writer->written->error = error;
    pthread_mutex_unlock(&writer->written->lock);
    batch_free(batch);
    return error;
}

static void clear_own_journal(struct writer *writer)
{
    peers_lock(writer);
    journal_clear(&writer->journal);
    writer->low = INT64_MAX;
    writer->high = 0;
    peers_unlock(writer);
}

void original_begin(struct file_handle *handle)
{
    if (writer_of(handle)->intent == NULL)
        journal_original_begin(&writer_of(handle)->journal);
}

void original_end(struct file_handle *handle)
{
    if (writer_of(handle)->intent == NULL)
        journal_original_end(&writer_of(handle)->journal, writer_of(handle)->fd);
}

bool lock_original(const struct writer *writer, int64_t low, int64_t high)
{
    return low < high && lock_patiently(writer->fd, LOCK_ALONE, low, high);
}

void unlock_original(const struct writer *writer, int64_t low, int64_t high, bool locked)
{
    if (locked)
        lock_bytes(writer->fd, LOCK_NONE, low, high);
}

int write_back_journal(struct file_handle *handle, struct journal *journal, int64_t low, int64_t high)
{
    struct writer *writer = writer_of(handle);
    if (journal_count(journal) == 0)
        return 0;
    size_t count;
    struct batch batch;
    struct range *ranges = ranges_of(writer, journal, &count);
    int error = batch_start(&batch, writer) && ranges != NULL ? 0 : ENOMEM;
    batch.low = low;
    batch.high = high;
    original_begin(handle);
    if (error == 0)
        error = add_ranges(&batch, ranges, count);
    error = end_batch(&batch, error);
    original_end(handle);
    if (error == 0)
        journal_clear(journal);
    free(ranges);
    return error;
}

static int write_back_cache(struct file_handle *handle)
{
    const int error = node_home_all(handle);
    if (error == 0)
        cache_follow(writer_of(handle));
    return error;
}

int write_back_own(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    if (writer->cache != NULL)
        return write_back_cache(handle);
    peers_lock(writer);
    int error = write_back_journal(handle, &writer->journal, writer->low, writer->high);
    if (error == 0) {
        writer->low = INT64_MAX;
        writer->high = 0;
    }
    peers_unlock(writer);
    return error;
}

/* The last of the first `high` bytes of the original, read from a replica. */
static int read_last(const struct writer *writer, int64_t high, char *last)
{
    struct transfer transfer = {.map = writer->map};
    struct piece piece;
    int error = EIO;
    for (uint32_t i = 0; i < writer->target->replica_count; i++)
        if (writer->components[i] != NULL
            && locate_piece(writer->map, target_replica(writer, i), high - 1, high, &piece)) {
            error = transfer_select(&transfer, target_replica(writer, i), writer->components[i]);
            error = error != 0 ? error : transfer_add(&transfer, piece.replica_offset, 1, last);
        }
    error = error != 0 ? error : transfer_flush(&transfer);
    transfer_free(&transfer);
    return error;
}

/* RATIONALE: writes the last byte, which the write-back will write anyway. Setting the size could
 * cut off what another rank has written meanwhile, and not every file system can allocate. */
int extend_original_to(struct file_handle *handle, int64_t high)
{
    struct writer *writer = writer_of(handle);
    struct stat found;
    char last;
    if (fstat(writer->fd, &found) != 0)
        return errno;
    if (found.st_size >= high)
        return 0;
    bool held = true;
    int error = writer->cache != NULL ? node_home_byte(writer, high - 1, &last, &held)
                                      : read_last(writer, high, &last);
    if (error != 0)
        return error;
    if (!held && exchange_end(writer, &last) != high)
        return 0; /* it has just gone home */
    original_begin(handle);
    error = write_whole(writer->fd, &last, 1, high - 1);
    original_end(handle);
    return error;
}

int extend_original(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    if (writer->cache != NULL) {
        char last;
        const int64_t here = node_home_end(writer), elsewhere = exchange_end(writer, &last);
        return extend_original_to(handle, here > elsewhere ? here : elsewhere);
    }
    int error = journal_count(&writer->journal) == 0 ? 0 : extend_original_to(handle, writer->high);
    return error != 0 ? error : peers_extend_original(handle);
}

/* Adds ranges to merged ones. */
static bool add_merged(struct parcel *parcel, const void *more, int bytes)
{
    const size_t all = ((size_t)parcel->bytes + (size_t)bytes) / sizeof(struct range);
    struct range *ranges = all > MOST_RANGES ? NULL : realloc(parcel->memory, (all + 1) * sizeof *ranges);
    if (ranges == NULL)
        return false;
    if (bytes > 0)
        memcpy((char *)ranges + parcel->bytes, more, (size_t)bytes);
    *parcel = (struct parcel){ranges, (int)(ranges_merge(ranges, all) * sizeof *ranges)};
    return true;
}

/* The ranges of all ranks, merged. RATIONALE: a program that follows its pattern leaves no gaps in a replica, and then
 * all of them are one range. NULL, the same on all ranks: too many, or out of memory. */
static struct range *merge_all(const struct writer *writer, const struct range *mine, size_t count, size_t *merged)
{
    struct parcel parcel = {malloc((count + 1) * sizeof *mine), (int)(count * sizeof *mine)};
    if (parcel.memory != NULL && count > 0)
        memcpy(parcel.memory, mine, count * sizeof *mine);
    if (count > MOST_RANGES) {
        free(parcel.memory);
        parcel.memory = NULL;
    }
    int64_t bytes = agree_merge(&parcel, add_merged, writer->rank, writer->ranks, writer->comm) ? parcel.bytes : -1;
    bool able = agree_broadcast(&bytes, (int)sizeof bytes, writer->comm) && bytes >= 0;
    if (able && writer->rank > 0) {
        free(parcel.memory);
        parcel.memory = malloc((size_t)bytes + 1);
    }
    int64_t ready = able && parcel.memory != NULL, agreed;
    if (!agree_reduce(&ready, &agreed, 1, running_mpi()->op_min, writer->comm) || agreed == 0
        || !agree_broadcast(parcel.memory, (int)bytes, writer->comm)) {
        free(parcel.memory);
        return NULL;
    }
    *merged = (size_t)bytes / sizeof(struct range);
    return parcel.memory;
}

/* This rank's share of [low, high). */
static void share(const struct writer *writer, int64_t *low, int64_t *high)
{
    const int64_t start = *low - *low % SHARE_GRAIN, stop = *high;
    int64_t each = (stop - start) / writer->ranks + 1;
    each += SHARE_GRAIN - 1 - (each - 1) % SHARE_GRAIN;
    int64_t from, to;
    if (__builtin_mul_overflow(each, (int64_t)writer->rank, &from) || __builtin_add_overflow(from, start, &from)
        || from > stop)
        from = stop;
    if (__builtin_add_overflow(from, each, &to) || to > stop)
        to = stop;
    *low = from > *low ? from : *low;
    *high = to;
}

static int write_back_share(struct file_handle *handle, const struct range *mine, size_t count, int64_t low,
                            int64_t high)
{
    struct writer *writer = writer_of(handle);
    size_t merged = 0;
    struct range *all = merge_all(writer, mine, count, &merged);
    struct batch batch;
    int error = batch_start(&batch, writer) ? 0 : ENOMEM;
    if (all != NULL) {
        share(writer, &low, &high);
    } else {
        low = writer->low;
        high = writer->high;
    }
    original_begin(handle);
    if (error == 0)
        error = all != NULL ? add_share(&batch, all, merged, low, high) : add_ranges(&batch, mine, count);
    error = end_batch(&batch, error);
    original_end(handle);
    free(all);
    return error;
}

int agree_error(const struct writer *writer, int error)
{
    int64_t mine = -(int64_t)error, all;
    if (writer->ranks == 1)
        return error;
    if (!agree_reduce(&mine, &all, 1, running_mpi()->op_min, writer->comm))
        return EIO;
    return (int)-all;
}

/* RATIONALE: a node's ranks share its bytes among each other, and no other node can read them. They
 * wait for each other first, so that what they wrote in the same call goes home together. */
static int write_back_caches(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    exchange_awaited(writer);
    cache_gain_wait_begins(writer->gain, GAIN_HOME);
    pthread_mutex_lock(&writer->mutex);
    int error = agree_error(writer, writer->error);
    if (error == 0)
        error = agree_error(writer, write_back_cache(handle));
    if (error != 0)
        writer->error = error;
    else
        exchange_home(writer);
    pthread_mutex_unlock(&writer->mutex);
    cache_gain_wait_ends(writer->gain);
    return error;
}

int write_back_together(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    const struct mpi *mpi = running_mpi();
    if (writer->cache != NULL)
        return write_back_caches(handle);
    pthread_mutex_lock(&writer->mutex);
    size_t count = 0;
    struct range *mine = ranges_of(writer, &writer->journal, &count);
    int error = writer->error != 0 ? writer->error : mine == NULL ? ENOMEM : 0;
    /* The worst error, the lowest and (negated) the highest byte. */
    int64_t bounds[3] = {-(int64_t)error, writer->low, -writer->high}, all[3];
    if (!agree_reduce(bounds, all, 3, mpi->op_min, writer->comm))
        error = EIO;
    else if (all[0] != 0)
        error = (int)-all[0];
    else if (-all[2] > all[1]) {
        /* RATIONALE: another rank of the node may have written them back already and may have
         * written newer bytes to the original since. */
        count = journal_count(&writer->journal) == 0 ? 0 : count;
        error = agree_error(writer, write_back_share(handle, mine, count, all[1], -all[2]));
    }
    if (error == 0)
        clear_own_journal(writer);
    else
        writer->error = error;
    free(mine);
    pthread_mutex_unlock(&writer->mutex);
    return error;
}

/* The bytes of the original for which a target has replicas. */
static void replicated_span(const struct writer *writer, int64_t *low, int64_t *high)
{
    *low = INT64_MAX;
    *high = 0;
    for (uint32_t i = 0; i < writer->target->replica_count; i++) {
        int64_t start, end;
        locate_span(writer->map, target_replica(writer, i), &start, &end);
        *low = start < *low ? start : *low;
        *high = end > *high ? end : *high;
    }
}

int write_back_pending(struct file_handle *handle, struct range *ranges, uint64_t count)
{
    struct writer *writer = writer_of(handle);
    struct batch batch;
    int64_t low, high;
    int error = batch_start(&batch, writer) ? 0 : ENOMEM;
    replicated_span(writer, &low, &high);
    /* RATIONALE: replicas may have been built before the original had these bytes. */
    replicas_mark(handle, low, high);
    share(writer, &low, &high);
    original_begin(handle);
    if (error == 0)
        error = add_share(&batch, ranges, ranges_merge(ranges, count), low, high);
    error = end_batch(&batch, error);
    original_end(handle);
    return agree_error(writer, error);
}

/* All devices begin with what their page caches have. */
static void begin_replicas(const struct writer *writer)
{
    for (uint32_t i = 0; i < writer->target->replica_count; i++)
        if (writer->components[i] != NULL)
            components_sync(writer->map, target_replica(writer, i), writer->components[i], true);
}

/* Makes the bytes of the replicas durable, on all devices at the same time. 0 or an errno. */
static int sync_replicas(const struct writer *writer)
{
    const uint32_t count = writer->target->replica_count;
    int error = 0;
    begin_replicas(writer);
    for (uint32_t i = 0; i < count; i++) {
        int *components = writer->components[i];
        const int found =
            components == NULL ? 0 : components_sync(writer->map, target_replica(writer, i), components, false);
        error = error != 0 ? error : found;
    }
    return error;
}

enum mover_next begin_durable(struct file_handle *handle)
{
    begin_replicas(writer_of(handle));
    return MOVER_WAITS;
}

static int sync_journal(struct writer *writer)
{
    peers_lock(writer);
    int error = journal_sync(&writer->journal);
    peers_unlock(writer);
    return error;
}

int make_durable_together(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    int error = writer->error;
    pthread_mutex_lock(&writer->mutex);
    bool any = journal_count(&writer->journal) > 0;
    const int unsynced = any ? sync_replicas(writer) : 0;
    writer->ahead = 0;
    error = error != 0 ? error : unsynced;
    if (any && error == 0)
        error = sync_journal(writer);
    error = agree_error(writer, error);
    /* All ranks are here: nobody writes to the original. */
    journal_original_begin(&writer->journal);
    journal_original_end(&writer->journal, writer->fd);
    pthread_mutex_unlock(&writer->mutex);
    return error;
}
