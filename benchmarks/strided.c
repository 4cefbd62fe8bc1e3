/* Seconds that the slowest rank takes for 20,000 writes and 20,000 reads of 4 KiB, strided over the ranks. Usage: strided FILE */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    enum { CALLS = 20000, BLOCK = 4096 };
    static char block[BLOCK];
    int rank, ranks;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), took, slowest;
    for (int i = 0; i < CALLS; i++)
        MPI_File_write_at(file, ((MPI_Offset)i * ranks + rank) * BLOCK, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < CALLS; i++)
        MPI_File_read_at(file, ((MPI_Offset)i * ranks + rank) * BLOCK, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    took = MPI_Wtime() - start;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.6f\n", slowest);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
