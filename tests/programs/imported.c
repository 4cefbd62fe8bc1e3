/* What other tools trace and pdla imports: two ranks use one file through MPI-IO, and each its own with POSIX calls.
   With a second word there is no file view with holes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static char bytes[1 << 16];

static void check(int right)
{
    if (!right)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void mpi_io(const char *path, int rank, int ranks, int holes)
{
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype blocks;
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    for (int turn = 0; turn < 8; turn++)
        MPI_File_write_at(file, (turn * ranks + rank) * 4096L, bytes, 4096, MPI_BYTE, &status);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < 4; turn++)
        MPI_File_read_at_all(file, (turn * ranks + rank) * 4096L, bytes, 512, MPI_DOUBLE, &status);
    MPI_File_seek(file, 100, MPI_SEEK_SET);
    MPI_File_read(file, bytes, 50, MPI_INT, &status);
    MPI_File_read(file, bytes, 25, MPI_INT, &status);
    MPI_Type_vector(4, 64, 128, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    MPI_File_set_view(file, rank * 64, MPI_BYTE, holes ? blocks : MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_all(file, bytes, 256, MPI_BYTE, &status);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_iwrite_at(file, 32768 + rank * 40, bytes, 10, MPI_INT, &request);
    MPI_Wait(&request, &status);
    MPI_File_close(&file);
    MPI_Type_free(&blocks);
}

static void posix(const char *path)
{
    struct iovec two[] = {{bytes, 10}, {bytes, 20}};
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    check(write(file, bytes, 1000) == 1000);
    check(write(file, bytes, 500) == 500);
    check(lseek(file, 100, SEEK_SET) == 100);
    check(read(file, bytes, 50) == 50);
    check(lseek(file, 50, SEEK_CUR) == 200);
    check(read(file, bytes, 25) == 25);
    check(lseek(file, -10, SEEK_END) == 1490);
    check(read(file, bytes, 100) == 10);
    check(pwrite(file, bytes, 30, 2000) == 30);
    check(preadv(file, two, 2, 300) == 30);
    check(writev(file, two, 2) == 30);
    check(close(file) == 0);
    file = open(path, O_WRONLY | O_APPEND);
    check(write(file, bytes, 7) == 7);
    check(close(file) == 0);
}

static void streams(const char *path)
{
    FILE *file = fopen(path, "r+");
    check(file && fread(bytes, 8, 10, file) == 10);
    check(fseek(file, 40, SEEK_SET) == 0);
    check(fwrite(bytes, 2, 30, file) == 30);
    check(fclose(file) == 0);
}

int main(int count, char **words)
{
    int rank, ranks;
    char own[4096];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    mpi_io(words[1], rank, ranks, count < 3);
    snprintf(own, sizeof own, "%s.%d", words[1], rank);
    posix(own);
    streams(own);
    MPI_Finalize();
    return 0;
}
