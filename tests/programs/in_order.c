/* Reads BYTES from the beginning of FILE in calls of EACH and prints them: in_order FILE BYTES EACH */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int bytes = atoi(argv[2]), each = atoi(argv[3]);
    char *buffer = malloc((size_t)bytes);
    MPI_File file;
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    for (int offset = 0; offset < bytes; offset += each)
        MPI_File_read_at(file, offset, buffer + offset, each, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    fwrite(buffer, 1, (size_t)bytes, stdout);
    MPI_Finalize();
    return 0;
}
