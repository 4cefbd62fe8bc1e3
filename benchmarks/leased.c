/* The jobs of benchmarks/leased.py: leased FILE write|leave|open|read PIECE STRIDE COUNT REQUEST
 *
 * COUNT pieces, one at every STRIDE, go to the ranks in turn. `write` writes them one by one, `leave` in one
 * collective call, after which the ranks are killed, `open` opens and closes the file, `read` reads them through a
 * view, REQUEST bytes at a time. Prints the seconds of the open, and those of the reads. The bytes are checked. */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void fill(char *buffer, int bytes, long piece)
{
    for (int i = 0; i < bytes; i += (int)sizeof piece)
        memcpy(buffer + i, &piece, sizeof piece);
}

static void end_if(int wrong, const char *what)
{
    if (!wrong)
        return;
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void write_pieces(MPI_File file, int piece, MPI_Offset stride, long count, char *buffer)
{
    for (long i = rank; i < count; i += ranks) {
        fill(buffer, piece, i);
        end_if(MPI_File_write_at(file, i * stride, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE), "a write failed");
    }
}

/* Sees the own pieces. Returns how many there are. */
static long set_view(MPI_File file, int piece, MPI_Offset stride, long count)
{
    MPI_Datatype bytes, mine;
    MPI_Type_contiguous(piece, MPI_BYTE, &bytes);
    MPI_Type_create_resized(bytes, 0, ranks * stride, &mine);
    MPI_Type_commit(&mine);
    MPI_File_set_view(file, rank * stride, MPI_BYTE, mine, "native", MPI_INFO_NULL);
    MPI_Type_free(&bytes);
    MPI_Type_free(&mine);
    return (count - rank + ranks - 1) / ranks;
}

static void leave_pieces(MPI_File file, int piece, MPI_Offset stride, long count)
{
    const long own = set_view(file, piece, stride, count);
    char *buffer = malloc((size_t)(own * piece));
    for (long i = 0; i < own; i++)
        fill(buffer + i * piece, piece, rank + i * ranks);
    end_if(MPI_File_write_all(file, buffer, (int)(own * piece), MPI_BYTE, MPI_STATUS_IGNORE), "a write failed");
    MPI_Barrier(MPI_COMM_WORLD);
    raise(SIGKILL);
}

static void read_pieces(MPI_File file, int piece, MPI_Offset stride, long count, char *buffer, int request)
{
    const MPI_Offset all = set_view(file, piece, stride, count) * (MPI_Offset)piece;
    for (MPI_Offset done = 0; done < all; done += request) {
        const int part = all - done < request ? (int)(all - done) : request;
        end_if(MPI_File_read_at(file, done, buffer, part, MPI_BYTE, MPI_STATUS_IGNORE), "a read failed");
        for (int at = 0; at < part; at += piece) {
            long found;
            memcpy(&found, buffer + at, sizeof found);
            end_if(found != rank + (done + at) / piece * ranks, "a wrong byte");
        }
    }
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *how = argv[2];
    const int piece = atoi(argv[3]), request = atoi(argv[6]), leaves = strcmp(how, "leave") == 0;
    const int writes = leaves || strcmp(how, "write") == 0;
    const MPI_Offset stride = atoll(argv[4]);
    const long count = atol(argv[5]);
    char *buffer = calloc(1, (size_t)(request > piece ? request : piece));
    const int mode = writes ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
    double spent[2], most[2];
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    end_if(MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file), "the open failed");
    spent[0] = MPI_Wtime() - start;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    if (leaves)
        leave_pieces(file, piece, stride, count);
    else if (writes)
        write_pieces(file, piece, stride, count, buffer);
    else if (strcmp(how, "read") == 0)
        read_pieces(file, piece, stride, count, buffer, request);
    spent[1] = MPI_Wtime() - begun;
    MPI_Reduce(spent, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    end_if(MPI_File_close(&file), "the close failed");
    if (rank == 0)
        printf("%.9f %.9f\n", most[0], most[1]);
    free(buffer);
    MPI_Finalize();
    return 0;
}
