/* Reads what another program has left under a lease: consumer FILE OUT STEP... OUT.<rank> gets a line for
 * each step: the error class, a number, and the hash of what was read. At "pause" all ranks wait: rank 0
 * makes OUT.paused, and goes on when it is gone. */
#include <mpi.h>

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 96, START = 480, MOST = 1 << 16 };

static MPI_File file;
static FILE *out;
static const char *name;
static int rank, ranks;
static char buffer[MOST];

static void note(const char *what, int rc, long long number)
{
    uint64_t hash = 14695981039346656037u;
    int class = MPI_SUCCESS;
    for (int i = 0; i < MOST; i++)
        hash = (hash ^ (unsigned char)buffer[i]) * 1099511628211u;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    fprintf(out, "%s class=%d %lld %016llx\n", what, class, rc == MPI_SUCCESS ? number : -1,
            rc == MPI_SUCCESS ? (unsigned long long)hash : 0);
    fflush(out);
    memset(buffer, 0xA5, sizeof buffer);
}

static void note_read(const char *what, int rc, MPI_Status *status)
{
    int count = -1;
    if (rc == MPI_SUCCESS)
        MPI_Get_count(status, MPI_BYTE, &count);
    note(what, rc, count);
}

static void size(void)
{
    MPI_Offset bytes = -1;
    int rc = MPI_File_get_size(file, &bytes);
    note("size", rc, bytes);
    MPI_File_seek(file, -10, MPI_SEEK_END);
    rc = MPI_File_get_position(file, &bytes);
    note("position", rc, bytes);
}

/* Each rank by itself. */
static void part(void)
{
    MPI_Status status;
    note_read("part", MPI_File_read_at(file, START + 700 * rank, buffer, 3000, MPI_BYTE, &status), &status);
}

/* The first bytes, which are in no replica, each rank by itself. */
static void header(void)
{
    MPI_Status status;
    note_read("header", MPI_File_read_at(file, 0, buffer, 300, MPI_BYTE, &status), &status);
}

/* A column, by all ranks together. */
static void together(void)
{
    MPI_Status status;
    MPI_Datatype column;
    MPI_Type_vector(60, PIECE, 4 * PIECE, MPI_BYTE, &column);
    MPI_Type_commit(&column);
    MPI_File_set_view(file, START + rank % 4 * PIECE, MPI_BYTE, column, "native", MPI_INFO_NULL);
    note_read("together", MPI_File_read_at_all(file, 0, buffer, 60 * PIECE, MPI_BYTE, &status), &status);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_Type_free(&column);
}

/* Past it. */
static void end(void)
{
    MPI_Status status;
    MPI_Offset bytes = 0;
    MPI_File_get_size(file, &bytes);
    note_read("end", MPI_File_read_at(file, bytes - 1000, buffer, 3000, MPI_BYTE, &status), &status);
}

/* By the pointer that all ranks share. */
static void shared(void)
{
    MPI_Status status;
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    note_read("ordered", MPI_File_read_ordered(file, buffer, 2000, MPI_BYTE, &status), &status);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void external(void)
{
    MPI_Status status;
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL);
    note_read("external", MPI_File_read_at(file, START, buffer, 2000, MPI_BYTE, &status), &status);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
}

static void pause_here(void)
{
    char mark[4096];
    snprintf(mark, sizeof mark, "%s.paused", name);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        fclose(fopen(mark, "w"));
    while (rank == 0 && access(mark, F_OK) == 0)
        usleep(2000);
    MPI_Barrier(MPI_COMM_WORLD);
}

enum { THREADS = 4, TURNS = 200 };
static char each[THREADS][TURNS * PIECE];

static void *read_often(void *argument)
{
    char *own = argument;
    for (int i = 0; i < TURNS; i++)
        MPI_File_read_at(file, START + 50 * i, own + i * PIECE, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
    return NULL;
}

/* Four threads read, while the main thread needs the bytes in the file. */
static void threads(void)
{
    pthread_t others[THREADS];
    int same = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&others[i], NULL, read_often, each[i]);
    end();
    for (int i = 0; i < THREADS; i++) {
        pthread_join(others[i], NULL);
        same += memcmp(each[0], each[i], sizeof each[i]) == 0;
    }
    memcpy(buffer, each[0], sizeof each[0]);
    note("threads", MPI_SUCCESS, same);
}

static void killed(void) { kill(getpid(), SIGKILL); }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step)(void);
    } steps[] = {{"size", size},         {"part", part},   {"header", header},     {"together", together},
                 {"end", end},           {"shared", shared}, {"external", external}, {"pause", pause_here},
                 {"threads", threads},   {"killed", killed}};
    char own[4096];
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    name = argv[2];
    snprintf(own, sizeof own, "%s.%d", name, rank);
    out = fopen(own, "w");
    memset(buffer, 0xA5, sizeof buffer);
    const int opened = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    note("open", opened, 0);
    for (int i = 3; opened == MPI_SUCCESS && i < argc; i++)
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            if (strcmp(argv[i], steps[s].name) == 0)
                steps[s].step();
    if (opened == MPI_SUCCESS)
        note("close", MPI_File_close(&file), 0);
    fclose(out);
    MPI_Finalize();
    return 0;
}
