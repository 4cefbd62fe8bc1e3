/* Reads a file in every way that MPI-IO has, and logs all that a program can see of it: reads FILE
 * OUT STEP... For each call OUT.<rank> gets a line: the error class, the count in the status, the
 * file pointer, and a hash of the whole buffer, including bytes that were not asked for. */
#include <mpi.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 96, BUFFER = 1 << 16 };

static MPI_File file;
static FILE *out;
static int rank, ranks;
static char buffer[BUFFER];

static void fresh_buffer(void) { memset(buffer, 0xA5, sizeof buffer); }

static void note(const char *what, int rc, MPI_Status *status)
{
    int class = MPI_SUCCESS, count = -1, ints = -1;
    MPI_Offset position = -1;
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < BUFFER; i++)
        hash = (hash ^ (unsigned char)buffer[i]) * 1099511628211u;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    else if (status != NULL) {
        MPI_Get_count(status, MPI_BYTE, &count);
        MPI_Get_count(status, MPI_INT, &ints);
    }
    MPI_File_get_position(file, &position);
    fprintf(out, "%s class=%d bytes=%d ints=%d position=%lld %016llx\n", what, class, count, ints, (long long)position,
            (unsigned long long)hash);
}

static void read_at(const char *what, MPI_Offset offset, int count, MPI_Datatype type)
{
    MPI_Status status;
    fresh_buffer();
    int rc = MPI_File_read_at(file, offset, buffer, count, type, &status);
    note(what, rc, &status);
}

static void read_next(const char *what, int count, MPI_Datatype type)
{
    MPI_Status status;
    fresh_buffer();
    int rc = MPI_File_read(file, buffer, count, type, &status);
    note(what, rc, &status);
}

static void read_all(const char *what, int count, MPI_Datatype type)
{
    MPI_Status status;
    fresh_buffer();
    int rc = MPI_File_read_all(file, buffer, count, type, &status);
    note(what, rc, &status);
}

static void read_at_all(const char *what, MPI_Offset offset, int count, MPI_Datatype type)
{
    MPI_Status status;
    fresh_buffer();
    int rc = MPI_File_read_at_all(file, offset, buffer, count, type, &status);
    note(what, rc, &status);
}

static void whole_view(void) { MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL); }

/* Pieces of PIECE bytes dealt to four columns; this rank's column from byte 480 on. */
static void column_view(void)
{
    MPI_Datatype column;
    MPI_Type_vector(1, PIECE / 4, 4 * PIECE / 4, MPI_INT, &column);
    MPI_Datatype tiled;
    MPI_Type_create_resized(column, 0, 4 * PIECE, &tiled);
    MPI_Type_commit(&tiled);
    MPI_File_set_view(file, 480 + rank % 4 * PIECE, MPI_INT, tiled, "native", MPI_INFO_NULL);
    MPI_Type_free(&column);
    MPI_Type_free(&tiled);
}

static void independent(void)
{
    for (int i = 0; i < 20; i++)
        read_at("strided", 480 + (i * 4 + rank % 4) * PIECE, PIECE, MPI_BYTE);
    read_at("two pieces", 480 + PIECE / 2, PIECE, MPI_BYTE);
    read_at("from before", 400, 300, MPI_BYTE);
    read_at("long", 0, 20000, MPI_BYTE);
    read_at("ints", 484, 50, MPI_INT);
    fresh_buffer();
    note("no status", MPI_File_read_at(file, 500, buffer, 1000, MPI_BYTE, MPI_STATUS_IGNORE), NULL);
    read_at("nothing", 500, 0, MPI_BYTE);
    MPI_File_seek(file, 480, MPI_SEEK_SET);
    for (int i = 0; i < 5; i++)
        read_next("pointer", 111 * i, MPI_BYTE);
    MPI_File_seek(file, 100, MPI_SEEK_CUR);
    read_next("pointer", 700, MPI_BYTE);
}

static void ends(void)
{
    MPI_Offset size;
    MPI_File_get_size(file, &size);
    read_at("to the end", size - 100, 100, MPI_BYTE);
    read_at("past the end", size - 30, 100, MPI_BYTE);
    read_at("ints past the end", size - 22, 25, MPI_INT);
    read_at("beyond the end", size + 5, 100, MPI_BYTE);
    read_at("negative", -1, 100, MPI_BYTE);
    read_at_all("one past the end", rank == 0 ? size - 30 : 480, 100, MPI_BYTE);
    MPI_File_seek(file, size - 30, MPI_SEEK_SET);
    read_next("pointer past the end", 100, MPI_BYTE);
}

