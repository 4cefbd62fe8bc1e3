/* What the ranks of a node have written to its device comes home together, in rounds, as in pdla's
 * library (docs/adr/0028-caches-come-home-by-nodes.md).
 *
 * A round takes the moves that the node has, sorts their bytes by the original, and cuts them into
 * chunks. Workers take chunk after chunk: the mover of each rank, and the rank itself while it waits.
 * A worker reads what the node has of a chunk, in the order of the devices, and writes each maximal
 * run of it. The moves are done when the last chunk is. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

static const double GATHER = 0.05; /* seconds; replicator/stub/mover.c: what is written meanwhile goes home together */

/* Bytes of an original, and where the node has them. */
struct piece {
    int64_t file, start, length;
    int64_t object, server, place;
};

struct home {
    int64_t node;
    struct access *first, *last;    /* moves that wait for the next round */
    struct access *moves;           /* of this round */
    struct piece *piece;            /* of this round, in the order of the originals; NULL: there is no round */
    int64_t pieces, taken, workers; /* `taken`: the workers have taken the first so many pieces */
    bool is_due, hurried;           /* a round begins at `due`; the ranks work for this one, too */
    double due;
};

/* ---- a round ---- */

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* The bytes of a move, cut at the ends of chunks: what it reads in a stage, it writes in the next one. Returns how
 * many pieces they are. */
static int64_t pieces_of(const struct access *move, int64_t chunk, struct piece *piece)
{
    const struct sim_transfer *from = move->transfer, *end = from + move->transfers, *to;
    int64_t count = 0, read = 0, written = 0;
    while (from < end) {
        for (to = from; to->op == SIM_READ;)
            to++;
        for (const struct sim_transfer *writes = to; from < writes;) {
            int64_t start = to->start + written, place = from->start + read;
            int64_t length = least(least(to->stop - start, from->stop - place), chunk - start % chunk);
            if (piece)
                piece[count] = (struct piece){to->object, start, length, from->object, from->server, place};
            count++;
            read += length;
            written += length;
            if (from->start + read == from->stop) {
                from++;
                read = 0;
            }
            if (to->start + written == to->stop) {
                to++;
                written = 0;
            }
        }
        from = to;
    }
    return count;
}

static int by_original(const void *a, const void *b)
{
    const struct piece *one = a, *other = b;
    if (one->file != other->file)
        return one->file < other->file ? -1 : 1;
    return (one->start > other->start) - (one->start < other->start);
}

static int by_place(const void *a, const void *b)
{
    const struct piece *one = a, *other = b;
    if (one->server != other->server)
        return one->server < other->server ? -1 : 1;
    return (one->place > other->place) - (one->place < other->place);
}

static void collect(struct engine *engine, struct home *home)
{
    int64_t chunk = engine->in->home_chunk;
    home->pieces = home->taken = 0;
    for (const struct access *move = home->moves; move; move = move->next)
        home->pieces += pieces_of(move, chunk, NULL);
    home->piece = hold(engine, (size_t)home->pieces * sizeof *home->piece);
    int64_t count = 0;
    for (const struct access *move = home->moves; move; move = move->next)
        count += pieces_of(move, chunk, home->piece + count);
    qsort(home->piece, (size_t)home->pieces, sizeof *home->piece, by_original);
}

static void add_row(struct access *access, int64_t object, int64_t server, enum sim_op op, int64_t start, int64_t stop)
{
    access->transfer[access->transfers] =
        (struct sim_transfer){access->transfers, object, server, op, start, stop, op == SIM_READ ? -1 : access->node};
    access->transfers++;
}

/* Reads of the pieces in the order of the device. */
static void add_reads(struct access *access, struct piece *piece, int64_t count)
{
    qsort(piece, (size_t)count, sizeof *piece, by_place);
    for (int64_t i = 0, next; i < count; i = next) {
        int64_t stop = piece[i].place + piece[i].length;
        for (next = i + 1; next < count && piece[next].server == piece[i].server && piece[next].place == stop; next++)
            stop += piece[next].length;
        add_row(access, piece[i].object, piece[i].server, SIM_READ, piece[i].place, stop);
    }
}

