/* file_steps OUT STEP...: all ranks make the steps, one after another; tests/searches/mpiio_files.py chooses them. A
 * file has pieces of PIECE bytes, which the ranks share out. OUT.<rank> gets a line for each step that has ended, with
 * its error class, and OUT.<rank>.<step> the bytes that a step has read.
 *
 *   open:MODE:PATH                       r: for reading; u: for reading and writing, it is made if there is none
 *   write:FIRST:COUNT:VERSION:HOW        pieces; all: in a collective call; each: in independent ones of a piece
 *   begin:FIRST:COUNT:VERSION end        the same, in a split collective call
 *   read:HOW                             the whole file; all: in a collective call; each: in one for each piece
 *   sync close
 *   delete:PATH                          MPI_File_delete
 *   rotate:TIMES:PATH                    PATH.0 is made, written collectively, closed and deleted, PATH.1, and so on
 *   pause:PATH                           says so in the FIFO PATH.at, and waits for a byte in the FIFO PATH.on
 *   kill timer:MICROSECONDS              all ranks end by SIGKILL, now or so much later
 *
 * Steps on a file whose open has failed are left out. */
#define _GNU_SOURCE
#include <mpi.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 96, MOST = 1 << 16 };

static int rank, ranks, number;
static MPI_File file = MPI_FILE_NULL;
static const char *out;
static unsigned char buffer[MOST];

static void fill(unsigned char *where, int piece, int version)
{
    for (int i = 0; i < PIECE; i++)
        where[i] = (unsigned char)(version * 59 + piece * 7 + i * 3 + 1);
}

static int open_file(const char *mode, const char *path)
{
    const int flags = mode[0] == 'r' ? MPI_MODE_RDONLY : MPI_MODE_RDWR | MPI_MODE_CREATE;
    return MPI_File_open(MPI_COMM_WORLD, path, flags, MPI_INFO_NULL, &file);
}

/* From now on a rank sees its own pieces of all from the first one on. */
static void view_pieces(int first)
{
    MPI_Datatype pieces;
    MPI_Type_vector(MOST / PIECE, PIECE, PIECE * ranks, MPI_BYTE, &pieces);
    MPI_Type_commit(&pieces);
    MPI_File_set_view(file, (MPI_Offset)(first + rank) * PIECE, MPI_BYTE, pieces, "native", MPI_INFO_NULL);
    MPI_Type_free(&pieces);
}

static void view_bytes(void) { MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL); }

/* The bytes of this rank's pieces, which are put one after the other. */
static int fill_pieces(int first, int count, int version)
{
    int bytes = 0;
    for (int piece = first + rank; piece < first + count; piece += ranks, bytes += PIECE)
        fill(buffer + bytes, piece, version);
    return bytes;
}