static void views(void)
{
    column_view();
    read_next("column", 24, MPI_INT);
    read_next("column", 100, MPI_INT);
    read_next("column", 7, MPI_INT);
    read_at("column at", 13, 333, MPI_INT);
    MPI_File_seek(file, 11, MPI_SEEK_SET);
    read_next("column in bytes", 400, MPI_BYTE);
    whole_view();
    int sizes[2] = {60, 384}, part[2] = {20, 50}, starts[2] = {10, 60 + rank * 50};
    MPI_Datatype tile;
    MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, MPI_BYTE, &tile);
    MPI_Type_commit(&tile);
    MPI_File_set_view(file, 480, MPI_BYTE, tile, "native", MPI_INFO_NULL);
    read_next("tile", 1000, MPI_BYTE);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    read_all("tile together", 1000, MPI_BYTE);
    MPI_Type_free(&tile);
    whole_view();
}

static void collective(void)
{
    read_at_all("together", 480 + rank % 4 * PIECE, PIECE, MPI_BYTE);
    read_at_all("one has nothing", 480 + rank % 4 * PIECE, rank == 0 ? 0 : PIECE, MPI_BYTE);
    read_at_all("nobody has anything", 480, 0, MPI_BYTE);
    read_at_all("nothing is replicated", 0, 50, MPI_BYTE);
    column_view();
    for (int i = 0; i < 4; i++)
        read_all("column together", 72, MPI_INT);
    read_at_all("column at, together", 5, 500, MPI_INT);
    fresh_buffer();
    note("no status", MPI_File_read_all(file, buffer, 30, MPI_INT, MPI_STATUS_IGNORE), NULL);
    whole_view();
}

/* The ranks agree not to redirect for longer, the more calls there were of which nothing is
 * replicated. */
static void collective_late(void)
{
    for (int i = 0; i < 4; i++)
        read_at_all("before what is replicated", 0, 50, MPI_BYTE);
    for (int i = 0; i < 4; i++)
        read_at_all("replicated", 480 + rank % 4 * PIECE, PIECE, MPI_BYTE);
}

