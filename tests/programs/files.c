/* Writes a byte into each of the files. Usage: files FILE... */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Offset size;
    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        MPI_File_open(MPI_COMM_SELF, argv[i], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        MPI_File_set_view(file, 8 * i, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        MPI_File_write_at(file, 1, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_get_size(file, &size);
        MPI_File_close(&file);
    }
    MPI_Finalize();
    return 0;
}
