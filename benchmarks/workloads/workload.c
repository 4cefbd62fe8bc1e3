#include "workload.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORD = sizeof(uint64_t), LONGEST = 4096 };

/* Named like IOR's directives. A buffer has as many pieces as fit, at least one. */
static const char *test_file;
static long long write_file, collective, use_file_view, deadline, signature, num_tasks, synced, buffer_size = 1 << 20;
/* Checkpoints: so many files, and before each close a computation, as E10 has it (Fig. 3): milliseconds in which the
 * rank leaves its processor to others, and millions of steps in which it does not. */
static long long file_count = 1, pause_ms, work;

static const struct option shared[] = {
    {"writeFile", &write_file, 1},
    {"collective", &collective, 1},
    {"useFileView", &use_file_view, 1},
    {"fsync", &synced, 1},
    {"deadlineForStonewalling", &deadline, 0},
    {"setTimeStampSignature", &signature, 0},
    {"numTasks", &num_tasks, 0},
    {"bufferSize", &buffer_size, 0},
    {"files", &file_count, 0},
    {"pause", &pause_ms, 0},
    {"work", &work, 0},
    {NULL, NULL, 0},
};

void workload_require(int truth, const char *what)
{
    if (truth)
        return;
    fprintf(stderr, "%s\n", what);
    exit(2);
}

static const struct option *option_named(const struct option *options, const char *name)
{
    while (options->name != NULL && strcmp(options->name, name) != 0)
        options++;
    return options->name == NULL ? NULL : options;
}

static long long number(const char *word)
{
    char *end;
    const long long value = strtoll(word, &end, 10);
    const int shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
    workload_require(end != word && end[shift > 0] == '\0', "an option wants a number, which may end in k, m or g");
    return value << shift;
}

static void read_options(int argc, char **argv, const struct option *own)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        const struct option *found = option_named(own, name);
        if (found == NULL)
            found = option_named(shared, name);
        workload_require(found != NULL || strcmp(name, "testFile") == 0, "an option is unknown");
        workload_require((found != NULL && found->flag) || i + 1 < argc, "an option wants a value");
        if (found == NULL)
            test_file = argv[++i];
        else
            *found->value = found->flag ? 1 : number(argv[++i]);
    }
    workload_require(test_file != NULL, "--testFile is missing");
}

/* The word at a place of the file. */
static uint64_t word_at(MPI_Offset place, uint64_t sign)
{
    return ((uint64_t)place / WORD + 1) * 0x9E3779B97F4A7C15u ^ sign * 0xC2B2AE3D27D4EB4Fu;
}

static long long length_of(const struct access *access, long long piece)
{
    return access->bytes != NULL ? access->bytes(piece) : access->length;
}

static void fill(uint64_t *words, const struct access *access, long long piece)
{
    const MPI_Offset start = access->offset(piece);
    for (long long i = 0; i < length_of(access, piece) / WORD; i++)
        words[i] = word_at(start + i * WORD, (uint64_t)signature);
}

static int64_t wrong_words(const uint64_t *words, const struct access *access, long long piece)
{
    const MPI_Offset start = access->offset(piece);
    int64_t wrong = 0;
    for (long long i = 0; i < length_of(access, piece) / WORD; i++)
        wrong += words[i] != word_at(start + i * WORD, (uint64_t)signature);
    return wrong;
}

struct tally {
    double aside, inside; /* seconds that were not spent on I/O; seconds in the calls that move bytes */
    int64_t bytes, calls, wrong;
};

/* MOVING: processor time of the process's other threads during the computation. */
enum phase { OPEN, ACCESS, COMPUTE, CLOSE, MOVING, PHASES };

