/* Ranks that read what others have just written: neighbours FILE PIECE ROWS STEP... Pieces of PIECE
 * bytes are dealt to the ranks, ROWS times. Each `write` gives all bytes new values. Reads are of
 * the whole file, in parts with pieces of several ranks, and must see the newest values. Prints the
 * reads that do not. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_File file;
static int rank, ranks, piece, rows, generation, wrong;
static long size;
static char *buffer;

static char value(long offset)
{
    return (char)(offset * 31 + generation * 101 + offset / 251 + 1);
}

static void open_file(const char *path, MPI_Comm comm, int amode)
{
    if (MPI_File_open(comm, path, amode, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void write_pieces(int collective)
{
    for (int row = 0; row < rows; row++) {
        const long start = ((long)row * ranks + rank) * piece;
        for (int i = 0; i < piece; i++)
            buffer[i] = value(start + i);
        if (collective)
            MPI_File_write_at_all(file, start, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE);
        else
            MPI_File_write_at(file, start, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE);
    }
}

/* Each rank reads the pieces of the next rank. */
static void write_others(void)
{
    for (int row = 0; row < rows; row++) {
        const long start = (((long)row * ranks) + (rank + 1) % ranks) * piece;
        for (int i = 0; i < piece; i++)
            buffer[i] = value(start + i);
        MPI_File_write_at(file, start, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE);
    }
}

static void look_at_size(void)
{
    MPI_Offset found;
    MPI_File_get_size(file, &found);
    if (found != size) {
        printf("rank %d: the size is %lld\n", rank, (long long)found);
        wrong++;
    }
}

static void check(const char *how, long start, long asked, long got)
{
    const long there = start >= size ? 0 : start + asked < size ? asked : size - start;
    long bad = 0;
    for (long i = 0; i < there && i < got; i++)
        bad += buffer[i] != value(start + i);
    if (bad > 0 || got != there) {
        printf("rank %d: %s of %ld bytes at %ld: %ld there, %ld wrong\n", rank, how, asked, start, got, bad);
        wrong++;
    }
}

static void read_part(const char *how, long start, int asked)
{
    MPI_Status status;
    MPI_Request request;
    int got = -1;
    memset(buffer, 0, (size_t)asked);
    if (strcmp(how, "read") == 0) {
        MPI_File_read_at(file, start, buffer, asked, MPI_BYTE, &status);
    } else if (strcmp(how, "read_all") == 0) {
        MPI_File_read_at_all(file, start, buffer, asked, MPI_BYTE, &status);
    } else if (strcmp(how, "iread") == 0) {
        MPI_File_iread_at(file, start, buffer, asked, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    } else if (strcmp(how, "split") == 0) {
        MPI_File_read_at_all_begin(file, start, buffer, asked, MPI_BYTE);
        MPI_File_read_at_all_end(file, buffer, &status);
    } else {
        MPI_File_seek(file, start, MPI_SEEK_SET);
        MPI_File_read(file, buffer, asked, MPI_BYTE, &status);
    }
    MPI_Get_count(&status, MPI_BYTE, &got);
    check(how, start, asked, got);
}

/* Reads all of the file and past its end, in the one way in which every MPI counts the bytes right.
 */
static void read_parts(const char *how)
{
    const int part = piece * ranks + 2;
    const int beyond = strcmp(how, "read") == 0;
    for (long start = 0; start < size + beyond * part; start += part)
        read_part(how, start, beyond || start + part <= size ? part : (int)(size - start));
}

static void read_shared(void)
{
    const int part = piece * ranks;
    MPI_Status status;
    int got;
    for (long start = 0; rank == 0 && start < size; start += part) {
        MPI_File_read_shared(file, buffer, part, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        check("read_shared", start, part, got);
    }
}

static long below(long limit)
{
    static unsigned state = 1; /* the same numbers on all ranks */
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % limit;
}

/* In each round one rank writes any bytes, all ranks read any bytes after a barrier, and nobody
 * goes on before that. */
static void write_and_read_any(int rounds)
{
    char *model = calloc(1, (size_t)size);
    generation = 0;
    for (int round = 0; round < rounds; round++) {
        const long writer = below(ranks), start = below(size), longest = below(4) == 0 ? 8 * piece : piece;
        const long length = 1 + below(size - start < longest ? size - start : longest);
        for (long i = start; i < start + length; i++)
            model[i] = (char)below(256);
        if (rank == writer)
            MPI_File_write_at(file, start, model + start, (int)length, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int reader = 0; reader < ranks; reader++) {
            const long from = below(size), asked = 1 + below(size - from < 5 * piece ? size - from : 5 * piece);
            if (reader != rank)
                continue;
            memset(buffer, 0, (size_t)asked);
            MPI_File_read_at(file, from, buffer, (int)asked, MPI_BYTE, MPI_STATUS_IGNORE);
            if (memcmp(buffer, model + from, (size_t)asked) != 0 && wrong++ < 5)
                printf("rank %d: round %d: %ld bytes at %ld\n", rank, round, asked, from);
        }
        if (below(50) == 0)
            MPI_File_sync(file);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(model);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    piece = atoi(argv[2]);
    rows = atoi(argv[3]);
    size = (long)ranks * rows * piece;
    buffer = malloc((size_t)size + 64);
    open_file(argv[1], MPI_COMM_WORLD, MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (char **step = argv + 4; *step != NULL; step++) {
        if (strcmp(*step, "write") == 0 || strcmp(*step, "write_all") == 0) {
            generation++;
            write_pieces(strcmp(*step, "write_all") == 0);
        } else if (strcmp(*step, "others") == 0) {
            generation++;
            write_others();
        } else if (strcmp(*step, "stop") == 0) { /* every second rank redirects no more writes */
            if (rank % 2 == 1)
                MPI_File_read_shared(file, buffer, 0, MPI_BYTE, MPI_STATUS_IGNORE);
        } else if (strcmp(*step, "size") == 0) {
            look_at_size();
        } else if (strcmp(*step, "any") == 0) {
            write_and_read_any(1000);
        } else if (strcmp(*step, "barrier") == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
        } else if (strcmp(*step, "sync") == 0) {
            MPI_File_sync(file);
        } else if (strcmp(*step, "reopen") == 0) {
            MPI_File_close(&file);
            open_file(argv[1], MPI_COMM_WORLD, MPI_MODE_RDWR);
        } else if (strcmp(*step, "shared") == 0) {
            read_shared();
        } else {
            read_parts(*step);
        }
    }
    MPI_File_close(&file);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong > 0;
}
