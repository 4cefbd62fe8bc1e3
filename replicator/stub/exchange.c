/* RATIONALE: a byte of the file belongs to the same rank as long as bytes wait in caches. So what is newer
 * is in the same journal, or another rank of its node has it. Clocks of two nodes could not tell. */
#include "exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "caching.h"
#include "collective_consensus.h"
#include "node_home.h"
#include "node_peers.h"
#include "recovery.h"
#include "staleness.h"
#include "write_stats.h"
#include "writeback.h"

enum {
    NO_BYTE = 256,
    SAMPLES = 8,         /* of a rank's pieces, from which the others are judged, */
    MOST_SAMPLED = 1024, /* and of all ranks' */
    MOST_BYTES = 1 << 30 /* that a rank gets at a time */
};

/* RATIONALE: of a parallel file system and a network without a cluster.toml, in orders of magnitude: 1,000 requests
 * and 1 GB a second for each node. */
static const struct caching_costs usual = {.request = 1e-3, .byte = 1e-9, .message = 2e-5, .network = 1e-9,
                                           .copy = 2e-10};

/* What is sent to each rank, or comes from it: how many bytes, and where in `memory`. */
struct box {
    int *bytes, *place; /* [ranks] */
    int64_t all;
    char *memory;
    int64_t room;
};

enum { OUT_PIECES, OUT_DATA, IN_PIECES, IN_DATA, BOXES };

struct exchange {
    enum exchange_wish wish;
    int64_t wanted_unit; /* 0: as the core thinks best */
    struct caching_costs costs;
    int ranks, nodes;
    int rank, turn;      /* this one's */
    int block;           /* so many ranks that follow one another are on one node; 1: where they are is not known */
    int *counts;         /* [2][ranks][2]; of an exchange: bytes of pieces and of data, to each rank and from it */
    struct box box[BOXES];
    bool decided;        /* since all was home, ... */
    unsigned views;      /* ... for this view */
    bool sieves;         /* the MPI library writes them; otherwise: */
    int64_t unit;        /* 0: the pieces stay */
    int at_a_time;
    int64_t first, after; /* units of the present call */
    int64_t high;         /* its end in the file */
    bool waits;           /* atomic; exchanged bytes may wait in caches */
    int64_t end;         /* of what was exchanged since all was home, */
    char last;           /* and its last byte */
    struct extent pass;  /* to the highest byte that the MPI library wrote since a call began at the lowest one */
    int64_t began, calls; /* when the first call since all was home had been made; 0: there was none; how many since */
    int64_t since;        /* when the MPI library began with the present call */
};

/* RATIONALE: what one checkpoint has seen is the best guess for the next one, which is another file. */
static int64_t computed_ns; /* atomic; for each call, between the calls and the wait for them */
static bool fills;          /* atomic; a call wrote between the pieces of an earlier one */

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* RATIONALE: turns are computed, so a rank need not know where all others are. If each node has `block` ranks that
 * follow one another (the last node may have fewer), those that follow one another in turns are on different nodes, if
 * possible. If a launcher has dealt them out to the nodes, they are so by their numbers. */
static int rank_of(const struct exchange *exchange, int64_t number)
{
    const int block = exchange->block, nodes = (exchange->ranks - 1) / block + 1;
    const int rest = exchange->ranks - (nodes - 1) * block; /* of the last node */
    int turn = (int)(number % exchange->ranks);
    if (turn < rest * nodes)
        return turn % nodes * block + turn / nodes;
    turn -= rest * nodes;
    return turn % (nodes - 1) * block + rest + turn / (nodes - 1);
}

/* Of this rank: rank_of() of it is the rank. */
static int turn_of(const struct exchange *exchange)
{
    const int block = exchange->block, nodes = (exchange->ranks - 1) / block + 1;
    const int rest = exchange->ranks - (nodes - 1) * block;
    const int node = exchange->rank / block, wave = exchange->rank % block;
    return wave < rest ? wave * nodes + node : rest * nodes + (wave - rest) * (nodes - 1) + node;
}