/* Whether to stop; all ranks of collective calls agree on it. */
static int late(double begin)
{
    int is_late = deadline > 0 && MPI_Wtime() - begin > (double)deadline;
    if (deadline > 0 && collective)
        MPI_Allreduce(MPI_IN_PLACE, &is_late, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return is_late;
}

static int transfer(MPI_File file, MPI_Offset offset, void *buffer, int bytes, MPI_Status *status)
{
    if (write_file)
        return (collective ? MPI_File_write_at_all : MPI_File_write_at)(file, offset, buffer, bytes, MPI_BYTE, status);
    return (collective ? MPI_File_read_at_all : MPI_File_read_at)(file, offset, buffer, bytes, MPI_BYTE, status);
}

static void access_all(MPI_File file, const struct access *access, char *buffer, double begin, struct tally *tally)
{
    const long long fitting = buffer_size / access->length, most = use_file_view && fitting > 0 ? fitting : 1;
    for (long long piece = 0; piece < access->pieces && !late(begin); piece += most) {
        const long long pieces = access->pieces - piece < most ? access->pieces - piece : most;
        const MPI_Offset offset = use_file_view ? piece * access->length : access->offset(piece);
        const int bytes = (int)(pieces * length_of(access, piece));
        double since = MPI_Wtime();
        MPI_Status status;
        int moved = 0;
        for (long long i = 0; write_file && i < pieces; i++)
            fill((uint64_t *)(buffer + i * access->length), access, piece + i);
        const double filled = MPI_Wtime();
        tally->aside += filled - since;
        if (transfer(file, offset, buffer, bytes, &status) == MPI_SUCCESS)
            MPI_Get_count(&status, MPI_BYTE, &moved);
        since = MPI_Wtime();
        tally->inside += since - filled;
        tally->wrong += (bytes - moved) / WORD;
        for (long long i = 0; !write_file && i < pieces; i++)
            tally->wrong += wrong_words((uint64_t *)(buffer + i * access->length), access, piece + i);
        tally->aside += MPI_Wtime() - since;
        tally->bytes += bytes;
        tally->calls++;
    }
}

static double compute_next_step(void)
{
    static volatile uint64_t result;
    const double begin = MPI_Wtime();
    const struct timespec pause = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    uint64_t state = result;
    for (long long i = 0; i < work * 1000000; i++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    result = state;
    return MPI_Wtime() - begin;
}

/* Processor time of the process's other threads, seconds. */
static double other_threads(void)
{
    struct timespec all, own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (double)(all.tv_sec - own.tv_sec) + (double)(all.tv_nsec - own.tv_nsec) / 1e9;
}

/* KiB that the process has had in memory at most. */
static int64_t most_memory(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[LONGEST];
    long long found = 0;
    while (status != NULL && fgets(line, sizeof line, status) != NULL && sscanf(line, "VmHWM: %lld", &found) != 1)
        ;
    if (status != NULL)
        fclose(status);
    return found;
}

/* Accesses one file. `seconds`: of each phase, without what is not I/O. */
static void run_file(const char *path, const struct access *access, char *buffer, struct tally *tally,
                     double seconds[PHASES])
{
    MPI_File file;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    const int mode = write_file ? MPI_MODE_RDWR : MPI_MODE_RDONLY;
    workload_require(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS,
                     "cannot open --testFile");
    const double opened = MPI_Wtime(), aside = tally->aside;
    if (use_file_view)
        MPI_File_set_view(file, access->displacement, MPI_BYTE, access->view, "native", MPI_INFO_NULL);
    access_all(file, access, buffer, begin, tally);
    /* As with IOR's -g. RATIONALE: otherwise the first rank writes while others still fill their
     * buffers, and the scheduler makes requests of random sizes of that. */
    if (write_file)
        MPI_Barrier(MPI_COMM_WORLD);
    tally->wrong += write_file && synced && MPI_File_sync(file) != MPI_SUCCESS;
    seconds[OPEN] = opened - begin;
    seconds[ACCESS] = MPI_Wtime() - opened - (tally->aside - aside);
    const double moved = other_threads();
    seconds[COMPUTE] = compute_next_step();
    seconds[MOVING] = other_threads() - moved;
    tally->aside += seconds[COMPUTE];
    const double computed = MPI_Wtime();
    tally->wrong += MPI_File_close(&file) != MPI_SUCCESS;
    seconds[CLOSE] = MPI_Wtime() - computed;
}

static void print(const struct tally *tally, const double seconds[2], double elapsed, int64_t memory,
                  const double *phases)
{
    printf("{\"seconds\": %.6f, \"inside\": %.6f, \"elapsed\": %.6f, \"memory\": %lld, \"bytes\": %lld, "
           "\"calls\": %lld, \"wrong\": %lld, \"files\": [",
           seconds[0], seconds[1], elapsed, (long long)memory, (long long)tally->bytes, (long long)tally->calls,
           (long long)tally->wrong);
    for (long long i = 0; i < file_count; i++, phases += PHASES)
        printf("%s[%.6f, %.6f, %.6f, %.6f, %.6f]", i > 0 ? ", " : "", phases[OPEN], phases[ACCESS], phases[COMPUTE],
               phases[CLOSE], phases[MOVING]);
    printf("]}\n");
}

static int run(const struct access *access)
{
    const size_t bytes = (size_t)(buffer_size > access->length ? buffer_size : access->length);
    char *buffer = malloc(bytes), path[LONGEST];
    double *phases = calloc((size_t)file_count * PHASES, sizeof *phases);
    struct tally tally = {0};
    workload_require(buffer != NULL && phases != NULL, "no memory for the buffer");
    memset(buffer, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (long long i = 0; i < file_count; i++) {
        snprintf(path, sizeof path, file_count > 1 ? "%s.%lld" : "%s", test_file, i);
        run_file(path, access, buffer, &tally, phases + i * PHASES);
    }
    const double elapsed = MPI_Wtime() - begin;
    double seconds[2] = {elapsed - tally.aside, tally.inside};
    MPI_Allreduce(MPI_IN_PLACE, seconds, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, phases, (int)file_count * PHASES, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &tally.bytes, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    int64_t memory = most_memory();
    MPI_Allreduce(MPI_IN_PLACE, &memory, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        print(&tally, seconds, elapsed, memory, phases);
    free(buffer);
    free(phases);
    return tally.wrong != 0;
}

int workload_main(int argc, char **argv, const struct program *program)
{
    int rank, ranks;
    struct access access = {.view = MPI_DATATYPE_NULL};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    read_options(argc, argv, program->options);
    use_file_view |= program->views_only;
    if (num_tasks == 0)
        num_tasks = ranks;
    workload_require(ranks <= num_tasks, "--numTasks must be at least the number of ranks");
    program->divide(rank, num_tasks, &access);
    workload_require(access.length > 0 && access.length % WORD == 0, "pieces must be multiples of 8 bytes");
    workload_require(!use_file_view || access.view != MPI_DATATYPE_NULL, "this order of pieces has no file view");
    if (access.view != MPI_DATATYPE_NULL)
        MPI_Type_commit(&access.view);
    const int code = run(&access);
    if (access.view != MPI_DATATYPE_NULL)
        MPI_Type_free(&access.view);
    MPI_Finalize();
    return code;
}

static struct {
    long long row, plane, array; /* pitches, bytes */
    long long rows, planes;
    MPI_Offset corner;
} block;

static MPI_Offset offset_in_block(long long piece)
{
    const long long row = piece % block.rows, plane = piece / block.rows % block.planes,
                    step = piece / block.rows / block.planes;
    return block.corner + row * block.row + plane * block.plane + step * block.array;
}

MPI_Datatype workload_turns(long long block_bytes, long long tasks)
{
    MPI_Datatype contiguous, turns;
    MPI_Type_contiguous((int)block_bytes, MPI_BYTE, &contiguous);
    MPI_Type_create_resized(contiguous, 0, tasks * block_bytes, &turns);
    MPI_Type_free(&contiguous);
    return turns;
}

void workload_block(const long long sizes[3], const long long parts[3], const long long starts[3], long long element,
                    long long steps, MPI_Offset displacement, struct access *access)
{
    const int array[4] = {(int)sizes[0], (int)sizes[1], (int)sizes[2], (int)element};
    const int part[4] = {(int)parts[0], (int)parts[1], (int)parts[2], (int)element};
    const int corner[4] = {(int)starts[0], (int)starts[1], (int)starts[2], 0};
    block.row = sizes[2] * element;
    block.plane = sizes[1] * block.row;
    block.array = sizes[0] * block.plane;
    block.rows = parts[1];
    block.planes = parts[0];
    block.corner = displacement + starts[0] * block.plane + starts[1] * block.row + starts[2] * element;
    MPI_Type_create_subarray(4, array, part, corner, MPI_ORDER_C, MPI_BYTE, &access->view);
    access->displacement = displacement;
    access->pieces = steps * parts[0] * parts[1];
    access->length = parts[2] * element;
    access->offset = offset_in_block;
}

void workload_cube(long long task, long long tasks, long long size, long long parts[3], long long starts[3])
{
    int grid[3] = {0, 0, 0};
    MPI_Dims_create((int)tasks, 3, grid);
    for (int i = 2; i >= 0; i--) {
        workload_require(size % grid[i] == 0, "the tasks do not divide the array");
        parts[i] = size / grid[i];
        starts[i] = task % grid[i] * parts[i];
        task /= grid[i];
    }
}
