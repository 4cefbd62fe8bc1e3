/* The ranks write in turn, so that the order of their calls is known. Usage: turns FILE */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_File file;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    for (int turn = 0; turn < 2 * ranks; turn++) {
        if (turn % ranks == rank)
            MPI_File_write_at(file, turn, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
