/* What processes see of a file: stub FILE opens COUNT, stub FILE reads COUNT BYTES, or stub FILE
 * pieces PIECE STRIDE REQUEST independent
 *
 * collective. Prints the seconds of an open with its close; of a read at 0 (of CPU); or of all
 * pieces. The pieces, one at every STRIDE, go to the ranks in turn. The ranks read them through a
 * view, REQUEST bytes at a time. */
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

static MPI_File open_file(MPI_Comm comm, const char *path)
{
    MPI_File file;
    if (MPI_File_open(comm, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return file;
}

static double opens(const char *path, int count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < count; i++) {
        MPI_File file = open_file(MPI_COMM_WORLD, path);
        MPI_File_close(&file);
    }
    return (seconds(CLOCK_MONOTONIC) - start) / count;
}

/* The least CPU time of rounds: other programs on the processor disturb it least. */
static double reads(const char *path, int count, int bytes)
{
    char *buffer = malloc((size_t)bytes);
    double least = 1;
    MPI_File file = open_file(MPI_COMM_SELF, path);
    for (int done = 0; done < count; done += ROUND) {
        double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < ROUND; i++)
            MPI_File_read_at(file, 0, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        double took = (seconds(CLOCK_THREAD_CPUTIME_ID) - start) / ROUND;
        least = took < least ? took : least;
    }
    MPI_File_close(&file);
    free(buffer);
    return least;
}

static double pieces(const char *path, int piece, MPI_Offset stride, int request, int collective)
{
    int rank, ranks;
    MPI_Offset size;
    MPI_File file;
    MPI_Datatype bytes, mine;
    char *buffer = malloc((size_t)request);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Type_contiguous(piece, MPI_BYTE, &bytes);
    MPI_Type_create_resized(bytes, 0, ranks * stride, &mine);
    MPI_Type_commit(&mine);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_get_size(file, &size);
    MPI_File_set_view(file, rank * stride, MPI_BYTE, mine, "native", MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds(CLOCK_MONOTONIC);
    for (MPI_Offset done = 0; done < size / stride / ranks * piece; done += request)
        (collective ? MPI_File_read_at_all : MPI_File_read_at)(file, done, buffer, request, MPI_BYTE,
                                                               MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = seconds(CLOCK_MONOTONIC) - start;
    MPI_File_close(&file);
    free(buffer);
    return took;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int number = atoi(argv[3]), rank;
    double took;
    if (strcmp(argv[2], "opens") == 0)
        took = opens(argv[1], number);
    else if (strcmp(argv[2], "reads") == 0)
        took = reads(argv[1], number, atoi(argv[4]));
    else
        took = pieces(argv[1], number, atoll(argv[4]), atoi(argv[5]), strcmp(argv[6], "collective") == 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%.12f\n", took);
    MPI_Finalize();
    return 0;
}
