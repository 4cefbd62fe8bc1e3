/* Each rank makes 20,000 writes and 20,000 reads of 4 KiB, strided over the ranks. Prints the
 * seconds of the slowest rank, and the seconds of CPU of all ranks together. Usage: strided FILE */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

enum { CALLS = 20000, BLOCK = 4096 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static char block[BLOCK];
    int rank, ranks;
    double took, used, slowest, together;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Barrier(MPI_COMM_WORLD);
    took = seconds(CLOCK_MONOTONIC);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < CALLS; i++)
        MPI_File_write_at(file, ((MPI_Offset)i * ranks + rank) * BLOCK, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < CALLS; i++)
        MPI_File_read_at(file, ((MPI_Offset)i * ranks + rank) * BLOCK, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    took = seconds(CLOCK_MONOTONIC) - took;
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&used, &together, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.6f %.6f\n", slowest, together);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