void exchange_take_turns(struct exchange *exchange, int block)
{
    exchange->block = block;
    exchange->turn = turn_of(exchange);
}

static struct caching_costs costs_of_variable(void)
{
    const char *value = getenv("PDLA_EXCHANGE_COSTS");
    struct caching_costs costs;
    const bool given = value != NULL
        && sscanf(value, "%lf,%lf,%lf,%lf,%lf,%lf", &costs.request, &costs.byte, &costs.message, &costs.network,
                  &costs.copy, &costs.overlap) == 6;
    return given ? costs : usual;
}

struct exchange *exchange_make(const struct writer *writer, const struct cache_hints *hints)
{
    const size_t ranks = (size_t)writer->ranks;
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return NULL;
    *exchange = (struct exchange){.wish = hints->exchange, .wanted_unit = hints->unit,
                                   .costs = costs_of_variable(), .ranks = writer->ranks,
                                   .rank = writer->rank, .nodes = writer->peers->nodes, .block = 1};
    exchange->counts = calloc(4 * ranks, sizeof *exchange->counts);
    bool made = exchange->counts != NULL;
    for (int i = 0; i < BOXES; i++) {
        struct box *box = &exchange->box[i];
        box->bytes = calloc(2 * ranks, sizeof *box->bytes);
        box->place = box->bytes == NULL ? NULL : box->bytes + ranks;
        made = made && box->bytes != NULL;
    }
    if (made)
        return exchange;
    exchange_free(exchange);
    return NULL;
}

bool exchange_is_possible(const struct writer *writer)
{
    return writer->exchange != NULL && writer->exchange->nodes > 1;
}

void exchange_free(struct exchange *exchange)
{
    if (exchange == NULL)
        return;
    for (int i = 0; i < BOXES; i++) {
        free(exchange->box[i].bytes);
        free(exchange->box[i].memory);
    }
    free(exchange->counts);
    free(exchange);
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* A piece, and the lowest rank of the node that has it. */
struct sampled {
    int64_t node;
    struct extent piece;
};

/* The first pieces of some ranks, in their order in the file. */
struct sample {
    int64_t end;         /* behind it too little is known */
    int64_t count;
    struct sampled piece[];
};

static int sample_bytes(int64_t count)
{
    return (int)(sizeof(struct sample) + (size_t)count * sizeof(struct sampled));
}

static int by_place(const void *one, const void *other)
{
    const struct sampled *a = one, *b = other;
    return (a->piece.offset > b->piece.offset) - (a->piece.offset < b->piece.offset);
}

/* The mean bytes without a gap, at most `span`: that a node has (*piece), and that all have (*joined). */
static void judge(const struct sample *sample, int64_t span, int64_t *piece, int64_t *joined)
{
    int64_t bytes = 0, last = -1, breaks = 0, gaps = 0, node = 0;
    for (int64_t i = 0; i < sample->count && sample->piece[i].piece.offset < sample->end; i++) {
        const struct sampled *one = &sample->piece[i];
        const int64_t stop = one->piece.offset + one->piece.length;
        gaps += i > 0 && one->piece.offset > last;
        breaks += i > 0 && (one->piece.offset > last || one->node != node);
        last = stop > last ? stop : last;
        node = one->node;
        bytes += one->piece.length;
    }
    *piece = breaks == 0 ? span : bytes / breaks;
    *joined = gaps == 0 ? span : bytes / gaps;
}

/* Adds a sample, and drops what is behind the first MOST_SAMPLED pieces. RATIONALE: what each rank sends does not grow
 * with the number of ranks. */
static bool add_sample(struct parcel *parcel, const void *more, int bytes)
{
    const struct sample *other = more;
    struct sample *sample = realloc(parcel->memory, (size_t)parcel->bytes + (size_t)bytes);
    if (sample == NULL)
        return false;
    memcpy(&sample->piece[sample->count], other->piece, (size_t)other->count * sizeof *other->piece);
    sample->count += other->count;
    qsort(sample->piece, (size_t)sample->count, sizeof *sample->piece, by_place);
    sample->end = other->end < sample->end ? other->end : sample->end;
    if (sample->count > MOST_SAMPLED) {
        const int64_t dropped = sample->piece[MOST_SAMPLED].piece.offset;
        sample->end = dropped < sample->end ? dropped : sample->end;
        sample->count = MOST_SAMPLED;
    }
    *parcel = (struct parcel){sample, sample_bytes(sample->count)};
    return true;
}

/* This rank's. Its memory may be NULL. RATIONALE: of what is behind the last piece of some rank too little is known. */
static struct parcel sample_of(const struct writer *writer, const struct view_range *range)
{
    struct sample *sample = malloc((size_t)sample_bytes(SAMPLES));
    struct typemap_cursor cursor;
    if (sample == NULL)
        return (struct parcel){0};
    *sample = (struct sample){.end = INT64_MAX};
    if (range != NULL)
        typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int64_t left = range == NULL ? 0 : range->bytes; left > 0 && sample->count < SAMPLES;) {
        const struct extent extent = typemap_cursor_next(&cursor, left);
        sample->piece[sample->count++] = (struct sampled){writer->peers->first, extent};
        left -= extent.length;
        if (sample->count == SAMPLES)
            sample->end = extent.offset + extent.length;
    }
    return (struct parcel){sample, sample_bytes(sample->count)};
}

