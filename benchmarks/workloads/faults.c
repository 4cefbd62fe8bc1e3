/* A program that does what its command line says, step by step. benchmarks/fault_corpus.py makes programs with one
 * fault, and their twins without it, of such steps.
 *
 *     faults FILE STEP [NAME=VALUE...] STEP [NAME=VALUE...] ...
 *
 * open         a file, FILE.NUMBER with `number`, of each rank with `alone`; names with a "_" are hints of ROMIO
 * read, write  `count` pieces of `size` bytes. Piece i of rank r is at
 *              start + r * own + i % inner * stride + i / inner * outer, in random order with `random`.
 *              `all`: collective calls; `view`: through a file view of all pieces, and a call has so many `pieces`;
 *              `shared`, `ordered`: by the shared file pointer. Ranks from `ranks` on have nothing to do. `next`: a
 *              rank does what belongs to the next one
 * slow         from now on the storage of `rank` takes `times` as long
 * pause        the program computes for `milliseconds`
 * sync         what any rank has written can be read by all others
 * close        the file
 * delete       it, after the close */
#include "slow_storage.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONGEST = 4096 };

/* What the words of a step say; each step begins with zeros. */
static struct {
    long long number, alone;
    long long size, count, start, own, inner, stride, outer, random, all, view, pieces, shared, ordered, ranks, next;
    long long rank, times, milliseconds;
} says;

static const struct {
    const char *name;
    long long *value;
} names[] = {
    {"number", &says.number},   {"alone", &says.alone},     {"size", &says.size},     {"count", &says.count},
    {"start", &says.start},     {"own", &says.own},         {"inner", &says.inner},   {"stride", &says.stride},
    {"outer", &says.outer},     {"random", &says.random},   {"all", &says.all},       {"view", &says.view},
    {"pieces", &says.pieces},   {"shared", &says.shared},   {"ordered", &says.ordered}, {"ranks", &says.ranks},
    {"next", &says.next},       {"rank", &says.rank},       {"times", &says.times},
    {"milliseconds", &says.milliseconds},
};

static const char *first_file;
static char path[LONGEST];
static MPI_File file;
static MPI_Info hints;
static int rank, ranks;

static void require(int truth, const char *what, const char *word)
{
    if (truth)
        return;
    fprintf(stderr, "faults: %s: %s\n", word, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Takes a word NAME=VALUE. */
static void listen(char *word)
{
    char *value = strchr(word, '=');
    *value++ = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, word) == 0) {
            *names[i].value = strtoll(value, NULL, 10);
            return;
        }
    require(strchr(word, '_') != NULL, "no such name", word);
    MPI_Info_set(hints, word, value);
}

static void open_file(void)
{
    int length = snprintf(path, sizeof path, "%s", first_file);
    if (says.number > 0)
        length += snprintf(path + length, sizeof path - (size_t)length, ".%lld", says.number);
    if (says.alone)
        snprintf(path + length, sizeof path - (size_t)length, ".%d", rank);
    require(MPI_File_open(says.alone ? MPI_COMM_SELF : MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, hints,
                          &file) == MPI_SUCCESS,
            "cannot be opened", path);
}

static MPI_Offset place(long long piece, int owner)
{
    return says.start + owner * says.own + piece % says.inner * says.stride + piece / says.inner * says.outer;
}

static void set_view(int owner)
{
    MPI_Datatype group, view;
    MPI_Type_create_hvector((int)says.inner, (int)says.size, says.stride, MPI_BYTE, &group);
    MPI_Type_create_resized(group, 0, says.outer, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(file, place(0, owner), MPI_BYTE, view, "native", MPI_INFO_NULL);
    MPI_Type_free(&group);
    MPI_Type_free(&view);
}

static void call(int writes, MPI_Offset offset, void *buffer, int bytes)
{
    MPI_Status status;
    int result;
    if (says.shared)
        result = writes ? MPI_File_write_shared(file, buffer, bytes, MPI_BYTE, &status)
                        : MPI_File_read_shared(file, buffer, bytes, MPI_BYTE, &status);
    else if (says.ordered)
        result = writes ? MPI_File_write_ordered(file, buffer, bytes, MPI_BYTE, &status)
                        : MPI_File_read_ordered(file, buffer, bytes, MPI_BYTE, &status);
    else if (says.all)
        result = writes ? MPI_File_write_at_all(file, offset, buffer, bytes, MPI_BYTE, &status)
                        : MPI_File_read_at_all(file, offset, buffer, bytes, MPI_BYTE, &status);
    else
        result = writes ? MPI_File_write_at(file, offset, buffer, bytes, MPI_BYTE, &status)
                        : MPI_File_read_at(file, offset, buffer, bytes, MPI_BYTE, &status);
    require(result == MPI_SUCCESS, "a call failed", path);
}

/* The numbers below `count`, in order or, the same in every run, not. */
static long long *order_of(long long count)
{
    long long *order = malloc((size_t)count * sizeof *order);
    uint64_t state = (uint64_t)rank + 1;
    for (long long i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const long long other = says.random ? (long long)((state >> 33) % (uint64_t)(i + 1)) : i;
        order[i] = order[other];
        order[other] = i;
    }
    return order;
}

static void transfer(int writes)
{
    says.inner = says.inner > 0 ? says.inner : 1;
    says.outer = says.outer > 0 ? says.outer : says.size;
    says.pieces = says.pieces > 0 ? says.pieces : 1;
    if (says.ranks > 0 && rank >= says.ranks)
        return;
    const int owner = says.next ? (rank + 1) % ranks : rank;
    long long *order = order_of(says.count);
    char *buffer = calloc((size_t)says.pieces, (size_t)says.size);
    if (says.view)
        set_view(owner);
    for (long long i = 0; i < says.count; i += says.pieces) {
        const MPI_Offset offset = says.view ? order[i] * says.size : place(order[i], owner);
        call(writes, offset, buffer, (int)(says.pieces * says.size));
    }
    if (says.view)
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    free(buffer);
    free(order);
}

static void sync_all(void)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
}

static void pause_all(void)
{
    const struct timespec time = {.tv_sec = says.milliseconds / 1000, .tv_nsec = says.milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void delete_file(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
}

static void take(const char *step)
{
    if (strcmp(step, "open") == 0)
        open_file();
    else if (strcmp(step, "read") == 0 || strcmp(step, "write") == 0)
        transfer(strcmp(step, "write") == 0);
    else if (strcmp(step, "slow") == 0)
        slow_storage(first_file, rank == says.rank ? says.times : 1);
    else if (strcmp(step, "pause") == 0)
        pause_all();
    else if (strcmp(step, "sync") == 0)
        sync_all();
    else if (strcmp(step, "close") == 0)
        MPI_File_close(&file);
    else if (strcmp(step, "delete") == 0)
        delete_file();
    else
        require(0, "no such step", step);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    require(argc > 2, "FILE STEP...", "wants");
    first_file = argv[1];
    slow_storage(first_file, 1);
    for (int i = 2; i < argc;) {
        const char *step = argv[i++];
        memset(&says, 0, sizeof says);
        MPI_Info_create(&hints);
        while (i < argc && strchr(argv[i], '=') != NULL)
            listen(argv[i++]);
        take(step);
        MPI_Info_free(&hints);
    }
    MPI_Finalize();
    return 0;
}