/* Writes of the runs of the original that the pieces, in its order, cover: at most `most` bytes in one. */
static void add_writes(struct access *access, const struct piece *piece, int64_t count, int64_t most)
{
    for (int64_t i = 0, next; i < count; i = next) {
        int64_t start = piece[i].start, stop = start + piece[i].length;
        for (next = i + 1; next < count && piece[next].start <= stop; next++)
            stop = piece[next].start + piece[next].length > stop ? piece[next].start + piece[next].length : stop;
        for (; start < stop; start += most)
            add_row(access, piece[i].file, -1, SIM_WRITE, start, least(start + most, stop));
    }
}

/* A worker takes the next chunk. False: there is none. */
static bool take_chunk(struct engine *engine, struct home *home)
{
    const struct sim_input *in = engine->in;
    const struct piece *first = home->piece + home->taken;
    int64_t chunk = in->home_chunk, most = in->home_request > 0 ? in->home_request : chunk, count = 0, bytes = 0;
    if (home->taken == home->pieces)
        return false;
    for (; home->taken < home->pieces && first[count].file == first->file
           && first[count].start / chunk == first->start / chunk; home->taken++)
        bytes += first[count++].length;
    struct access *access = access_new(engine, home->node * in->ranks_per_node, first->file, true, 0, 0);
    access->home = home;
    access->background = true;
    access->uncached = 2 * bytes; /* out of a page cache, and to the original */
    access->transfer = hold(engine, (size_t)(2 * count + bytes / most + 1) * sizeof *access->transfer);
    if (!in->home_cached) {
        struct piece *placed = hold(engine, (size_t)count * sizeof *placed);
        memcpy(placed, first, (size_t)count * sizeof *placed);
        add_reads(access, placed, count);
        release_memory(engine, placed);
    }
    add_writes(access, first, count, most);
    access_continue(engine, access);
    return true;
}

/* What waits is the next round's. RATIONALE: in the library, a rank that waits begins a round itself. */
static void next_round(struct engine *engine, struct home *home)
{
    double due = engine->now + (engine->waiting.first ? 0 : GATHER);
    if (home->piece || !home->first || (home->is_due && home->due <= due))
        return;
    home->is_due = true;
    home->due = due;
    later(engine, due, 1, HOMEWARD, home);
}

static void round_end(struct engine *engine, struct home *home)
{
    struct access *moves = home->moves;
    release_memory(engine, home->piece);
    home->piece = NULL;
    for (struct access *next; moves; moves = next) {
        next = moves->next;
        access_end(engine, moves);
    }
    next_round(engine, home);
}

static void worker_ends(struct engine *engine, struct home *home)
{
    if (--home->workers == 0)
        round_end(engine, home);
}

/* One more than there are, so that the round cannot end while workers are still to be started. */
static void start_workers(struct engine *engine, struct home *home)
{
    home->workers++;
    for (int64_t i = 0; i < engine->in->ranks_per_node && home->taken < home->pieces; i++) {
        home->workers++;
        take_chunk(engine, home);
    }
    worker_ends(engine, home);
}

static void round_begin(struct engine *engine, struct home *home)
{
    home->moves = home->first;
    home->first = home->last = NULL;
    collect(engine, home);
    home->hurried = engine->waiting.first;
    home->workers++;
    for (int i = 0; i <= home->hurried; i++)
        start_workers(engine, home);
    worker_ends(engine, home);
}

void homeward_taken(struct engine *engine, struct home *home)
{
    if (!take_chunk(engine, home))
        worker_ends(engine, home);
}

void homeward_due(struct engine *engine, struct home *home)
{
    if (!home->is_due || home->due != engine->now)
        return; /* it became earlier */
    home->is_due = false;
    round_begin(engine, home);
}

void homeward_hurry(struct engine *engine)
{
    for (int64_t node = 0; engine->in->exchange != SIM_TWO_PHASE && node < engine->in->nodes; node++) {
        struct home *home = engine->node[node].home;
        if (home && home->piece && !home->hurried) {
            home->hurried = true;
            start_workers(engine, home);
        } else if (home) {
            next_round(engine, home);
        }
    }
}

/* ---- what waits for a round ---- */

static struct home *home_of(struct engine *engine, int64_t node)
{
    struct home **home = &engine->node[node].home;
    if (!*home) {
        *home = hold(engine, sizeof **home);
        (*home)->node = node;
    }
    return *home;
}

void homeward_add(struct engine *engine, struct access *move)
{
    struct home *home = home_of(engine, move->transfer[move->transfers - 1].node);
    *(home->first ? &home->last->next : &home->first) = move;
    home->last = move;
    next_round(engine, home);
}
