/* Writes a column of a file, or reads the file: leased FILE ROUND, leased FILE read OUT. Prints the
 * class of the first error of the open, of the data calls and of the close. The ranks share the
 * rows, so that the file has bytes of one round only. Calls of five kinds alternate. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 20, PIECE = 96, STRIDE = 288, START = 200, MOST = 96 << 10 };

static int rank, ranks;

static int class_of(int rc)
{
    int class = MPI_SUCCESS;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    return class;
}

static int write_piece(MPI_File file, int kind, MPI_Offset place, const void *piece, int bytes)
{
    MPI_Request request;
    int rc;
    switch (kind) {
    case 0:
        return MPI_File_write_at_all(file, place, piece, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    case 1:
        return MPI_File_write_at(file, place, piece, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    case 2:
        rc = MPI_File_write_at_all_begin(file, place, piece, bytes, MPI_BYTE);
        return rc == MPI_SUCCESS ? MPI_File_write_at_all_end(file, piece, MPI_STATUS_IGNORE) : rc;
    case 3:
        rc = MPI_File_iwrite_at(file, place, piece, bytes, MPI_BYTE, &request);
        break;
    default:
        rc = MPI_File_iwrite_at_all(file, place, piece, bytes, MPI_BYTE, &request);
    }
    return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
}

static int write_rows(MPI_File file, int round)
{
    unsigned char piece[PIECE];
    int failed = MPI_SUCCESS;
    for (int first = 0; first < ROWS; first += ranks) {
        const int row = first + rank, bytes = row < ROWS ? PIECE : 0;
        for (int i = 0; i < PIECE; i++)
            piece[i] = (unsigned char)(round * 59 + row * 7 + i);
        int rc = write_piece(file, first / ranks % 5, START + (MPI_Offset)row * STRIDE, piece, bytes);
        failed = failed != MPI_SUCCESS ? failed : rc;
    }
    return failed;
}

/* Piece by piece, so that a row is a piece. */
static int read_all(MPI_File file, const char *out)
{
    static char content[MOST];
    MPI_Offset size = 0;
    int bytes = 0, rc = MPI_File_get_size(file, &size);
    while (rc == MPI_SUCCESS && bytes < size && bytes < MOST) {
        MPI_Status status;
        int count = 0, wanted = bytes < START % PIECE ? START % PIECE : PIECE;
        if (wanted > size - bytes)
            wanted = (int)(size - bytes);
        rc = MPI_File_read_at(file, bytes, content + bytes, wanted, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        bytes += count;
        if (count < wanted)
            break;
    }
    if (rc != MPI_SUCCESS || rank != 0)
        return rc;
    FILE *to = fopen(out, "w");
    fwrite(content, 1, (size_t)bytes, to);
    fclose(to);
    return rc;
}

int main(int argc, char **argv)
{
    int opened, done, closed;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int reads = argc > 3;
    opened = MPI_File_open(MPI_COMM_WORLD, argv[1], reads ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    done = closed = opened;
    if (opened == MPI_SUCCESS) {
        done = reads ? read_all(file, argv[3]) : write_rows(file, atoi(argv[2]));
        closed = MPI_File_close(&file);
    }
    if (rank == 0)
        printf("open %d data %d close %d\n", class_of(opened), class_of(done), class_of(closed));
    MPI_Finalize();
    return 0;
}