/* Sums over the ranks. */
struct load {
    int64_t bytes, waiting, waiting_bytes, computed, fills;
};

/* What all ranks write: bytes [low, high) of the file contain it; low > high: nothing. */
struct span {
    int64_t low, high;
    bool in_order; /* of each rank, the pieces are */
    bool shared;   /* others have the file open, too, with caches; false if nobody asked */
};

/* RATIONALE: what waits in the caches may be what is between the pieces of the call. */
static struct load load_of(struct writer *writer, const struct view_range *range, const struct span *span)
{
    const struct journal *journal = &writer->journal;
    const uint64_t count = journal_count(journal);
    struct load load = {.bytes = range == NULL ? 0 : range->bytes, .waiting = (int64_t)journal_waiting(journal),
                        .computed = __atomic_load_n(&computed_ns, __ATOMIC_RELAXED)};
    pthread_mutex_lock(&writer->mutex);
    load.fills = writer->low < span->high && span->low < writer->high;
    pthread_mutex_unlock(&writer->mutex);
    load.fills |= __atomic_load_n(&fills, __ATOMIC_RELAXED);
    for (uint64_t i = count - (uint64_t)load.waiting; i < count; i++) {
        int64_t length;
        journal_entry(journal, i, &length);
        load.waiting_bytes += length;
    }
    return load;
}

/* What rank 0 decides for all. */
struct decision {
    int64_t made;  /* 0: it could not be made */
    int64_t homes; /* 1: all is brought home first */
    int64_t unit;
    struct caching_exchange found;
};

static void decide(const struct exchange *exchange, int ranks, const struct sample *sample, const struct load *load,
                   const struct span *span, struct decision *decision)
{
    struct caching_costs costs = exchange->costs;
    struct caching_collective call = {.ranks = ranks, .nodes = exchange->nodes, .bytes = load->bytes,
                                      .span = span->high - span->low, .unit = exchange->wanted_unit,
                                      .fills = load->fills,
                                      .compute = (double)load->computed / 1e9 / ranks};
    if (memcmp(&costs, &usual, sizeof usual) == 0) {
        costs.request /= exchange->nodes;
        costs.byte /= exchange->nodes;
    }
    judge(sample, call.span, &call.piece, &call.joined);
    caching_exchange(&call, &costs, &decision->found);
    if (exchange->wish != EXCHANGE_AUTOMATIC)
        decision->found.exchanges = exchange->wish == EXCHANGE_ALWAYS && exchange->nodes > 1;
    /* RATIONALE: the MPI library would undo what comes home from the others' caches between its read and its write. */
    decision->found.sieves = decision->found.sieves && exchange->wish == EXCHANGE_AUTOMATIC && !span->shared;
    decision->unit = decision->found.exchanges ? decision->found.unit : 0;
    decision->homes = load->waiting > 0 && decision->unit != exchange->unit;
    /* RATIONALE: bytes that wait must go home before others get them, and the program waits for that. */
    const double gain = decision->found.seconds[0] - decision->found.seconds[1];
    const double loss = caching_stored(&costs, load->waiting, load->waiting_bytes);
    const bool pays = (gain < 0 ? -gain : gain) > loss || exchange->wish != EXCHANGE_AUTOMATIC;
    if (decision->found.sieves || (decision->homes && (!pays || (decision->unit > 0 && exchange->unit > 0)))) {
        decision->homes = 0;
        decision->unit = exchange->unit;
    }
}

