/* Writes a file in every way that MPI-IO has, and logs all that a program can see of it: writes
 * FILE OUT STEP... The file has pieces of PIECE bytes dealt to four columns, from byte 480 on. For
 * each call OUT.<rank> gets a line: the error class, the count in the status, the file pointer, and
 * after a read a hash of the buffer. */
#include <mpi.h>

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 96, ROWS = 60, START = 480, BUFFER = 1 << 16 };

static MPI_Comm comm;
static MPI_File file = MPI_FILE_NULL;
static FILE *out;
static const char *path;
static int rank, ranks, calls;
static char buffer[BUFFER];

/* Other bytes in every call of every rank. */
static char *fresh(void)
{
    uint32_t state = (uint32_t)(++calls * 1000 + rank + 1);
    for (int i = 0; i < BUFFER; i++)
        buffer[i] = (char)((state = state * 1664525u + 1013904223u) >> 24);
    return buffer;
}

static void note(const char *what, int rc, MPI_Status *status, int hashed)
{
    int class = MPI_SUCCESS, count = -1;
    MPI_Offset position = -1;
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; hashed && i < BUFFER; i++)
        hash = (hash ^ (unsigned char)buffer[i]) * 1099511628211u;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    else if (status != NULL)
        MPI_Get_count(status, MPI_BYTE, &count);
    if (file != MPI_FILE_NULL)
        MPI_File_get_position(file, &position);
    fprintf(out, "%s class=%d bytes=%d position=%lld %016llx\n", what, class, count, (long long)position,
            (unsigned long long)hash);
}

static void open_file(int amode)
{
    note("open", MPI_File_open(comm, path, amode, MPI_INFO_NULL, &file), NULL, 0);
}

static void write_at(MPI_Offset offset, int count)
{
    MPI_Status status;
    note("write_at", MPI_File_write_at(file, offset, fresh(), count, MPI_BYTE, &status), &status, 0);
}

static void read_at(MPI_Offset offset, int count)
{
    MPI_Status status;
    memset(buffer, 0xA5, sizeof buffer);
    note("read_at", MPI_File_read_at(file, offset, buffer, count, MPI_BYTE, &status), &status, 1);
}

static MPI_Offset place(int row, int column) { return START + ((MPI_Offset)row * 4 + column) * PIECE; }

static void whole_view(void) { MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL); }

static void column_view(int column)
{
    MPI_Datatype piece, tiled;
    MPI_Type_contiguous(PIECE / 4, MPI_INT, &piece);
    MPI_Type_create_resized(piece, 0, 4 * PIECE, &tiled);
    MPI_Type_commit(&tiled);
    MPI_File_set_view(file, place(0, column), MPI_INT, tiled, "native", MPI_INFO_NULL);
    MPI_Type_free(&piece);
    MPI_Type_free(&tiled);
}

