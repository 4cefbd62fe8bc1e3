/* Random requests on real bytes: whatever a policy wishes, a read gets what was written last.
 *
 *     decisions POLICY SEED REQUESTS [LIMIT]
 *
 * Moves read when they start and write when they end, in a random order. LIMIT is the memory of the
 * core in bytes; it prints what the core did, or that it had no memory, and fails if it did wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caching.h"

#ifndef SCALE
#define SCALE 1 /* of files and spaces: with more there are more copies, and trees are deeper */
#endif

enum { KIB = 1024, SERVERS = 4, NODES = 4, FILES = 2, SIZE = SCALE * 40 * KIB, SPACES = 2 * SERVERS };
enum { OTHER_SIZE = SCALE * 13 * KIB, MEMORY = SCALE * 3 * KIB, DEVICE = SCALE * 4 * KIB, POOL = SCALE * 16 * KIB };
enum { MOVES = 4096, TOKENS = 1 << 22 };

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #holds);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct move {
    int64_t token, transfers;
    struct caching_transfer *transfer;
    unsigned char *bytes[FILES]; /* what it has read */
};

static uint64_t state;
static struct caching *core;
static struct caching_space space[SPACES];
static struct caching_setup setup = {.home_servers = SERVERS, .home_strip = KIB, .space = space};
static unsigned char wanted[FILES][SERVERS + 1][SIZE], home[FILES][SERVERS + 1][SIZE];
static unsigned char cached[2][SERVERS + 1][POOL];
static struct move under_way[MOVES], held_back[MOVES]; /* the second ones follow the present request */
static bool is_done[TOKENS];
static int64_t moves, held_moves, requests, served, ended, refused;
static double now;

static int64_t chance(int64_t below)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (int64_t)((state >> 33) % (uint64_t)below);
}

static int64_t part_of(const struct caching_transfer *one)
{
    return setup.by_part ? one->server : -1;
}

/* The bytes that a transfer reads or writes, in their place. */
static unsigned char *held(const struct caching_transfer *one)
{
    if (one->level < 0)
        return home[one->file][part_of(one) + 1] + one->start;
    CHECK(one->stop <= POOL);
    return cached[one->level][one->server + 1] + one->start;
}

static size_t length(const struct caching_transfer *one)
{
    CHECK(one->start < one->stop && one->first + one->stop - one->start <= SIZE);
    return (size_t)(one->stop - one->start);
}

static void begin(struct move made)
{
    struct move *move = &under_way[moves++];
    CHECK(moves < MOVES);
    *move = made;
    bool reads = false;
    for (int64_t i = 0; i < made.transfers; i++) {
        const struct caching_transfer *one = &move->transfer[i];
        if (!move->bytes[one->file])
            move->bytes[one->file] = malloc(SIZE);
        if (one->op == CACHING_READ)
            memcpy(move->bytes[one->file] + one->first, held(one), length(one));
        reads = reads || one->op == CACHING_READ;
    }
    for (int64_t i = 0; !reads && i < made.transfers; i++) {
        const struct caching_transfer *one = &move->transfer[i];
        memcpy(move->bytes[one->file] + one->first, wanted[one->file][part_of(one) + 1] + one->first, length(one));
    }
}

/* Begins the moves of a step, but for those that follow a request that is not yet served. */
static void begin_moves(const struct caching_step *step)
{
    for (int64_t i = 0; i < step->moves; i++) {
        const struct caching_move *one = &step->move[i];
        struct move move = {.token = one->token, .transfers = one->transfers};
        move.transfer = malloc((size_t)one->transfers * sizeof *move.transfer + 1);
        for (int64_t j = 0; j < one->transfers; j++)
            move.transfer[j] = step->moved[one->first + j];
        CHECK(one->after <= requests && held_moves < MOVES);
        if (one->after > served)
            held_back[held_moves++] = move;
        else
            begin(move);
    }
}

static void begin_held(void)
{
    served = requests;
    for (int64_t i = 0; i < held_moves; i++)
        begin(held_back[i]);
    held_moves = 0;
}

static void forget(struct move *move)
{
    for (int file = 0; file < FILES; file++)
        free(move->bytes[file]);
    free(move->transfer);
}

static void stop_without_memory(void)
{
    const struct caching_extent *extent;
    int64_t extents;
    CHECK(caching_tick(core, now, &(struct caching_step){0}) == CACHING_NO_MEMORY);
    caching_dirty(core, &extent, &extents);
    while (moves > 0)
        forget(&under_way[--moves]);
    while (held_moves > 0)
        forget(&held_back[--held_moves]);
    caching_free(core);
    puts("no memory");
    exit(0);
}

