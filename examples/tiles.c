/* tiles: a 2-D matrix of floats, which all ranks share in one file, accessed in three ways that are
 * common in scientific programs.
 *
 *   mpicc -O2 -o tiles tiles.c && mpiexec -n 4 ./tiles matrix.dat result.dat 8192
 *
 * 1. Each rank reads its tile of the N x N matrix, 256 rows at a time, collectively through a
 *    subarray view.
 * 2. It doubles the values and writes the tile to the result file through the same view.
 * 3. It reads its strided block of columns, one piece of each row, with independent
 *    MPI_File_read_at.
 *
 * Rank 0 prints, for every rank, how many bytes it received and their CRC-32, in the order received.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BAND = 256, COLUMNS = 1024 };

static uint32_t crc_table[256];

static void crc_setup(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc_update(uint32_t crc, const void *data, size_t length)
{
    const unsigned char *p = data;
    crc = ~crc;
    while (length--)
        crc = crc_table[(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static void check(int rc, const char *what)
{
    if (rc != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(rc, text, &length);
        fprintf(stderr, "tiles: %s: %s\n", what, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The part [start, start + count) of `total` that belongs to `part` of `parts`. */
static void share(int total, int part, int parts, int *start, int *count)
{
    *start = (int)((int64_t)total * part / parts);
    *count = (int)((int64_t)total * (part + 1) / parts) - *start;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int n = argc == 4 ? atoi(argv[3]) : 0;
    if (n < ranks || n > 46340) {
        if (rank == 0)
            fprintf(stderr, "usage: tiles MATRIX RESULT N   (N from the number of ranks to 46340)\n");
        MPI_Finalize();
        return 2;
    }
    crc_setup();
    uint32_t crc = 0;
    long long received = 0;

    int grid[2] = {0, 0};
    MPI_Dims_create(ranks, 2, grid);
    int row, rows, column, columns;
    share(n, rank / grid[1], grid[0], &row, &rows);
    share(n, rank % grid[1], grid[1], &column, &columns);

    MPI_Datatype tile;
    MPI_Type_create_subarray(2, (int[]){n, n}, (int[]){rows, columns}, (int[]){row, column}, MPI_ORDER_C, MPI_FLOAT,
                             &tile);
    MPI_Type_commit(&tile);

    size_t elements = (size_t)BAND * (size_t)(columns > COLUMNS ? columns : COLUMNS);
    float *band = malloc(elements * sizeof *band);
    if (band == NULL) {
        fprintf(stderr, "tiles: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    MPI_File in, out;
    MPI_Offset size;
    MPI_Status status;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &in), argv[1]);
    check(MPI_File_get_size(in, &size), argv[1]);
    if (size < (MPI_Offset)n * n * (MPI_Offset)sizeof *band) {
        fprintf(stderr, "tiles: %s has %lld bytes, too few for a matrix of %d x %d floats\n", argv[1], (long long)size,
                n, n);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &out), argv[2]);
    check(MPI_File_set_view(in, 0, MPI_FLOAT, tile, "native", MPI_INFO_NULL), "set_view");
    check(MPI_File_set_view(out, 0, MPI_FLOAT, tile, "native", MPI_INFO_NULL), "set_view");
    int most = n / grid[0] + 1; /* every rank makes the same number of collective calls */
    for (int done = 0; done < most; done += BAND) {
        int now = done >= rows ? 0 : rows - done < BAND ? rows - done : BAND;
        check(MPI_File_read_all(in, band, now * columns, MPI_FLOAT, &status), "read_all");
        size_t bytes = (size_t)now * (size_t)columns * sizeof *band;
        crc = crc_update(crc, band, bytes);
        received += (long long)bytes;
        for (size_t i = 0; i < bytes / sizeof *band; i++)
            band[i] *= 2;
        check(MPI_File_write_all(out, band, now * columns, MPI_FLOAT, &status), "write_all");
    }
    check(MPI_File_close(&out), "close");

    check(MPI_File_set_view(in, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
    share(n, rank, ranks, &column, &columns);
    int width = (columns < COLUMNS ? columns : COLUMNS) * (int)sizeof *band;
    for (int r = 0; r < n; r++) {
        MPI_Offset at = ((MPI_Offset)r * n + column) * (MPI_Offset)sizeof *band;
        check(MPI_File_read_at(in, at, band, width, MPI_BYTE, &status), "read_at");
        crc = crc_update(crc, band, (size_t)width);
        received += width;
    }
    check(MPI_File_close(&in), "close");

    long long mine[2] = {received, crc};
    long long *all = malloc(2 * sizeof *all * (size_t)ranks);
    MPI_Gather(mine, 2, MPI_LONG_LONG, all, 2, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < ranks; r++)
        printf("tiles: rank %d received %lld bytes, crc %08llx\n", r, all[2 * r], all[2 * r + 1]);
    free(all);
    free(band);
    MPI_Type_free(&tile);
    MPI_Finalize();
    return 0;
}