/* Whether all ranks are able. */
static bool agreed(const struct writer *writer, bool able)
{
    int64_t mine = able, all;
    return agree_reduce(&mine, &all, 1, running_mpi()->op_min, writer->comm) && all != 0;
}

/* False, on all ranks: out of memory, or MPI failed. */
static bool hear_decision(struct writer *writer, const struct view_range *range, const struct span *span,
                          struct decision *decision)
{
    struct parcel sample = sample_of(writer, range);
    const struct load load = load_of(writer, range, span);
    struct load sum;
    *decision = (struct decision){0};
    bool heard = agree_reduce(&load, &sum, (int)(sizeof sum / 8), running_mpi()->op_sum, writer->comm);
    const bool merged = heard && agree_merge(&sample, add_sample, writer->rank, writer->ranks, writer->comm);
    if (merged && writer->rank == 0) {
        decide(writer->exchange, writer->ranks, sample.memory, &sum, span, decision);
        decision->made = 1;
    }
    heard = heard && agree_broadcast(decision, sizeof *decision, writer->comm);
    free(sample.memory);
    return heard && decision->made;
}

static bool obey(struct file_handle *handle, const struct decision *decision)
{
    struct writer *writer = writer_of(handle);
    struct exchange *exchange = writer->exchange;
    if (decision->homes && write_back_together(handle) != 0)
        return false;
    exchange->sieves = decision->found.sieves != 0;
    /* RATIONALE: once bytes are on other nodes, whoever needs them finds by their marks that they wait. */
    if (!exchange->sieves)
        exchange->unit = decision->unit > 0 && agreed(writer, cache_marks_all(writer)) ? decision->unit : 0;
    exchange->at_a_time = (int)decision->found.at_a_time;
    pthread_mutex_lock(&writer->written->lock);
    writer->written->exchange = decision->found;
    pthread_mutex_unlock(&writer->written->lock);
    return true;
}

/* Whether no piece begins before the end of the one before it. */
static bool is_in_order(const struct view_range *range)
{
    struct typemap_cursor cursor;
    int64_t end = 0;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int64_t left = range->bytes; left > 0;) {
        const struct extent extent = typemap_cursor_next(&cursor, left);
        if (extent.offset < end)
            return false;
        end = extent.offset + extent.length;
        left -= extent.length;
    }
    return true;
}

/* `asks`: also whether others have the file open. False: MPI failed. */
static bool find_span(const struct writer *writer, const struct view_range *range, bool asks, struct span *span)
{
    struct typemap_cursor cursor;
    int64_t mine[4] = {1, INT64_MAX, 0, 1}, all[4];
    if (range != NULL) {
        typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
        mine[0] = is_in_order(range);
        mine[1] = typemap_cursor_next(&cursor, 1).offset;
        mine[2] = -(view_range_last(range) + 1);
    }
    if (asks && writer->rank == 0)
        mine[3] = recovery_lock_is_only(writer->lock);
    if (!agree_reduce(mine, all, 4, running_mpi()->op_min, writer->comm))
        return false;
    *span = (struct span){all[1], -all[2], all[0] != 0, all[3] == 0};
    return true;
}

/* Notes what the MPI library writes. A call that begins in what earlier ones wrote, and not before it, fills their
 * gaps; one that begins where they did may write the same pieces again. */
