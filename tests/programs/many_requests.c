/* Writes the file of tests/programs/rounds.c by many requests at a time, and completes them when memory is used up:
 * many_requests FILE. Each rank prints how many statuses count the right number of bytes. */
#define _GNU_SOURCE
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 64, ROWS = 200, HEADER = 512, EACH = ROWS / 2 };

static uint64_t words[ROWS][WORDS];
static MPI_Request requests[EACH];
static MPI_Status statuses[EACH];
static int right;

static void begin(MPI_File file, int rank, int ranks, int first)
{
    for (int i = 0; i < EACH; i++) {
        const int row = first + i;
        for (int k = 0; k < WORDS; k++)
            words[row][k] = UINT64_C(1) << 32 | (uint64_t)rank << 16 | (uint64_t)row;
        const MPI_Offset place = HEADER + ((MPI_Offset)row * ranks + rank) * (MPI_Offset)sizeof words[row];
        MPI_File_iwrite_at_all(file, place, words[row], sizeof words[row], MPI_BYTE, &requests[i]);
    }
    setenv("PDLA_TEST_FAILING", "memory 1", 1);
}

static void count(int done)
{
    for (int i = 0; i < done; i++) {
        int bytes = -1;
        MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
        right += bytes == (int)sizeof words[0];
    }
}

int main(int argc, char **argv)
{
    int rank, ranks, done, indices[EACH];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    begin(file, rank, ranks, 0);
    MPI_Waitall(EACH, requests, statuses);
    unsetenv("PDLA_TEST_FAILING");
    count(EACH);
    begin(file, rank, ranks, EACH);
    for (int left = EACH; left > 0; left -= done) {
        MPI_Waitsome(EACH, requests, &done, indices, statuses);
        count(done);
    }
    unsetenv("PDLA_TEST_FAILING");
    MPI_File_close(&file);
    printf("%d\n", right);
    MPI_Finalize();
    return 0;
}