static void check(int result)
{
    if (result == CACHING_NO_MEMORY)
        stop_without_memory();
    CHECK(result == CACHING_DONE);
    for (int64_t i = 0; i < setup.spaces; i++)
        CHECK(caching_room(core, i) >= 0 && caching_peak(core, i) <= space[i].capacity);
}

static void finish(int64_t number)
{
    struct move move = under_way[number];
    struct caching_step step;
    under_way[number] = under_way[--moves];
    for (int64_t i = 0; i < move.transfers; i++)
        if (move.transfer[i].op == CACHING_WRITE)
            memcpy(held(&move.transfer[i]), move.bytes[move.transfer[i].file] + move.transfer[i].first,
                   length(&move.transfer[i]));
    forget(&move);
    CHECK(move.token < TOKENS);
    is_done[move.token] = true;
    ended++;
    check(caching_finished(core, move.token, now, &step));
    begin_moves(&step);
}

/* A step is good until the core is called again: this is what must be kept of it. */
struct kept {
    struct caching_transfer *transfer;
    int64_t *wait;
};

static void *copied(const void *from, size_t size)
{
    return size > 0 ? memcpy(malloc(size), from, size) : NULL;
}

static void do_step(struct caching_step step, const struct caching_request *request)
{
    struct kept kept = {copied(step.foreground, (size_t)step.transfers * sizeof *step.foreground),
                        copied(step.wait, (size_t)step.waits * sizeof *step.wait)};
    refused += step.refusals;
    for (int64_t i = 0; i < step.refusals; i++) {
        char text[200];
        CHECK(caching_why(core, &step.refused[i], text, sizeof text) > 0 && strlen(text) > 0);
        CHECK(caching_reason(&step.refused[i].wish, text, sizeof text) > 0);
    }
    begin_moves(&step);
    for (int64_t i = 0; i < step.waits; i++)
        while (!is_done[kept.wait[i]]) {
            CHECK(moves > 0);
            finish(chance(moves));
        }
    int64_t done = 0;
    for (int64_t i = 0; request && i < step.transfers; i++) {
        const struct caching_transfer *one = &kept.transfer[i];
        unsigned char *last = wanted[one->file][part_of(one) + 1] + one->first;
        CHECK(one->op == request->op && one->file == request->file);
        done += (int64_t)length(one);
        if (one->op == CACHING_READ) {
            CHECK(memcmp(held(one), last, length(one)) == 0);
            continue;
        }
        for (size_t j = 0; j < length(one); j++)
            last[j] = (unsigned char)chance(256);
        memcpy(held(one), last, length(one));
    }
    CHECK(!request || done == request->stop - request->start);
    begin_held();
    free(kept.transfer);
    free(kept.wait);
}

/* ---- a policy that wishes anything ---- */

static int whim(int64_t file, int64_t start, int64_t stop)
{
    struct caching_wish wish = {
        .kind = chance(3), .file = file, .part = setup.by_part ? chance(SERVERS) : -1, .start = start + chance(2) * 100,
        .stop = stop - chance(2) * 100, .space = chance(setup.spaces + 2) - 2, .level = chance(setup.levels),
        .fetch = chance(2), .wait = chance(3) == 0, .node = chance(NODES + 1) - 1, .reason = "a whim"};
    if (setup.by_part && wish.kind == CACHING_PLACE && chance(4) > 0)
        wish.space = wish.part + SERVERS * chance(2);
    return caching_wish(core, &wish);
}

static int request_whims(void *own, struct caching *of, const struct caching_request *request)
{
    (void)own;
    (void)of;
    for (int64_t i = chance(4); i > 0; i--)
        if (whim(request->file, request->start / (setup.by_part ? SERVERS : 1), request->stop))
            return 1;
    return 0;
}

static int other_whims(void)
{
    const struct caching_extent *extent;
    struct caching_extent coldest;
    struct caching_cursor cursor = {0};
    int64_t extents, file = chance(FILES), start = chance(SIZE), of = chance(setup.spaces);
    if (caching_extents(core, file, setup.by_part ? chance(SERVERS) : -1, start, start + KIB, &extent, &extents))
        return 1;
    CHECK(extents > 0 && extent[0].start == start && extent[extents - 1].stop == start + KIB);
    while (caching_coldest(core, of, &cursor, &coldest))
        CHECK(!coldest.dirty);
    return whim(file, start, start + 3 * KIB);
}

static int tick_whims(void *own, struct caching *of)
{
    (void)own;
    (void)of;
    return other_whims() || other_whims();
}

static int close_whims(void *own, struct caching *of, int64_t file)
{
    (void)own;
    (void)of;
    (void)file;
    return other_whims();
}

/* ---- the policies ---- */

static const int64_t DISTANCE[] = {0, 4096};
static const double DISK[] = {0, 0.01}, SSD[] = {0, 1e-4};