/* Every second int of a buffer. */
static MPI_Datatype holes(int count)
{
    MPI_Datatype type;
    MPI_Type_vector(count, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* ---- steps that follow the pattern; each writes the columns c = rank, rank + ranks, ... < 4 ---------------------- */

static void strided(void)
{
    for (int column = rank; column < 4; column += ranks)
        for (int row = 0; row < ROWS; row++)
            write_at(place(row, column), PIECE);
}

static void backwards(void)
{
    for (int column = rank; column < 4; column += ranks)
        for (int row = ROWS; row-- > 0;)
            write_at(place(row, column), PIECE);
}

static void pointer(void)
{
    MPI_Status status;
    for (int round = 0; round < (4 + ranks - 1) / ranks; round++) {
        int column = rank + round * ranks;
        column_view(column % 4);
        for (int row = 0; column < 4 && row < ROWS; row += 5)
            note("write", MPI_File_write(file, fresh(), 5 * PIECE / 4, MPI_INT, &status), &status, 0);
        note("no status", MPI_File_write(file, buffer, 0, MPI_INT, MPI_STATUS_IGNORE), NULL, 0);
    }
    whole_view();
}

/* All ranks make the same number of calls, some of no bytes. */
static void collective(void)
{
    MPI_Status status;
    MPI_Datatype type = holes(PIECE);
    for (int round = 0; round < (4 + ranks - 1) / ranks; round++) {
        int column = rank + round * ranks;
        column_view(column % 4);
        for (int row = 0; row < ROWS; row += 4) {
            int count = column < 4 ? 1 : 0;
            note("write_all", MPI_File_write_all(file, fresh(), count, type, &status), &status, 0);
        }
    }
    MPI_Type_free(&type);
    whole_view();
}

static void at_all(void)
{
    MPI_Status status;
    for (int round = 0; round < (4 + ranks - 1) / ranks; round++) {
        int column = rank + round * ranks;
        for (int row = 0; row < ROWS; row += 1) {
            int count = column < 4 ? PIECE : 0;
            int rc = MPI_File_write_at_all(file, place(row, column % 4), fresh(), count, MPI_BYTE, &status);
            note("write_at_all", rc, &status, 0);
        }
    }
}

static void nonblocking(void)
{
    enum { AHEAD = 6 };
    static char copies[AHEAD][PIECE];
    for (int column = rank; column < 4; column += ranks)
        for (int row = 0; row < ROWS; row += AHEAD) {
            MPI_Request requests[AHEAD];
            MPI_Status statuses[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                memcpy(copies[i], fresh(), PIECE);
                MPI_File_iwrite_at(file, place(row + i, column), copies[i], PIECE, MPI_BYTE, &requests[i]);
            }
            MPI_Waitall(AHEAD, requests, statuses);
            for (int i = 0; i < AHEAD; i++)
                note("iwrite_at", MPI_SUCCESS, &statuses[i], 0);
        }
}

static void split(void)
{
    MPI_Status status;
    for (int round = 0; round < (4 + ranks - 1) / ranks; round++) {
        int column = rank + round * ranks;
        fresh();
        MPI_File_write_at_all_begin(file, place(7, column % 4), buffer, column < 4 ? PIECE : 0, MPI_BYTE);
        note("split", MPI_File_write_at_all_end(file, buffer, &status), &status, 0);
    }
}

/* Nonblocking and split collective calls. */
static void joining(void)
{
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype type = holes(PIECE);
    for (int round = 0; round < (4 + ranks - 1) / ranks; round++) {
        int column = rank + round * ranks, count = column < 4 ? 1 : 0;
        column_view(column % 4);
        for (int row = 0; row < ROWS; row += 12) {
            MPI_File_iwrite_all(file, fresh(), count, type, &request);
            MPI_Wait(&request, &status);
            note("iwrite_all", MPI_SUCCESS, &status, 0);
            fresh();
            MPI_File_write_all_begin(file, buffer, count, type);
            note("write_all_end", MPI_File_write_all_end(file, buffer, &status), &status, 0);
        }
        whole_view();
        MPI_File_iwrite_at_all(file, place(9, column % 4), fresh(), count * PIECE, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
        note("iwrite_at_all", MPI_SUCCESS, &status, 0);
    }
    MPI_Type_free(&type);
}

/* A nonblocking collective write after a blocking one of bytes behind the pattern, in the same view. */
static void following(void)
{
    MPI_Status status;
    MPI_Request request;
    MPI_Datatype type = holes(PIECE);
    column_view(rank % 4);
    MPI_File_write_at_all(file, ROWS * PIECE / 4, fresh(), rank < 4 ? 1 : 0, type, &status);
    note("write_at_all", MPI_SUCCESS, &status, 0);
    MPI_File_iwrite_at_all(file, 0, fresh(), rank < 4 ? 1 : 0, type, &request);
    MPI_Wait(&request, &status);
    note("iwrite_at_all", MPI_SUCCESS, &status, 0);
    whole_view();
    MPI_Type_free(&type);
}

/* All columns of a row by one call. */
static void rows(void)
{
    MPI_Status status;
    MPI_Datatype type = holes(PIECE);
    for (int row = rank; row < ROWS; row += ranks)
        write_at(place(row, 0), 4 * PIECE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int first = 0; first < ROWS; first += ranks) {
        const int row = first + rank,
                  rc = MPI_File_write_at_all(file, place(row, 0), fresh(), row < ROWS, type, &status);
        note("write_at_all", rc, &status, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* the next step of another rank may write to the same rows */
    MPI_Type_free(&type);
}

/* ---- steps that do not ------------------------------------------------------------------------------------------- */

static void header(void)
{
    if (rank == 0)
        write_at(0, 300);
}

/* By all ranks: bytes of the header, and of rows that neither own_reads() nor twice() touches.
 * RATIONALE: one rank may write for another after the other's call has returned, natively, too, and
 * so over what the other writes next. */
static void write_around(bool blocking)
{
    enum { PARTS = 17 };
    static const int rows[] = {1, 4, 10, 13, 16, 19};
    int lengths[PARTS];
    MPI_Aint places[PARTS];
    MPI_Datatype type;
    MPI_Status status;
    MPI_Request request;
    for (int i = 0; i < PARTS; i++) {
        lengths[i] = 8;
        places[i] = i == 0 ? 16 * rank : place((i - 1) / 6 * 21 + rows[(i - 1) % 6], rank % 4);
    }
    MPI_Type_create_hindexed(PARTS, lengths, places, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
    int bytes = rank < 4 ? 8 * PARTS : 0;
    if (blocking) {
        MPI_File_write_at_all(file, 0, fresh(), bytes, MPI_BYTE, &status);
    } else {
        MPI_File_iwrite_at_all(file, 0, fresh(), bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    }
    note("around", MPI_SUCCESS, &status, 0);
    whole_view();
    MPI_Type_free(&type);
}

static void around(void) { write_around(true); }
static void around_later(void) { write_around(false); }

static void across(void)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    if (rank == 0)
        write_at(START - 50, 100);
    if (rank == ranks - 1)
        write_at(place(10, rank % 4) + PIECE / 2, PIECE);
}

static void own_reads(void)
{
    for (int column = rank; column < 4; column += ranks)
        for (int row = 0; row < ROWS; row += 7)
            read_at(place(row, column), PIECE);
}

static void visible(void)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    read_at(0, START + 4 * ROWS * PIECE + 1000);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void read_all(void)
{
    MPI_Status status;
    memset(buffer, 0xA5, sizeof buffer);
    note("read_at_all", MPI_File_read_at_all(file, START, buffer, 4 * ROWS * PIECE, MPI_BYTE, &status), &status, 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void size(void)
{
    MPI_Offset bytes = -1;
    if (ranks == 1) {
        MPI_File_get_size(file, &bytes);
        fprintf(out, "size %lld\n", (long long)bytes);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    MPI_File_seek(file, -10, MPI_SEEK_END);
    note("seek", MPI_SUCCESS, NULL, 0);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    fprintf(out, "size %lld\n", (long long)bytes);
}

/* The size is only read or grows: by all ranks, and by one alone. */
static void look(void)
{
    MPI_Offset bytes = -1, shared = -1;
    if (ranks == 1) {
        MPI_File_get_size(file, &bytes);
        MPI_File_seek(file, -10, MPI_SEEK_END);
        note("seek", MPI_SUCCESS, NULL, 0);
        fprintf(out, "size %lld\n", (long long)bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 0, MPI_SEEK_END);
    MPI_File_get_position_shared(file, &shared);
    MPI_Barrier(MPI_COMM_WORLD);
    note("preallocate", MPI_File_preallocate(file, place(30, 0)), NULL, 0);
    note("set_size", MPI_File_set_size(file, place(70, 0)), NULL, 0);
    MPI_File_get_size(file, &bytes);
    fprintf(out, "size %lld shared %lld\n", (long long)bytes, (long long)shared);
}

static void misuse(void)
{
    MPI_Status status;
    note("negative", MPI_File_write_at(file, -1, fresh(), 10, MPI_BYTE, &status), &status, 0);
    note("negative count", MPI_File_write_at(file, 0, fresh(), -1, MPI_BYTE, &status), &status, 0);
}

/* Calls that MPI refuses on a file that is open for reading only. */
static void refused(void)
{
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    misuse();
    write_at(0, 300);
    note("write_all", MPI_File_write_all(file, fresh(), 300, MPI_BYTE, &status), NULL, 0);
    note("iwrite", MPI_File_iwrite(file, fresh(), 300, MPI_BYTE, &request), NULL, 0);
    note("write_shared", MPI_File_write_shared(file, fresh(), 300, MPI_BYTE, &status), NULL, 0);
    note("write_all_begin", MPI_File_write_all_begin(file, fresh(), 300, MPI_BYTE), NULL, 0);
    note("set_size", MPI_File_set_size(file, 10), NULL, 0);
    note("preallocate", MPI_File_preallocate(file, 10), NULL, 0);
    whole_view();
}

static void twice(void)
{
    for (int column = rank; column < 4; column += ranks)
        for (int row = 0; row < ROWS; row += 3)
            write_at(place(row, column), PIECE);
}

/* Bytes that another rank has written. */
static void overtake(void)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    for (int row = 0; row < ROWS; row += 2)
        write_at(place(row, (rank + 1) % 4), rank < 4 ? PIECE : 0);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
}

/* A write through the shared pointer of bytes that this rank has written. */
static void shared(void)
{
    MPI_Status status;
    MPI_File_seek_shared(file, place(3, 0), MPI_SEEK_SET);
    if (rank == 0)
        note("write_shared", MPI_File_write_shared(file, fresh(), PIECE, MPI_BYTE, &status), &status, 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void ordered(void)
{
    MPI_Status status;
    MPI_File_seek_shared(file, place(2, 0), MPI_SEEK_SET);
    note("write_ordered", MPI_File_write_ordered(file, fresh(), PIECE, MPI_BYTE, &status), &status, 0);
}

static void external(void)
{
    MPI_Status status;
    MPI_File_set_view(file, place(5, rank % 4), MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
    note("external32", MPI_File_write_at(file, 0, fresh(), PIECE / 4, MPI_INT, &status), &status, 0);
    whole_view();
}

static void opened_again(void)
{
    MPI_File again;
    MPI_Status status;
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &again);
    memset(buffer, 0xA5, sizeof buffer);
    int rc = MPI_File_read_at(again, place(0, rank % 4), buffer, PIECE, MPI_BYTE, &status);
    note("read by another handle", rc, &status, 1);
    rc = MPI_File_write_at(again, place(1, rank % 4), fresh(), PIECE, MPI_BYTE, &status);
    note("write by another handle", rc, &status, 0);
    MPI_File_close(&again);
}

static void stop_writer(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
}

static void abort_job(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void leave(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    exit(0);
}

/* Each rank opens files for itself from now on, */
static void alone(void) { comm = MPI_COMM_SELF; }

/* or all of them together. */
static void together(void) { comm = MPI_COMM_WORLD; }

static void close_in_turn(void)
{
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank)
            note("close", MPI_File_close(&file), NULL, 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* The other ranks first open the file by themselves, and then together with rank 0. */
static void crossed(void)
{
    MPI_File own = MPI_FILE_NULL;
    if (rank > 0)
        MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &own);
    note("open", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), NULL, 0);
    if (rank > 0)
        MPI_File_close(&own);
}

/* Waits until the test has made FILE.go; the test waits for FILE.held. */
static void hold(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.held", path);
    fclose(fopen(name, "w"));
    snprintf(name, sizeof name, "%s.go", path);
    while (access(name, F_OK) != 0)
        usleep(1000);
}

/* No file may become longer than the ranks' bytes of the first rows. */
static void limit(void)
{
    const struct rlimit bytes = {20000, 20000};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &bytes);
}

/* A POSIX lock of this process, on a byte of its own behind the file. */
static struct flock own_lock(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 40) + rank, .l_len = 1};
}

static void take_lock(void)
{
    struct flock lock = own_lock();
    const int held = open(path, O_RDWR | O_CREAT, 0666);
    fprintf(out, "lock %d\n", fcntl(held, F_SETLK, &lock));
}

/* Whether another process finds the lock. */
static void look_for_lock(void)
{
    struct flock lock = own_lock();
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(fcntl(open(path, O_RDWR), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
    waitpid(child, &status, 0);
    fprintf(out, "locked %d\n", WEXITSTATUS(status));
}

/* How many descriptors of the file the process has. */
static void count_descriptors(void)
{
    struct stat wanted, found;
    int count = 0;
    stat(path, &wanted);
    for (int fd = 0; fd < 1024; fd++)
        count += fstat(fd, &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino;
    fprintf(out, "descriptors %d\n", count);
}

static void open_write(void) { open_file(MPI_MODE_CREATE | MPI_MODE_WRONLY); }
static void open_both(void) { open_file(MPI_MODE_CREATE | MPI_MODE_RDWR); }
static void open_append(void) { open_file(MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_APPEND); }
static void open_scratch(void) { open_file(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE); }
static void open_read(void) { open_file(MPI_MODE_RDONLY); }
static void close_file(void) { note("close", MPI_File_close(&file), NULL, 0); }
static void sync_file(void) { note("sync", MPI_File_sync(file), NULL, 0); }
static void atomic(void) { MPI_File_set_atomicity(file, 1); }
static void not_atomic(void) { MPI_File_set_atomicity(file, 0); }
static void shrink(void) { note("set_size", MPI_File_set_size(file, place(20, 1) + 7), NULL, 0); }
static void empty(void) { note("set_size", MPI_File_set_size(file, 0), NULL, 0); }
static void grow(void) { note("preallocate", MPI_File_preallocate(file, place(70, 0)), NULL, 0); }

/* Rank 0 has the file open by another handle, too. When all ranks have closed theirs, it reads by
 * that handle what they have written since. */
static void outlived(void)
{
    MPI_File other = MPI_FILE_NULL;
    MPI_Status status;
    if (rank == 0)
        MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &other);
    MPI_Barrier(MPI_COMM_WORLD);
    strided();
    close_file();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0)
        return;
    memset(buffer, 0xA5, sizeof buffer);
    int rc = MPI_File_read_at(other, START, buffer, 4 * ROWS * PIECE, MPI_BYTE, &status);
    note("read by the other handle", rc, &status, 1);
    MPI_File_close(&other);
}

static void unlink_file(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step)(void);
    } steps[] = {
        {"open", open_write}, {"open-both", open_both}, {"open-append", open_append}, {"open-scratch", open_scratch},
        {"open-read", open_read}, {"close", close_file}, {"sync", sync_file}, {"strided", strided},
        {"backwards", backwards}, {"pointer", pointer}, {"collective", collective}, {"at-all", at_all},
        {"nonblocking", nonblocking}, {"split", split}, {"header", header}, {"across", across},
        {"own-reads", own_reads}, {"visible", visible}, {"read-all", read_all}, {"size", size}, {"rows", rows},
        {"look", look}, {"refused", refused}, {"twice", twice}, {"overtake", overtake}, {"shared", shared},
        {"ordered", ordered}, {"external", external}, {"again", opened_again}, {"misuse", misuse}, {"leave", leave},
        {"limit", limit}, {"stop", stop_writer}, {"abort", abort_job}, {"alone", alone}, {"together", together},
        {"close-in-turn", close_in_turn}, {"crossed", crossed}, {"hold", hold}, {"outlived", outlived},
        {"joining", joining}, {"following", following}, {"around", around}, {"around-later", around_later},
        {"atomic", atomic},
        {"not-atomic", not_atomic}, {"shrink", shrink}, {"empty", empty}, {"grow", grow}, {"unlink", unlink_file},
        {"lock", take_lock}, {"locked", look_for_lock}, {"descriptors", count_descriptors},
    };
    char name[4096];
    MPI_Init(&argc, &argv);
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    path = argv[1];
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    for (int i = 3; i < argc; i++) {
        int found = 0;
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            if (strcmp(argv[i], steps[s].name) == 0) {
                fprintf(out, "-- %s\n", argv[i]);
                fflush(out);
                steps[s].step();
                found = 1;
            }
        if (!found) {
            fprintf(stderr, "no step %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    fclose(out);
    MPI_Finalize();
    return 0;
}
