/* deletions DIRECTORY: rank 0 writes files and deletes them, one that was never opened, one that is not there, and a
 * link. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static char path[4096];

static const char *in(const char *directory, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void make(const char *name)
{
    MPI_File file;
    char bytes[64] = "bytes";
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    MPI_File_write(file, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    const char *directory = argv[argc - 1];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        make(in(directory, "scratch"));
        MPI_File_delete(path, MPI_INFO_NULL);
        make(path);
        MPI_File_delete(path, MPI_INFO_NULL);
        MPI_File_delete(in(directory, "old"), MPI_INFO_NULL);
        MPI_File_delete(in(directory, "none"), MPI_INFO_NULL);
        make(in(directory, "kept"));
        MPI_File_delete(in(directory, "link"), MPI_INFO_NULL);
    }
    MPI_Finalize();
    return 0;
}
