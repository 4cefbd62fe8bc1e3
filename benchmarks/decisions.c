/* What a decision costs: decisions POLICY EXTENTS
 *
 * Writes as many extents that do not adjoin, has them written back (but for e10 and liu, where they stay
 * dirty), and then requests them at random: reads, for e10 writes. Prints the nanoseconds of processor
 * time of a decision, the median and the least of a hundred times 20,000 decisions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "caching.h"

enum { PIECE = 4096, SERVERS = 4, ROUNDS = 100, DECISIONS = 20000 };

static const int64_t ENDLESS = (int64_t)1 << 50;
static const int64_t DISTANCE[] = {0, 1 << 20};
static const double DISK[] = {0, 0.004}, SSD[] = {1e-5, 1e-4};
static struct caching_space space[2 * SERVERS];
static struct caching_setup setup = {.home_servers = SERVERS, .home_strip = 65536, .space = space,
                                     .limit = (int64_t)1 << 40};
static uint64_t state = 1;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void add_space(int64_t level, int64_t server, bool reads, bool writes)
{
    space[setup.spaces++] = (struct caching_space){
        .name = "space", .level = level, .server = server, .on_nodes = !reads, .capacity = ENDLESS, .chunk = 1 << 20,
        .reads = reads, .writes = writes};
    setup.levels = level + 1;
}

#define CURVES(seconds) {{2, DISTANCE, seconds}, {2, DISTANCE, seconds}}
static const struct caching_device disk = {CURVES(DISK), {1e-8, 1e-8}}, ssd = {CURVES(SSD), {1e-9, 1e-9}};

static struct caching *core_of(const char *policy)
{
    bool liu = strcmp(policy, "liu") == 0;
    setup.by_part = liu || strcmp(policy, "ibridge") == 0;
    for (int64_t i = 0; liu && i < SERVERS; i++)
        add_space(0, i, true, false);
    for (int64_t i = 0; setup.by_part && i < SERVERS; i++)
        add_space(liu, i, true, true);
    if (!setup.by_part)
        add_space(0, strcmp(policy, "e10") == 0 ? 0 : -1, strcmp(policy, "e10") != 0, true);
    struct caching *core = caching_new(&setup);
    if (liu)
        caching_use_liu(core, &(struct caching_liu){16384, 49152, 1, ENDLESS, 0.0});
    else if (setup.by_part)
        caching_use_ibridge(core, &(struct caching_ibridge){disk, ssd, {65536, 65536}, ENDLESS});
    else if (strcmp(policy, "e10") == 0)
        caching_use_e10(core, &(struct caching_e10){1, 1});
    else
        caching_use_s4d(core, &(struct caching_s4d){disk, ssd, SERVERS});
    return core;
}

static void request(struct caching *core, int64_t number, enum caching_op op)
{
    struct caching_request made = {0, 0, 0, 0, op, 2 * number * PIECE, (2 * number + 1) * PIECE, 1};
    struct caching_step step;
    if (caching_serve(core, &made, &step) != CACHING_DONE || step.transfers == 0)
        exit(1);
}

/* Ends the moves of a step, and those that follow. */
static void finish(struct caching *core, struct caching_step step)
{
    int64_t count = 0, room = step.moves + 1, *token = malloc((size_t)room * sizeof *token);
    for (;;) {
        if (count + step.moves > room)
            token = realloc(token, (size_t)(room = 2 * (count + step.moves)) * sizeof *token);
        for (int64_t i = 0; i < step.moves; i++)
            token[count++] = step.move[i].token;
        if (count == 0)
            break;
        caching_finished(core, token[--count], 0, &step);
    }
    free(token);
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static int64_t any_of(int64_t extents)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (int64_t)((state >> 24) % (uint64_t)extents);
}

static void print(double took[ROUNDS])
{
    qsort(took, ROUNDS, sizeof *took, by_size);
    printf("%.0f %.0f\n", took[ROUNDS / 2], took[0]);
}

/* S4D-Cache's identifier alone, as the library calls it at each request. */
static int identify(int64_t extents)
{
    struct caching_identifier *identifier =
        caching_identifier_new(&(struct caching_s4d){disk, ssd, SERVERS}, 65536, SERVERS, ENDLESS);
    double took[ROUNDS];
    for (int64_t i = 0; i < extents; i++)
        caching_identify(identifier, &(struct caching_request){.start = 2 * i * PIECE, .stop = (2 * i + 1) * PIECE});
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (int i = 0; i < DECISIONS; i++) {
            const int64_t start = 2 * any_of(extents) * PIECE;
            caching_identify(identifier, &(struct caching_request){.start = start, .stop = start + PIECE});
        }
        took[round] = (seconds() - begin) / DECISIONS * 1e9;
    }
    print(took);
    caching_identifier_free(identifier);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 1;
    int64_t extents = strtoll(argv[2], NULL, 10);
    if (strcmp(argv[1], "identify") == 0)
        return identify(extents);
    struct caching *core = core_of(argv[1]);
    struct caching_step step;
    caching_file(core, 0, 2 * extents * PIECE);
    for (int64_t i = 0; i < extents; i++)
        request(core, i, CACHING_WRITE);
    caching_tick(core, 0, &step);
    finish(core, step);
    double took[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (int i = 0; i < DECISIONS; i++) {
            request(core, any_of(extents), strcmp(argv[1], "e10") == 0 ? CACHING_WRITE : CACHING_READ);
        }
        took[round] = (seconds() - begin) / DECISIONS * 1e9;
    }
    print(took);
    caching_free(core);
    return 0;
}
