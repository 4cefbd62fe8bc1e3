/* Gives the version text of another MPI library, which MPI_VERSION_TEXT has. Linked before the real library. */
#include <stdio.h>
#include <stdlib.h>

int PMPI_Get_library_version(char *version, int *length)
{
    *length = sprintf(version, "%s", getenv("MPI_VERSION_TEXT"));
    return 0;
}

int MPI_Get_library_version(char *version, int *length)
{
    return PMPI_Get_library_version(version, length);
}