static void memory(void)
{
    MPI_Datatype vector, shifted, indexed;
    MPI_Type_vector(10, 3, 7, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    int lengths[3] = {5, 1, 40}, places[3] = {900, 10, 300};
    MPI_Type_indexed(3, lengths, places, MPI_BYTE, &indexed);
    MPI_Type_create_resized(indexed, 4, 2000, &shifted);
    MPI_Type_commit(&shifted);
    read_at("into a vector", 500, 7, vector);
    read_at("into an index", 600, 9, shifted);
    read_at_all("into a vector together", 480 + rank * 100, 3, vector);
    column_view();
    read_next("column into a vector", 4, vector);
    read_all("column into a vector together", 4, vector);
    whole_view();
    MPI_Type_free(&vector);
    MPI_Type_free(&indexed);
    MPI_Type_free(&shifted);
}

static void nonblocking(void)
{
    MPI_Request requests[3];
    MPI_Status statuses[3], status;
    int flag = 0;
    fresh_buffer();
    int rc = MPI_File_iread_at(file, 480 + rank * PIECE, buffer, PIECE, MPI_BYTE, &requests[0]);
    MPI_Wait(&requests[0], &status);
    note("iread_at", rc, &status);
    fprintf(out, "null %d\n", requests[0] == MPI_REQUEST_NULL);
    fresh_buffer();
    MPI_File_seek(file, 777, MPI_SEEK_SET);
    for (int i = 0; i < 3; i++)
        MPI_File_iread(file, buffer + 1000 * i, 200 + i, MPI_BYTE, &requests[i]);
    MPI_Waitall(3, requests, statuses);
    for (int i = 0; i < 3; i++)
        note("iread", MPI_SUCCESS, &statuses[i]);
    fresh_buffer();
    rc = MPI_File_iread_at(file, 500, buffer, 44, MPI_INT, &requests[0]);
    while (!flag)
        MPI_Test(&requests[0], &flag, &status);
    note("tested", rc, &status);
    fresh_buffer();
    rc = MPI_File_iread_at(file, 500, buffer, 45, MPI_INT, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    note("no status", rc, NULL);
    fresh_buffer();
    rc = MPI_File_iread_at_all(file, 480 + rank % 4 * PIECE, buffer, PIECE, MPI_BYTE, &requests[0]);
    MPI_Wait(&requests[0], &status);
    note("iread_at_all", rc, &status);
}

static void others(void)
{
    MPI_Status status;
    fresh_buffer();
    MPI_File_read_at_all_begin(file, 480 + rank % 4 * PIECE, buffer, PIECE, MPI_BYTE);
    int rc = MPI_File_read_at_all_end(file, buffer, &status);
    note("split", rc, &status);
    fresh_buffer();
    rc = MPI_File_read_ordered(file, buffer, 100, MPI_BYTE, &status);
    note("ordered", rc, &status);
#if MPI_VERSION >= 4
    fresh_buffer();
    rc = MPI_File_read_at_c(file, 480, buffer, 1000, MPI_BYTE, &status);
    note("large count", rc, &status);
    fresh_buffer();
    rc = MPI_File_read_at_all_c(file, 480 + rank % 4 * PIECE, buffer, PIECE, MPI_BYTE, &status);
    note("large count together", rc, &status);
#endif
}

/* Many reads of pieces dealt to the ranks; then one rank is past the end of the file. */
static void jump(void)
{
    MPI_Offset size;
    column_view();
    MPI_File_get_size(file, &size);
    for (int i = 0; i < 12; i++)
        read_at_all("jump", i == 9 && rank == 1 ? size / 16 - 25 : 24 * i, 48, MPI_INT);
    whole_view();
}

static unsigned long chosen;

static int choose(int below)
{
    chosen = chosen * 6364136223846793005u + 1442695040888963407u;
    return (int)(chosen >> 33) % below;
}

/* A filetype of up to nine blocks of ints with random holes before, between and after them. */
static MPI_Datatype random_filetype(void)
{
    int lengths[9], places[9], count = 1 + choose(9), at = 0;
    MPI_Datatype blocks, tiled;
    for (int i = 0; i < count; i++) {
        places[i] = at + choose(3) * choose(30);
        lengths[i] = 1 + choose(30);
        at = places[i] + lengths[i];
    }
    MPI_Type_indexed(count, lengths, places, MPI_INT, &blocks);
    MPI_Type_create_resized(blocks, 0, 4 * (at + choose(3) * choose(50)), &tiled);
    MPI_Type_commit(&tiled);
    MPI_Type_free(&blocks);
    return tiled;
}

/* The turns are the same on every rank; views, places and lengths are each rank's own. */
static void at_random(void)
{
    for (int turn = 0; turn < 60; turn++) {
        chosen = 1000 * turn;
        int how = choose(4), strided = choose(3) == 0;
        MPI_Datatype memory = MPI_INT, filetype;
        chosen += rank;
        filetype = random_filetype();
        MPI_File_set_view(file, choose(2000), MPI_INT, filetype, "native", MPI_INFO_NULL);
        MPI_Type_free(&filetype);
        if (strided)
            MPI_Type_vector(1 + choose(5), 1 + choose(4), 5 + choose(4), MPI_INT, &memory);
        else
            MPI_Type_contiguous(1, MPI_INT, &memory);
        MPI_Type_commit(&memory);
        int offset = choose(1500), count = strided ? 1 + choose(80) : choose(1000);
        MPI_File_seek(file, offset, MPI_SEEK_SET);
        if (how == 0)
            read_at("random", offset, count, memory);
        else if (how == 1)
            read_at_all("random together", offset, count, memory);
        else if (how == 2)
            read_next("random, pointer", count, memory);
        else
            read_all("random, pointer, together", count, memory);
        MPI_Type_free(&memory);
    }
    whole_view();
}

/* Every thread reads the columns through the one handle, into a buffer of its own. */
enum { THREADS = 4, TURNS = 200 };

static void *read_in_thread(void *argument)
{
    char *own = argument;
    for (int i = 0; i < TURNS; i++)
        MPI_File_read_at(file, 480 + (i % 60 * 4 + rank % 4) * PIECE, own + i * PIECE, PIECE, MPI_BYTE,
                         MPI_STATUS_IGNORE);
    return NULL;
}

/* The threads share the file pointer: each piece goes to exactly one thread. */
static void *read_on_in_thread(void *argument)
{
    char *own = argument;
    for (int i = 0; i < 50; i++)
        MPI_File_read(file, own + i * PIECE, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
    return NULL;
}

static int compare_pieces(const void *one, const void *other) { return memcmp(one, other, PIECE); }

static void threads_read_on(void)
{
    pthread_t others[THREADS];
    fresh_buffer();
    MPI_File_seek(file, 480, MPI_SEEK_SET);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&others[i], NULL, read_on_in_thread, buffer + i * 50 * PIECE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(others[i], NULL);
    qsort(buffer, THREADS * 50, PIECE, compare_pieces);
    note("threads that share a pointer", MPI_SUCCESS, NULL);
}

static void threads(void)
{
    pthread_t others[THREADS];
    char *own[THREADS];
    for (int i = 0; i < THREADS; i++) {
        own[i] = malloc(TURNS * PIECE);
        pthread_create(&others[i], NULL, read_in_thread, own[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(others[i], NULL);
        memcpy(buffer, own[i], TURNS * PIECE);
        note("thread", MPI_SUCCESS, NULL);
        free(own[i]);
    }
}

static void open_file(const char *path, int amode)
{
    if (MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
        fprintf(stderr, "%s cannot be opened\n", path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* What every rank reads of the bytes at 480, alone and together, ordered after the writes of the
 * others. */
static void look(const char *what)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    read_at(what, 480, 600, MPI_BYTE);
    read_at_all(what, 480 + rank * 10, 600, MPI_BYTE);
    MPI_Barrier(MPI_COMM_WORLD);
}

static char bytes[4096], zeros[5000];

static void put(int writer, MPI_Offset offset, int length)
{
    if (rank == writer)
        MPI_File_write_at(file, offset, bytes, length, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void put_nonblocking(MPI_Offset offset)
{
    MPI_Request request;
    if (rank == 0) {
        MPI_File_iwrite_at(file, offset, bytes, 10, MPI_BYTE, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* All ranks at once, over and over: each may be the first or the last writer. */
static void put_together(void)
{
    for (int i = 0; i < 100; i++)
        MPI_File_write_at_all(file, 100 + rank * 10, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < 100; i++)
        MPI_File_write_at(file, 200 + rank * 10, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
}

/* What another process does that has written to the first replica's bytes: OFFSET:FILE, its place in the state file. */
static void mark_as_written(const char *place)
{
    char *path;
    const long offset = strtol(place, &path, 10);
    const int fd = open(path + 1, O_WRONLY);
    if (fd < 0 || pwrite(fd, &(char){1}, 1, offset) != 1)
        MPI_Abort(MPI_COMM_WORLD, 3);
    close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Another writer, whom the library does not see, is at the first pieces while rank 0 writes elsewhere. */
static void put_around_another(const char *path)
{
    MPI_File_write_at_all_begin(file, 100, bytes, rank == 0 ? 10 : 0, MPI_BYTE);
    if (rank == 0) {
        int other = open(path, O_WRONLY);
        if (pwrite(other, bytes, 1000, 480) != 1000 || close(other) != 0)
            abort();
    }
    MPI_File_write_at_all_end(file, bytes, MPI_STATUS_IGNORE);
}

/* By the shared file pointer, so that only the MPI library knows the place. */
static void put_shared(void)
{
    MPI_File_seek_shared(file, 1000, MPI_SEEK_SET);
    if (rank == 0)
        MPI_File_write_shared(file, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void put_in_order(void)
{
    MPI_File_seek_shared(file, 1000, MPI_SEEK_SET);
    MPI_File_write_ordered(file, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void put_by_view(MPI_Datatype filetype, const char *representation)
{
    MPI_File_set_view(file, 1000, MPI_BYTE, filetype, representation, MPI_INFO_NULL);
    put(0, 0, 10);
    whole_view();
}

/* A view of more constructors in one another than the library takes apart. */
static void put_nested(void)
{
    MPI_Datatype nested, inner;
    MPI_Type_contiguous(10, MPI_BYTE, &nested);
    for (int i = 0; i < 300; i++) {
        inner = nested;
        MPI_Type_dup(inner, &nested);
        MPI_Type_free(&inner);
    }
    MPI_Type_commit(&nested);
    put_by_view(nested, "native");
    MPI_Type_free(&nested);
}

static void write_only(const char *path)
{
    MPI_File other;
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_WRONLY, MPI_INFO_NULL, &other);
    if (rank == ranks - 1)
        MPI_File_write_at(other, 1000, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&other);
}

static void alone(const char *path)
{
    MPI_File shared = file;
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    read_at("alone", 480 + rank % 4 * PIECE, PIECE, MPI_BYTE);
    read_at_all("alone, together", 480 + rank % 4 * PIECE, PIECE, MPI_BYTE);
    MPI_File_close(&file);
    file = shared;
}

/* A new map replaces the one in use. */
static void republish(void)
{
    const char *map = getenv("PDLA_MAP");
    char next[4096];
    MPI_Barrier(MPI_COMM_WORLD);
    if (map != NULL && rank == 0) {
        snprintf(next, sizeof next, "%s.next", map);
        rename(next, map);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* More extents than the library examines one by one: every third byte of [0, 15000). */
static void put_thinly(void)
{
    MPI_Datatype thin;
    MPI_Type_vector(5000, 1, 3, MPI_BYTE, &thin);
    MPI_Type_commit(&thin);
    MPI_File_set_view(file, 0, MPI_BYTE, thin, "native", MPI_INFO_NULL);
    if (rank == 0)
        MPI_File_write_at(file, 0, zeros, 5000, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Type_free(&thin);
    whole_view();
}

static void reopen(const char *path)
{
    MPI_File_close(&file);
    open_file(path, MPI_MODE_RDWR);
}

int main(int argc, char **argv)
{
    char name[4096];
    int provided;
    memset(bytes, 'x', sizeof bytes);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    open_file(argv[1], MPI_MODE_RDONLY);
    for (int i = 3; i < argc; i++) {
        const char *step = argv[i];
        fprintf(out, "-- %s\n", step);
        if (strcmp(step, "independent") == 0)
            independent();
        else if (strcmp(step, "ends") == 0)
            ends();
        else if (strcmp(step, "views") == 0)
            views();
        else if (strcmp(step, "collective") == 0)
            collective();
        else if (strcmp(step, "collective-late") == 0)
            collective_late();
        else if (strcmp(step, "killed") == 0)
            kill(getpid(), SIGKILL);
        else if (strcmp(step, "jump") == 0)
            jump();
        else if (strcmp(step, "memory") == 0)
            memory();
        else if (strcmp(step, "nonblocking") == 0)
            nonblocking();
        else if (strcmp(step, "others") == 0)
            others();
        else if (strcmp(step, "writable") == 0)
            reopen(argv[1]);
        else if (strcmp(step, "atomic") == 0)
            MPI_File_set_atomicity(file, 1);
        else if (strcmp(step, "look") == 0)
            look(step);
        else if (strcmp(step, "random") == 0)
            at_random();
        else if (strcmp(step, "threads") == 0)
            threads();
        else if (strcmp(step, "threads-read-on") == 0)
            threads_read_on();
        else if (strcmp(step, "alone") == 0)
            alone(argv[1]);
        else if (strcmp(step, "iwrite-inside") == 0)
            put_nonblocking(1000);
        else if (strcmp(step, "iwrite-beside") == 0)
            put_nonblocking(100);
        else if (strcmp(step, "write-together-beside") == 0)
            put_together();
        else if (strcmp(step, "republish") == 0)
            republish();
        else if (strcmp(step, "write-thinly") == 0)
            put_thinly();
        else if (strcmp(step, "write-only") == 0)
            write_only(argv[1]);
        else if (strcmp(step, "write-inside") == 0)
            put(0, 1000, 10);
        else if (strcmp(step, "write-by-last") == 0)
            put(ranks - 1, 1000, 10);
        else if (strcmp(step, "write-beside") == 0)
            put(0, 100, 10);
        else if (strcmp(step, "write-around-another") == 0)
            put_around_another(argv[1]);
        else if (strncmp(step, "mark:", 5) == 0)
            mark_as_written(step + 5);
        else if (strcmp(step, "write-long") == 0)
            put(0, 0, 4096);
        else if (strcmp(step, "write-shared") == 0)
            put_shared();
        else if (strcmp(step, "write-ordered") == 0)
            put_in_order();
        else if (strcmp(step, "write-external32") == 0)
            put_by_view(MPI_BYTE, "external32");
        else if (strcmp(step, "write-nested") == 0)
            put_nested();
        else if (strcmp(step, "shrink") == 0)
            MPI_File_set_size(file, 9000);
        else
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_File_close(&file);
    fclose(out);
    MPI_Finalize();
    return 0;
}
