/* Reads BYTES from the beginning of FILE in one call and prints them: one_read FILE BYTES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int bytes = atoi(argv[2]);
    char *buffer = malloc((size_t)bytes);
    MPI_File file;
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_read_at(file, 0, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    fwrite(buffer, 1, (size_t)bytes, stdout);
    MPI_Finalize();
    return 0;
}