static int write_pieces(int first, int count, int version, int together)
{
    const int bytes = fill_pieces(first, count, version);
    int rc = MPI_SUCCESS;
    if (together) {
        view_pieces(first);
        rc = MPI_File_write_at_all(file, 0, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        view_bytes();
        return rc;
    }
    for (int at = 0; at < bytes && rc == MPI_SUCCESS; at += PIECE) {
        const MPI_Offset place = (MPI_Offset)(first + rank) * PIECE + (MPI_Offset)at * ranks;
        rc = MPI_File_write_at(file, place, buffer + at, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    return rc;
}

static int begin_pieces(int first, int count, int version)
{
    const int bytes = fill_pieces(first, count, version);
    view_pieces(first);
    return MPI_File_write_at_all_begin(file, 0, buffer, bytes, MPI_BYTE);
}

static int end_pieces(void)
{
    const int rc = MPI_File_write_at_all_end(file, buffer, MPI_STATUS_IGNORE);
    view_bytes();
    return rc;
}

/* What a rank has read, in a file of its own. */
static void keep(int bytes)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%d.%d", out, rank, number);
    FILE *kept = fopen(name, "w");
    fwrite(buffer, 1, (size_t)bytes, kept);
    fclose(kept);
}

static int read_file(int together)
{
    int bytes = 0, got = 0;
    MPI_Offset size = 0;
    MPI_Status status;
    memset(buffer, 0xA5, sizeof buffer);
    int rc = MPI_File_get_size(file, &size);
    const int each = together ? (int)size : PIECE;
    do {
        const int wanted = each < size - bytes ? each : (int)(size - bytes);
        rc = rc != MPI_SUCCESS ? rc
            : together         ? MPI_File_read_at_all(file, 0, buffer, wanted, MPI_BYTE, &status)
                               : MPI_File_read_at(file, bytes, buffer + bytes, wanted, MPI_BYTE, &status);
        if (rc == MPI_SUCCESS)
            MPI_Get_count(&status, MPI_BYTE, &got);
        bytes += got;
    } while (rc == MPI_SUCCESS && got > 0 && bytes < size);
    if (rc == MPI_SUCCESS)
        keep(bytes);
    return rc;
}

static int delete_file(const char *path)
{
    int rc = rank == 0 ? MPI_File_delete(path, MPI_INFO_NULL) : MPI_SUCCESS;
    MPI_Bcast(&rc, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return rc;
}

static int rotate(int times, const char *path)
{
    char name[4096];
    int rc = MPI_SUCCESS;
    for (int i = 0; i < times && rc == MPI_SUCCESS; i++) {
        snprintf(name, sizeof name, "%s.%d", path, i);
        rc = open_file("u", name);
        rc = rc == MPI_SUCCESS ? write_pieces(0, 8, 200 + i % 50, 1) : rc;
        rc = rc == MPI_SUCCESS ? MPI_File_close(&file) : rc;
        rc = rc == MPI_SUCCESS ? delete_file(name) : rc;
    }
    return rc;
}

static int pause_for(const char *path)
{
    char name[4096], byte = 0;
    if (rank == 0) {
        snprintf(name, sizeof name, "%s.at", path);
        int fifo = open(name, O_WRONLY);
        byte = write(fifo, "x", 1) == 1;
        close(fifo);
        snprintf(name, sizeof name, "%s.on", path);
        fifo = open(name, O_RDONLY);
        byte = byte && read(fifo, &byte, 1) == 1;
        close(fifo);
    }
    return byte || rank > 0 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static void kill_after(long microseconds)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    const struct itimerspec when = {.it_value = {microseconds / 1000000, microseconds % 1000000 * 1000 + 1}};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &when, NULL);
}

/* Cut the first words, which ":" ends, off a step. */
static char *word(char **rest)
{
    char *found = strsep(rest, ":");
    return found != NULL ? found : (char *)"";
}

static int make_step(const char *name, char *rest)
{
    if (strcmp(name, "open") == 0) {
        const char *mode = word(&rest);
        return open_file(mode, rest);
    }
    if (strcmp(name, "delete") == 0)
        return delete_file(rest);
    if (strcmp(name, "rotate") == 0) {
        const int times = atoi(word(&rest));
        return rotate(times, rest);
    }
    if (strcmp(name, "pause") == 0)
        return pause_for(rest);
    if (strcmp(name, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(name, "timer") == 0) {
        kill_after(atol(rest));
        return MPI_SUCCESS;
    }
    if (file == MPI_FILE_NULL)
        return -1;
    if (strcmp(name, "write") == 0) {
        const int first = atoi(word(&rest)), count = atoi(word(&rest)), version = atoi(word(&rest));
        return write_pieces(first, count, version, strcmp(rest, "all") == 0);
    }
    if (strcmp(name, "begin") == 0) {
        const int first = atoi(word(&rest)), count = atoi(word(&rest));
        return begin_pieces(first, count, atoi(rest));
    }
    if (strcmp(name, "end") == 0)
        return end_pieces();
    if (strcmp(name, "read") == 0)
        return read_file(strcmp(rest, "all") == 0);
    if (strcmp(name, "sync") == 0)
        return MPI_File_sync(file);
    return MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    out = argv[1];
    snprintf(name, sizeof name, "%s.%d", out, rank);
    FILE *log = fopen(name, "w");
    for (number = 0; number + 2 < argc; number++) {
        char *rest = argv[number + 2];
        const char *step = word(&rest);
        int class = -1;
        MPI_Barrier(MPI_COMM_WORLD);
        const int rc = make_step(step, rest);
        if (rc >= 0)
            MPI_Error_class(rc, &class);
        fprintf(log, "%s %d\n", step, class);
        fflush(log);
    }
    fclose(log);
    MPI_Finalize();
    return 0;
}
