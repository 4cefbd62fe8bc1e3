/* An MPI of no known family: handles are small integers, and each call of the program reaches it as the program made
 * it. One process; MPI_File_open and MPI_File_read_at as far as other_mpi.c calls them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALL(name, parameters)                                                   \
    int MPI_##name parameters __attribute__((alias("PMPI_" #name)));             \
    int PMPI_##name parameters

CALL(Init, (int *argc, char ***argv))
{
    return argc == NULL && argv == NULL ? 0 : 1;
}

CALL(Finalize, (void))
{
    return 0;
}

CALL(Get_library_version, (char *text, int *length))
{
    *length = sprintf(text, "Example MPI 7.1\nbuilt for a test");
    return 0;
}

CALL(Comm_rank, (int comm, int *rank))
{
    *rank = 0;
    return comm == 1 ? 0 : 5;
}

CALL(File_open, (int comm, const char *name, int amode, int info, int *file))
{
    *file = comm == 1 && amode == 77 && info == 0 ? open(name, O_RDONLY) : -1;
    return *file < 0 ? 1 : 0;
}

CALL(File_read_at, (int file, long long offset, void *buffer, int count, int type, int *status))
{
    *status = type == 9 ? (int)pread(file, buffer, (size_t)count, offset) : -1;
    return *status < 0 ? 1 : 0;
}

CALL(File_close, (int *file))
{
    return close(*file);
}