static void note_sieved(struct exchange *exchange, const struct span *span)
{
    struct extent *pass = &exchange->pass;
    if (pass->length == 0 || span->low <= pass->offset)
        *pass = (struct extent){span->low, span->high - span->low};
    else if (span->high > pass->offset + pass->length)
        pass->length = span->high - pass->offset;
}

static bool fills_gaps(const struct exchange *exchange, int64_t low)
{
    const struct extent *pass = &exchange->pass;
    return low > pass->offset && low < pass->offset + pass->length;
}

enum pieces exchange_decide(const struct io_call *call, const struct view_range *range)
{
    struct writer *writer = writer_of(call->handle);
    struct exchange *exchange = writer->exchange;
    struct decision decision = {0};
    struct span span;
    bool decides = !exchange->decided || exchange->views != call->handle->views;
    if (!find_span(writer, range, decides || exchange->sieves, &span))
        return PIECES_FAIL;
    if (span.in_order && span.low > span.high)
        return PIECES_STAY;
    const bool filling = exchange->sieves && fills_gaps(exchange, span.low);
    if (filling)
        __atomic_store_n(&fills, true, __ATOMIC_RELAXED);
    if (filling || span.shared) {
        exchange->sieves = false;
        decides = true;
    }
    if (span.in_order && decides) {
        if (!hear_decision(writer, range, &span, &decision) || !obey(call->handle, &decision))
            return PIECES_FAIL;
        exchange->decided = true;
        exchange->views = call->handle->views;
    }
    if (exchange->sieves) {
        note_sieved(exchange, &span);
        return PIECES_SIEVED;
    }
    if (exchange->unit == 0)
        return PIECES_STAY;
    exchange->first = span.low / exchange->unit;
    exchange->high = span.high;
    exchange->after = (span.high - 1) / exchange->unit + 1;
    return span.in_order ? PIECES_GO : PIECES_FAIL;
}

/* ---- exchanging -------------------------------------------------------------------------------------------------- */

/* How far a rank has come in its call. */
struct packing {
    struct typemap_cursor view, memory;
    struct extent next;   /* the rest of the cursor's last extent */
    int64_t left;         /* bytes of the call after that */
    const char *buffer;
    const struct typemap *layout; /* of the buffer; NULL: contiguous */
    int64_t passed;       /* bytes of the call before `next` */
};

static struct packing packing_of(const struct io_call *call, const struct view_range *range,
                                 const struct typemap *memory)
{
    struct packing packing = {.buffer = call->buffer, .layout = memory};
    if (range == NULL)
        return packing;
    packing.left = range->bytes;
    typemap_cursor_init(&packing.view, range->view, range->displacement, range->position);
    if (memory != NULL)
        typemap_cursor_init(&packing.memory, memory, 0, 0);
    return packing;
}

static bool reserve(struct box *box, int64_t bytes)
{
    if (bytes > MOST_BYTES)
        return false;
    if (bytes <= box->room)
        return true;
    char *memory = realloc(box->memory, (size_t)bytes);
    if (memory == NULL)
        return false;
    box->memory = memory;
    box->room = bytes;
    return true;
}

/* Adds a piece that rank `to` gets. */
static bool add_piece(struct exchange *exchange, int to, const struct extent *piece)
{
    struct box *pieces = &exchange->box[OUT_PIECES], *data = &exchange->box[OUT_DATA];
    if (pieces->all + (int64_t)sizeof *piece > pieces->room && !reserve(pieces, 2 * pieces->room + 4096))
        return false;
    if (pieces->bytes[to] == 0) {
        pieces->place[to] = (int)pieces->all;
        data->place[to] = (int)data->all;
    }
    memcpy(pieces->memory + pieces->all, piece, sizeof *piece);
    pieces->bytes[to] += (int)sizeof *piece;
    pieces->all += (int64_t)sizeof *piece;
    data->bytes[to] += (int)piece->length;
    data->all += piece->length;
    return data->all <= MOST_BYTES;
}

