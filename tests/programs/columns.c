/* Each rank reads its columns of a matrix of bytes, row by row at its file pointer and all rows at once, and writes
 * them to another file. Usage: columns MATRIX RESULT N */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned sum(const unsigned char *bytes, size_t count)
{
    unsigned found = 1;
    for (size_t i = 0; i < count; i++)
        found = found * 31 + bytes[i];
    return found;
}

static MPI_File view(const char *path, int amode, int rank, int columns, MPI_Datatype rows)
{
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
        fprintf(stderr, "columns: cannot open %s\n", path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_File_set_view(file, (MPI_Offset)rank * columns, MPI_BYTE, rows, "native", MPI_INFO_NULL);
    return file;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Datatype rows;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int n = atoi(argv[3]), columns = n / ranks, all = columns * n;
    unsigned char *piece = malloc(columns), *whole = malloc(all);
    unsigned rows_sum = 0;
    MPI_Type_vector(n, columns, n, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    MPI_File in = view(argv[1], MPI_MODE_RDONLY, rank, columns, rows);
    for (int row = 0; row < n; row++) {
        MPI_File_read(in, piece, columns, MPI_BYTE, MPI_STATUS_IGNORE);
        rows_sum = rows_sum * 31 + sum(piece, columns);
    }
    MPI_Offset place;
    MPI_File_get_position(in, &place);
    /* Back to the begin: MPI_SEEK_SET of the standard ABI is another number in Intel MPI. */
    MPI_File_set_view(in, (MPI_Offset)rank * columns, MPI_BYTE, rows, "native", MPI_INFO_NULL);
    MPI_File_read_all(in, whole, all, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&in);
    MPI_File out = view(argv[2], MPI_MODE_WRONLY | MPI_MODE_CREATE, rank, columns, rows);
    MPI_File_write_all(out, whole, all, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&out);
    MPI_Type_free(&rows);
    unsigned mine[3] = {rows_sum, sum(whole, all), (unsigned)place}, *every = malloc(ranks * sizeof mine);
    MPI_Gather(mine, 3, MPI_UNSIGNED, every, 3, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < ranks; i++)
        printf("rank %d: %u by rows, to place %u; %u at once\n", i, every[3 * i], every[3 * i + 2], every[3 * i + 1]);
    free(every);
    free(piece);
    free(whole);
    MPI_Finalize();
    return 0;
}