static void add_spaces(const char *name, int64_t level, int64_t count, int64_t capacity, bool reads, bool writes)
{
    for (int64_t i = 0; i < count; i++)
        space[setup.spaces++] = (struct caching_space){
            .name = name, .level = level, .server = i, .on_nodes = !reads, .capacity = capacity, .chunk = 700,
            .reads = reads, .writes = writes};
    setup.levels = level + 1;
}

static void add_pool(void)
{
    add_spaces("ssd", setup.levels, 1, POOL, true, true);
    space[setup.spaces - 1].server = -1;
}

static int set_up(const char *policy)
{
    const struct caching_curve of_disk = {2, DISTANCE, DISK}, of_ssd = {2, DISTANCE, SSD};
    const struct caching_device disk = {{of_disk, of_disk}, {1e-8, 1e-8}}, ssd = {{of_ssd, of_ssd}, {2e-9, 2e-9}};
    setup.by_part = strcmp(policy, "ibridge") == 0 || strcmp(policy, "liu") == 0 || strcmp(policy, "parts") == 0;
    if (strcmp(policy, "liu") == 0 || strcmp(policy, "parts") == 0)
        add_spaces("memory", 0, SERVERS, MEMORY, true, false);
    if (setup.by_part)
        add_spaces("ssd", setup.levels, SERVERS, DEVICE, true, true);
    if (strcmp(policy, "e10") == 0 || strcmp(policy, "whims") == 0)
        add_spaces("scratch", 0, NODES, DEVICE, false, true);
    if (strcmp(policy, "s4d") == 0 || strcmp(policy, "whims") == 0)
        add_pool();
    core = caching_new(&setup);
    if (!core) {
        puts("no memory");
        exit(0);
    }
    if (strcmp(policy, "s4d") == 0)
        return caching_use_s4d(core, &(struct caching_s4d){disk, ssd, SERVERS});
    if (strcmp(policy, "ibridge") == 0)
        return caching_use_ibridge(core, &(struct caching_ibridge){disk, ssd, {KIB, KIB}, DEVICE});
    if (strcmp(policy, "liu") == 0)
        return caching_use_liu(core, &(struct caching_liu){KIB, 2 * KIB, 4, MEMORY, 0.5});
    if (strcmp(policy, "e10") == 0)
        return caching_use_e10(core, &(struct caching_e10){chance(2), chance(2)});
    return caching_use(core, &(struct caching_policy){NULL, request_whims, tick_whims, close_whims});
}

/* ---- a run ---- */

static void request(void)
{
    static const int64_t LENGTHS[] = {1, 100, KIB, 1500, 5 * KIB};
    static int64_t at[NODES][FILES];
    int64_t rank = chance(NODES), file = chance(FILES), start = chance(2) ? chance(SIZE) : at[rank][file];
    int64_t stop = start + LENGTHS[chance(5)];
    at[rank][file] = stop < SIZE ? stop : 0;
    struct caching_request made = {now, rank, rank, file, chance(2), start, stop < SIZE ? stop : SIZE, chance(2)};
    struct caching_step step;
    requests++;
    check(caching_serve(core, &made, &step));
    do_step(step, &made);
}

static void act(void)
{
    int64_t what = chance(20);
    struct caching_step step;
    now += 0.1;
    if (what > 2) {
        request();
        return;
    }
    check(what > 0 ? caching_tick(core, now, &step) : caching_close(core, now, chance(FILES), &step));
    do_step(step, NULL);
}

/* The originals lack what the core says is dirty, and nothing else. */
static void check_end(void)
{
    const struct caching_extent *extent;
    int64_t extents;
    check(caching_dirty(core, &extent, &extents));
    for (int64_t i = 0; i < extents; i++)
        memcpy(home[extent[i].file][extent[i].part + 1] + extent[i].start,
               wanted[extent[i].file][extent[i].part + 1] + extent[i].start,
               (size_t)(extent[i].stop - extent[i].start));
    CHECK(memcmp(home, wanted, sizeof home) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    state = strtoull(argv[2], NULL, 10);
    setup.limit = argc > 4 ? strtoll(argv[4], NULL, 10) : (int64_t)1 << 40;
    check(set_up(argv[1]));
    for (int64_t i = 0; i < FILES; i++)
        check(caching_file(core, i, i == 0 ? SIZE : OTHER_SIZE));
    for (int64_t left = strtoll(argv[3], NULL, 10); left > 0; left--) {
        act();
        while (moves > 0 && chance(3) == 0)
            finish(chance(moves));
    }
    struct caching_step step;
    check(caching_close(core, now, -1, &step));
    do_step(step, NULL);
    while (moves > 0)
        finish(chance(moves));
    check_end();
    printf("%lld moves, %lld refusals\n", (long long)ended, (long long)refused);
    caching_free(core);
    return 0;
}