/* The bytes of the packing's last pieces. NULL: out of memory. */
static const char *pack(struct packing *packing, struct box *data)
{
    if (packing->layout == NULL)
        return packing->buffer + packing->passed;
    if (!reserve(data, data->all))
        return NULL;
    for (int64_t done = 0; done < data->all;) {
        const struct extent part = typemap_cursor_next(&packing->memory, data->all - done);
        memcpy(data->memory + done, packing->buffer + part.offset, (size_t)part.length);
        done += part.length;
    }
    return data->memory;
}

/* The pieces up to unit `after`. *data: their bytes. False: out of memory. */
static bool gather(struct exchange *exchange, struct packing *packing, int64_t after, const char **data)
{
    const int64_t unit = exchange->unit, end = after * unit;
    struct box *out = &exchange->box[OUT_DATA];
    for (int i = OUT_PIECES; i <= OUT_DATA; i++) {
        memset(exchange->box[i].bytes, 0, (size_t)exchange->ranks * sizeof *exchange->box[i].bytes);
        exchange->box[i].all = 0;
    }
    while (packing->next.length > 0 || packing->left > 0) {
        if (packing->next.length == 0) {
            packing->next = typemap_cursor_next(&packing->view, packing->left);
            packing->left -= packing->next.length;
        }
        const int64_t offset = packing->next.offset, number = offset / unit, rest = (number + 1) * unit - offset;
        const struct extent piece = {offset, packing->next.length < rest ? packing->next.length : rest};
        if (offset >= end)
            break;
        if (!add_piece(exchange, rank_of(exchange, number), &piece))
            return false;
        packing->next.offset += piece.length;
        packing->next.length -= piece.length;
    }
    *data = pack(packing, out);
    packing->passed += out->all;
    return *data != NULL || out->all == 0;
}

static bool all_to_all(const struct writer *writer, const void *out, const struct box *from, const struct box *to,
                       mpi_handle *request)
{
    const struct mpi *mpi = running_mpi();
    return mpi->Ialltoallv(out, from->bytes, from->place, mpi->byte, to->memory, to->bytes, to->place, mpi->byte,
                           writer->comm, request) == 0;
}

/* How much comes from each rank. False: more than there is memory. */
static bool expect(struct exchange *exchange)
{
    const int *counts = exchange->counts + 2 * exchange->ranks;
    for (int i = IN_PIECES; i <= IN_DATA; i++) {
        struct box *box = &exchange->box[i];
        box->all = 0;
        for (int rank = 0; rank < exchange->ranks; rank++) {
            box->bytes[rank] = counts[2 * rank + i - IN_PIECES];
            box->place[rank] = (int)box->all;
            box->all += box->bytes[rank];
            if (box->all > MOST_BYTES)
                return false;
        }
        if (!reserve(box, box->all))
            return false;
    }
    return true;
}

/* Sends the pieces that were gathered, and gets those of this rank's unit. False, on all ranks: not possible. */
static bool swap(const struct writer *writer, const char *data, bool able)
{
    const struct mpi *mpi = running_mpi();
    struct exchange *exchange = writer->exchange;
    const int ranks = exchange->ranks;
    int *counts = exchange->counts;
    mpi_handle request = 0, other = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < 2; i++)
            counts[2 * rank + i] = able ? exchange->box[OUT_PIECES + i].bytes[rank] : 0;
    if (mpi->Ialltoall(counts, 2 * (int)sizeof *counts, mpi->byte, counts + 2 * ranks, 2 * (int)sizeof *counts,
                       mpi->byte, writer->comm, &request) != 0
        || mpi->Wait(&request, mpi->status_ignore) != 0)
        return false;
    if (!agreed(writer, expect(exchange) && able))
        return false;
    struct box *box = exchange->box;
    return all_to_all(writer, box[OUT_PIECES].memory, &box[OUT_PIECES], &box[IN_PIECES], &request)
        && all_to_all(writer, data, &box[OUT_DATA], &box[IN_DATA], &other)
        && mpi->Wait(&request, mpi->status_ignore) == 0 && mpi->Wait(&other, mpi->status_ignore) == 0;
}

/* A piece that came, and where in IN_DATA it is. */
struct arrived {
    int64_t offset, length, place;
};

