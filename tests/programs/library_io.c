/* What an MPI library makes of a few calls. Usage: library_io MODE FILE
 *
 *   sieved       64 pieces of 8 bytes, 32 apart, of a file of 4096 bytes, written and read by an independent call each
 *   aggregated   4 pieces of 1024 bytes of each rank in turn, written by one collective call, with one aggregator
 *   nonblocking  two writes of 1000 and 3000 bytes under way together, a read of 500, and a nonblocking
 *                collective write
 *   split        a split collective write of 100 bytes a rank */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static MPI_File file;
static int rank, ranks;
static char buffer[4096];

static void set_view(int piece, int distance, int pieces)
{
    MPI_Datatype type;
    MPI_Type_vector(pieces, piece, distance, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, (MPI_Offset)rank * piece, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Type_free(&type);
}

static void sieved(void)
{
    MPI_File_write_at(file, 0, buffer, 4096, MPI_BYTE, MPI_STATUS_IGNORE);
    set_view(8, 32, 64);
    MPI_File_write_at(file, 0, buffer, 512, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 0, buffer, 512, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void aggregated(void)
{
    set_view(1024, 1024 * ranks, 4);
    MPI_File_write_at_all(file, 0, buffer, 4096, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void nonblocking(void)
{
    MPI_Request requests[2], request;
    int done = 0;
    MPI_File_iwrite_at(file, 0, buffer, 1000, MPI_BYTE, &requests[0]);
    MPI_File_iwrite_at(file, 1000, buffer, 3000, MPI_BYTE, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_File_iread_at(file, 100, buffer, 500, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_iwrite_at_all(file, 5000 + 100 * rank, buffer, 100, MPI_BYTE, &request);
    while (!done)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void split(void)
{
    MPI_File_write_at_all_begin(file, 100 * rank, buffer, 100, MPI_BYTE);
    MPI_File_write_at_all_end(file, buffer, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(buffer, 'a' + rank, sizeof buffer);
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "1");
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_ds_write", "enable");
    MPI_Info_set(info, "romio_ds_read", "enable");
    MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    MPI_Info_free(&info);
    if (strcmp(argv[1], "sieved") == 0)
        sieved();
    else if (strcmp(argv[1], "aggregated") == 0)
        aggregated();
    else if (strcmp(argv[1], "nonblocking") == 0)
        nonblocking();
    else if (strcmp(argv[1], "split") == 0)
        split();
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
