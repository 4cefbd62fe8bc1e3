/* Files of sub-communicators, several open at once, one opened twice, one for each rank: shapes
 * DIRECTORY, for 4 ranks. Every byte of every file is written once. Its value is 1 plus the rank of
 * its writer in MPI_COMM_WORLD. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const char *directory;
static char bytes[400];
static int rank;

static MPI_File open_file(MPI_Comm comm, const char *name, int number)
{
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s%d", directory, name, number);
    MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    return file;
}

static void write_at(MPI_File file, MPI_Offset offset, int count)
{
    MPI_File_write_at(file, offset, bytes, count, MPI_BYTE, MPI_STATUS_IGNORE);
}

/* Both halves of the ranks at the same time, each interleaved in a file of its own. */
static void halves(void)
{
    MPI_Comm half;
    MPI_Datatype piece, filetype;
    int place;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &half);
    MPI_Comm_rank(half, &place);
    MPI_File file = open_file(half, "half", rank / 2);
    MPI_Type_contiguous(8, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, 16, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, 8 * place, MPI_BYTE, filetype, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, bytes, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&filetype);
    MPI_Type_free(&piece);
    MPI_Comm_free(&half);
}

static void reversed(void)
{
    MPI_Comm comm;
    int place;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    MPI_Comm_rank(comm, &place);
    MPI_File file = open_file(comm, "reversed", 0);
    MPI_File_write_at_all(file, 50 * place, bytes, 50, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Comm_free(&comm);
}

static void at_once(void)
{
    MPI_File files[3];
    for (int i = 0; i < 3; i++)
        files[i] = open_file(MPI_COMM_WORLD, "once", i);
    for (int piece = 0; piece < 5; piece++)
        for (int i = 0; i < 3; i++)
            write_at(files[i], (4 * piece + rank) * (10 + i), 10 + i);
    for (int i = 0; i < 3; i++)
        MPI_File_close(&files[i]);
}

static void twice(void)
{
    MPI_File low = open_file(MPI_COMM_WORLD, "twice", 0), high = open_file(MPI_COMM_WORLD, "twice", 0);
    MPI_File_set_view(high, 400, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    for (int piece = 0; piece < 4; piece++) {
        write_at(low, 100 * rank + 25 * piece, 25);
        write_at(high, 100 * piece + 25 * rank, 25);
    }
    MPI_File_close(&low);
    MPI_File_close(&high);
}

static void own(void)
{
    MPI_File file = open_file(MPI_COMM_SELF, "own", rank);
    MPI_File_write(file, bytes, 30 + rank, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    directory = argv[1];
    memset(bytes, rank + 1, sizeof bytes);
    halves();
    reversed();
    at_once();
    twice();
    own();
    MPI_Finalize();
    return 0;
}