static int by_offset(const void *one, const void *other)
{
    const struct arrived *a = one, *b = other;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Writes pieces that are in order to the cache. 0 or an errno. */
static int store(struct writer *writer, const struct arrived *pieces, size_t count, uint64_t *requests)
{
    struct extent *view = malloc(count * sizeof *view), *memory = malloc(count * sizeof *memory);
    struct view_range range = {0};
    struct typemap *file = NULL, *buffer = NULL;
    for (size_t i = 0; view != NULL && memory != NULL && i < count; i++) {
        view[i] = (struct extent){pieces[i].offset, pieces[i].length};
        memory[i] = (struct extent){pieces[i].place, pieces[i].length};
        range.bytes += pieces[i].length;
    }
    if (view != NULL && memory != NULL && (file = typemap_extents(view, (int64_t)count)) != NULL)
        buffer = typemap_extents(memory, (int64_t)count);
    range.view = file;
    const int error = buffer == NULL ? ENOMEM
        : cache_write(writer, &range, writer->exchange->box[IN_DATA].memory, buffer, requests);
    typemap_release(file);
    typemap_release(buffer);
    free(view);
    free(memory);
    return error;
}

/* Stores them all, those of higher ranks last where they overlap. */
static int store_all(struct writer *writer, struct arrived *pieces, size_t count, uint64_t *requests)
{
    const struct box *from = &writer->exchange->box[IN_PIECES];
    size_t first = 0;
    int error = 0;
    struct arrived *sorted = malloc(count * sizeof *sorted);
    if (sorted == NULL)
        return ENOMEM;
    memcpy(sorted, pieces, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_offset);
    bool apart = true;
    for (size_t i = 1; apart && i < count; i++)
        apart = sorted[i].offset >= sorted[i - 1].offset + sorted[i - 1].length;
    if (apart)
        error = store(writer, sorted, count, requests);
    for (int rank = 0; !apart && error == 0 && rank < writer->ranks; rank++) {
        const size_t some = (size_t)from->bytes[rank] / sizeof(struct extent);
        if (some > 0)
            error = store(writer, pieces + first, some, requests);
        first += some;
    }
    free(sorted);
    return error;
}

/* Writes what came to the cache. 0 or an errno. */
static int deliver(const struct io_call *call, uint64_t *requests)
{
    struct writer *writer = writer_of(call->handle);
    const struct box *from = &writer->exchange->box[IN_PIECES];
    const size_t count = (size_t)from->all / sizeof(struct extent);
    struct arrived *pieces = malloc((count + 1) * sizeof *pieces);
    int64_t place = 0, low = INT64_MAX, high = 0;
    if (pieces == NULL)
        return ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct extent piece;
        memcpy(&piece, from->memory + i * sizeof piece, sizeof piece);
        pieces[i] = (struct arrived){piece.offset, piece.length, place};
        place += piece.length;
        low = piece.offset < low ? piece.offset : low;
        high = piece.offset + piece.length > high ? piece.offset + piece.length : high;
    }
    int error = 0;
    if (count > 0) {
        replicas_mark(call->handle, low, high);
        pthread_mutex_lock(&writer->mutex);
        error = writer_make_room(call->handle);
        if (error == 0)
            error = cache_fits(writer, place) == 0 ? ENOSPC : store_all(writer, pieces, count, requests);
        pthread_mutex_unlock(&writer->mutex);
    }
    free(pieces);
    return error;
}

/* Bytes of the units that come to this rank, at most. */
static int64_t share_of(const struct exchange *exchange)
{
    const int64_t units = exchange->after - exchange->first, ranks = exchange->ranks;
    const int64_t before = (exchange->turn - exchange->first % ranks + ranks) % ranks;
    return (units / ranks + (units % ranks > before)) * exchange->unit;
}

