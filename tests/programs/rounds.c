/* Writes a file round by round until it is killed: rounds FILE OUT close
 *
 * sync. In each round every rank writes its column, of words that contain the round, the rank and
 * the row. It writes "begin N" into OUT.<rank> before, and "done N" after the MPI library said that
 * the round is in the file. The calls of a round are of one of five kinds. Rank 0 also writes a
 * header natively, outside of the pattern, which begins at byte HEADER. */
#include <mpi.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WORDS = 64, ROWS = 200 };
#ifndef HEADER
#define HEADER 512
#endif
#ifndef ROUNDS
#define ROUNDS 1000000
#endif

static void say(FILE *out, const char *what, int round)
{
    fprintf(out, "%s %d\n", what, round);
    fflush(out);
}

static void write_words(MPI_File file, int kind, MPI_Offset place, const uint64_t words[WORDS])
{
    const int bytes = WORDS * sizeof *words;
    MPI_Request request;
    switch (kind) {
    case 0:
        MPI_File_write_at_all(file, place, words, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        return;
    case 1:
        MPI_File_write_at(file, place, words, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        return;
    case 2:
        MPI_File_write_at_all_begin(file, place, words, bytes, MPI_BYTE);
        MPI_File_write_at_all_end(file, words, MPI_STATUS_IGNORE);
        return;
    case 3:
        MPI_File_iwrite_at(file, place, words, bytes, MPI_BYTE, &request);
        break;
    default:
        MPI_File_iwrite_at_all(file, place, words, bytes, MPI_BYTE, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* As if the disk were full at byte LIMIT of any file, from the beginning or, with FULL_LATER, once all is written. */
static void limit(int later)
{
#ifdef FULL_LATER
    const int now = later;
#else
    const int now = !later;
#endif
#ifdef LIMIT
    if (!now)
        return;
    MPI_Barrier(MPI_COMM_WORLD);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){LIMIT, LIMIT});
#else
    (void)now;
#endif
}

int main(int argc, char **argv)
{
    int rank, ranks;
    char name[4096];
    uint64_t words[WORDS];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    limit(0);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    FILE *out = fopen(name, "w");
    say(out, "pid", (int)getpid());
    const int closes = argc > 3 && strcmp(argv[3], "close") == 0;
    if (!closes)
        MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    for (int round = 1; round <= ROUNDS; round++) {
        if (closes)
            MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        say(out, "begin", round);
        for (int row = 0; row < ROWS; row++) {
            for (int i = 0; i < WORDS; i++)
                words[i] = (uint64_t)round << 32 | (uint64_t)rank << 16 | (uint64_t)row;
            MPI_Offset place = HEADER + ((MPI_Offset)row * ranks + rank) * (MPI_Offset)sizeof words;
            write_words(file, round % 5, place, words);
        }
        if (rank == 0)
            MPI_File_write_at(file, 0, words, sizeof words, MPI_BYTE, MPI_STATUS_IGNORE);
        limit(1);
        if ((closes ? MPI_File_close(&file) : MPI_File_sync(file)) == MPI_SUCCESS)
            say(out, "done", round);
    }
    if (!closes)
        MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
