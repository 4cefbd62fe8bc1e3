/* What one process sees of a file: stub FILE opens COUNT, stub FILE reads COUNT, or stub FILE strided PIECE STRIDE. Prints the
 * seconds of an open with its close, of a read of 8 bytes, or of all pieces. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUND = 1000 };

static double seconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static MPI_File open_file(const char *path)
{
    MPI_File file;
    if (MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return file;
}

static double opens(const char *path, int count)
{
    double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < count; i++) {
        MPI_File file = open_file(path);
        MPI_File_close(&file);
    }
    return (seconds(CLOCK_MONOTONIC) - start) / count;
}

/* The least CPU time of rounds, which others that use the processor disturb least. */
static double reads(const char *path, int count)
{
    char bytes[8];
    double least = 1;
    MPI_File file = open_file(path);
    for (int done = 0; done < count; done += ROUND) {
        double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < ROUND; i++)
            MPI_File_read_at(file, 0, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        double took = (seconds(CLOCK_THREAD_CPUTIME_ID) - start) / ROUND;
        least = took < least ? took : least;
    }
    MPI_File_close(&file);
    return least;
}

static double strided(const char *path, int piece, MPI_Offset stride)
{
    MPI_Offset size;
    char *buffer = malloc((size_t)piece);
    MPI_File file = open_file(path);
    MPI_File_get_size(file, &size);
    double start = seconds(CLOCK_MONOTONIC);
    for (MPI_Offset offset = 0; offset < size; offset += stride)
        MPI_File_read_at(file, offset, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE);
    double took = seconds(CLOCK_MONOTONIC) - start;
    MPI_File_close(&file);
    free(buffer);
    return took;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int number = atoi(argv[3]);
    if (strcmp(argv[2], "opens") == 0)
        printf("%.12f\n", opens(argv[1], number));
    else if (strcmp(argv[2], "reads") == 0)
        printf("%.12f\n", reads(argv[1], number));
    else
        printf("%.12f\n", strided(argv[1], number, atoll(argv[4])));
    MPI_Finalize();
    return 0;
}