/* The last byte of the call, if this rank writes it; otherwise NO_BYTE. */
static int64_t last_byte(const struct exchange *exchange, const struct io_call *call, const struct view_range *range,
                         const struct typemap *memory)
{
    struct typemap_cursor cursor;
    if (range == NULL || view_range_last(range) + 1 != exchange->high)
        return NO_BYTE;
    int64_t place = range->bytes - 1;
    if (memory != NULL) {
        typemap_cursor_init(&cursor, memory, 0, place);
        place = typemap_cursor_next(&cursor, 1).offset;
    }
    return ((const unsigned char *)call->buffer)[place];
}

/* Ends the call, if `done`, on all ranks. All know then which is the last byte of the file. */
static bool end_together(struct writer *writer, bool done, int64_t last)
{
    struct exchange *exchange = writer->exchange;
    const int64_t mine[2] = {done, last};
    int64_t all[2];
    if (!agree_reduce(mine, all, 2, running_mpi()->op_min, writer->comm) || all[0] == 0)
        return false;
    pthread_mutex_lock(&writer->mutex);
    if (exchange->high >= exchange->end) {
        exchange->end = exchange->high;
        exchange->last = (char)all[1];
    }
    pthread_mutex_unlock(&writer->mutex);
    return true;
}

const char *exchange_write(const struct io_call *call, const struct view_range *range, const struct typemap *memory,
                           uint64_t *requests)
{
    struct writer *writer = writer_of(call->handle);
    struct exchange *exchange = writer->exchange;
    struct packing packing = packing_of(call, range, memory);
    const char *data = NULL;
    bool possible = true;
    int error = 0;
    pthread_mutex_lock(&writer->mutex);
    bool able = cache_fits(writer, share_of(exchange)) > 0;
    pthread_mutex_unlock(&writer->mutex);
    __atomic_store_n(&exchange->waits, true, __ATOMIC_RELEASE);
    for (int64_t unit = exchange->first; possible && unit < exchange->after; unit += exchange->at_a_time) {
        able = gather(exchange, &packing, unit + exchange->at_a_time, &data) && able;
        possible = swap(writer, data, able);
        if (possible && error == 0)
            error = deliver(call, requests);
    }
    if (error != 0 && error != ENOSPC && error != ENOMEM)
        writer_stop(writer, "the cache could not be written");
    const bool done = end_together(writer, possible && error == 0, last_byte(exchange, call, range, memory));
    return done ? NULL : "no room in the cache of some node for exchanged pieces";
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

bool exchange_stays(const struct writer *writer)
{
    const struct exchange *exchange = writer->exchange;
    return exchange == NULL || (exchange->decided && !exchange->sieves && exchange->unit == 0);
}

bool exchange_waits(const struct writer *writer)
{
    return writer->exchange != NULL && __atomic_load_n(&writer->exchange->waits, __ATOMIC_ACQUIRE);
}

int64_t exchange_end(const struct writer *writer, char *last)
{
    const struct exchange *exchange = writer->exchange;
    if (exchange == NULL)
        return 0;
    *last = exchange->last;
    return exchange->end;
}

void exchange_called(const struct writer *writer)
{
    struct exchange *exchange = writer->exchange;
    if (exchange != NULL && exchange->calls++ == 0)
        exchange->began = clock_ns();
}

void exchange_passes(const struct writer *writer)
{
    if (writer->exchange != NULL)
        writer->exchange->since = clock_ns();
}

/* RATIONALE: the program does not compute while it waits for the MPI library. */
void exchange_passed(const struct writer *writer)
{
    if (writer->exchange != NULL)
        writer->exchange->began += clock_ns() - writer->exchange->since;
}

void exchange_awaited(const struct writer *writer)
{
    struct exchange *exchange = writer->exchange;
    if (exchange == NULL || exchange->calls == 0)
        return;
    __atomic_store_n(&computed_ns, (clock_ns() - exchange->began) / exchange->calls, __ATOMIC_RELAXED);
    exchange->calls = 0;
}

void exchange_home(const struct writer *writer)
{
    struct exchange *exchange = writer->exchange;
    if (exchange == NULL)
        return;
    /* Until the next decision pieces stay: nonblocking calls may come first. */
    exchange->decided = false;
    __atomic_store_n(&exchange->waits, false, __ATOMIC_RELEASE);
    exchange->unit = exchange->end = 0;
}
