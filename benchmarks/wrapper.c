/* Preloaded: a wrapper that does nothing. */
#include <mpi.h>

int MPI_File_read_at(MPI_File file, MPI_Offset offset, void *buffer, int count, MPI_Datatype datatype,
                     MPI_Status *status)
{
    return PMPI_File_read_at(file, offset, buffer, count, datatype, status);
}
