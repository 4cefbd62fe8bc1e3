/* cached FILE OUT STEP...: all ranks make the steps on FILE; each says in OUT.<rank> what it saw. Pieces of
 * the ranks interleave. A step is a name, and after ":" a number:
 *
 *   write:K again:K holes:K      collective writes of place K; `again` with other bytes, `holes` every third piece
 *   between:K                    the same of pieces in the gaps of `holes`
 *   around:K                     `holes` of all ranks but the last one, which has written to a gap, and closes the file
 *   iwrite:K split:K             the same nonblocking, and split
 *   one:K                        an independent write, over pieces of the next rank, too
 *   single:K spread:K            an independent write of pieces; `spread` every third one
 *   apart:K over:K               an independent write of each piece; `over` over the ends of two pieces of other ranks
 *   iapart:K halves:K            the same nonblocking, and of memory that is not contiguous
 *   beyond                       an independent write that ends with the largest offset
 *   each:K back:K                an independent read of each piece; `back` the last one first
 *   vector:K                     a collective write and a read of memory that is not contiguous
 *   tangled:K                    a collective write whose pieces are not in the order of the file
 *   halo:K                       a collective write of pieces that overlap those of other ranks, with the same bytes
 *   overlap:K                    a collective write of one piece by all ranks, after one another
 *   read:K other:K all:K         reads of this rank's, of the next rank's pieces, and collectively of its own
 *   ordered                      the ranks read one after another by the shared file pointer
 *   size end stat cut:BYTES      sizes; MPI_File_set_size
 *   sync barrier reopen nap:MS   `reopen` closes the file and opens it again
 *   until                        waits until there is FILE.end
 *   lock:N locked:N              a POSIX lock of each process on N.FILE; whether another process finds it
 *   limit:BYTES                  no file may become longer (ulimit -f)
 *   memory                       says on standard error how many KiB a process has had in memory at most
 *   file:N alone:N delete:N      the next steps are on N.FILE (0: FILE); the last rank reads it alone; it is deleted
 *   both:N                       writes N.FILE while FILE is open
 *   fork child signals           a child that ends, or stays until this process ends; signals to this process
 *   kill exit                    the end, of all ranks by SIGKILL, of each rank without close and MPI_Finalize
 *   leave                        ... with MPI_Finalize, but without close
 *   survivor:MS                  the ranks end by SIGKILL, the last one first, MS after one another; each reads the
 *                                piece behind its view before
 *
 * With READ_ONLY in the environment the file is only read; with EXISTS its open cannot create it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, ranks, piece = 96, count = 200;
static MPI_File file;
static FILE *out;
static char *buffer;
static const char *first;
static char path[4096];
static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void name_file(char name[4096], long number)
{
    const char *base = strrchr(first, '/') + 1;
    if (number == 0)
        snprintf(name, 4096, "%s", first);
    else
        snprintf(name, 4096, "%.*s%ld.%s", (int)(base - first), first, number, base);
}

static void open_file(void)
{
    const int mode = getenv("READ_ONLY") != NULL ? MPI_MODE_RDONLY
        : getenv("EXISTS") != NULL               ? MPI_MODE_RDWR
                                                 : MPI_MODE_CREATE | MPI_MODE_RDWR;
    const int rc = MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file);
    if (rc != 0)
        fprintf(out, "open failed\n");
}

static void close_file(void)
{
    if (file != MPI_FILE_NULL && MPI_File_close(&file) != 0)
        fprintf(out, "close failed\n");
}

static void say_memory(void)
{
    char line[256];
    long kib = 0, most = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL && sscanf(line, "VmHWM: %ld", &kib) != 1)
        ;
    if (status != NULL)
        fclose(status);
    MPI_Allreduce(&kib, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        fprintf(stderr, "memory %ld\n", most);
}

static void view(int place, int of, int each)
{
    MPI_Datatype type;
    MPI_Type_vector(count, piece, piece * ranks * each, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Offset start = (MPI_Offset)place * count * piece * ranks * each + (MPI_Offset)of * piece + 5;
    MPI_File_set_view(file, start, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Type_free(&type);
}

/* Where a piece of this rank is in the file. */
static MPI_Offset piece_at(int place, int number)
{
    return ((MPI_Offset)place * count * ranks + (MPI_Offset)number * ranks + rank) * piece + 5;
}

static void fill(int seed)
{
    for (int i = 0; i < piece * count; i++)
        buffer[i] = (char)(i * 7 + i / 96 + rank * 13 + seed * 31 + 1);
}

static void say_bytes(const char *what, int bytes)
{
    unsigned long sum = 5381;
    for (int i = 0; i < bytes; i++)
        sum = sum * 33 + (unsigned char)buffer[i];
    fprintf(out, "%s %d %lx\n", what, bytes, sum);
}

/* The last rank has the file open by itself. */
static void write_around(int place)
{
    const int last = rank == ranks - 1;
    MPI_Comm some;
    MPI_Comm_split(MPI_COMM_WORLD, last, rank, &some);
    close_file();
    MPI_File_open(some, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Barrier(MPI_COMM_WORLD);
    fill(place);
    view(place, last ? ranks : rank, 3);
    if (last)
        MPI_File_write_at_all(file, 0, buffer, piece, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!last)
        MPI_File_write_at_all(file, 0, buffer, piece * count, MPI_BYTE, MPI_STATUS_IGNORE);
    else
        usleep(100000);
    close_file();
    MPI_Comm_free(&some);
    open_file();
}

/* A POSIX lock of this process, on a byte of its own behind the file. */
static struct flock own_lock(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 40) + rank, .l_len = 1};
}

static void take_lock(long number)
{
    struct flock lock = own_lock();
    char other[4096];
    name_file(other, number);
    fprintf(out, "lock %d\n", fcntl(open(other, O_RDWR | O_CREAT, 0666), F_SETLK, &lock));
}

static void look_for_lock(long number)
{
    struct flock lock = own_lock();
    char other[4096];
    int status = -1;
    name_file(other, number);
    const pid_t child = fork();
    if (child == 0)
        _exit(fcntl(open(other, O_RDWR), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
    waitpid(child, &status, 0);
    fprintf(out, "locked %d\n", WEXITSTATUS(status));
}

static void make_step(const char *name, long number)
{
    const int bytes = piece * count, place = (int)number;
    MPI_Status status;
    MPI_Offset size;
    struct stat found;
    int got = 0;
    if (strcmp(name, "write") == 0 || strcmp(name, "again") == 0 || strcmp(name, "holes") == 0
        || strcmp(name, "between") == 0) {
        const int between = strcmp(name, "between") == 0;
        view(place, between ? ranks + rank : rank, between || strcmp(name, "holes") == 0 ? 3 : 1);
        fill(strcmp(name, "again") == 0 ? place + 100 : place);
        MPI_File_write_at_all(file, 0, buffer, bytes, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        fprintf(out, "%s %d\n", name, got);
    } else if (strcmp(name, "single") == 0 || strcmp(name, "spread") == 0) {
        view(place, rank, strcmp(name, "spread") == 0 ? 3 : 1);
        fill(place);
        MPI_File_write_at(file, 0, buffer, bytes, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        fprintf(out, "%s %d\n", name, got);
    } else if (strcmp(name, "tangled") == 0) {
        MPI_Datatype pair, type;
        MPI_Type_vector(2, piece, piece * count / 2, MPI_BYTE, &pair);
        MPI_Type_create_resized(pair, 0, piece, &type);
        MPI_Type_commit(&type);
        MPI_File_set_view(file, ((MPI_Offset)place * ranks + rank) * bytes + 5, MPI_BYTE, type, "native",
                          MPI_INFO_NULL);
        fill(place + 600);
        MPI_File_write_at_all(file, 0, buffer, bytes, MPI_BYTE, &status);
        MPI_Type_free(&pair);
        MPI_Type_free(&type);
    } else if (strcmp(name, "halo") == 0) {
        MPI_Datatype type;
        const int step = piece * ranks / 2, shift = rank * piece / 2;
        MPI_Type_vector(count, piece, step, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        MPI_File_set_view(file, (MPI_Offset)place * bytes * ranks + shift, MPI_BYTE, type, "native", MPI_INFO_NULL);
        for (int i = 0; i < bytes; i++)
            buffer[i] = (char)((i / piece * step + i % piece + shift) * 11);
        MPI_File_write_at_all(file, 0, buffer, bytes, MPI_BYTE, &status);
        MPI_Type_free(&type);
    } else if (strcmp(name, "around") == 0) {
        write_around(place);
    } else if (strcmp(name, "iwrite") == 0) {
        MPI_Request request;
        view(place, rank, 1);
        fill(place + 200);
        MPI_File_iwrite_at_all(file, 0, buffer, bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    } else if (strcmp(name, "split") == 0) {
        view(place, rank, 1);
        fill(place + 300);
        MPI_File_write_at_all_begin(file, 0, buffer, bytes, MPI_BYTE);
        MPI_File_write_at_all_end(file, buffer, &status);
    } else if (strcmp(name, "one") == 0) {
        view(place, rank, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        fill(place + 400);
        if (rank == 0)
            MPI_File_write_at(file, (MPI_Offset)place * bytes * ranks + 50, buffer, bytes / 2, MPI_BYTE, &status);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "apart") == 0 || strcmp(name, "over") == 0 || strcmp(name, "each") == 0
               || strcmp(name, "back") == 0) {
        const int shift = strcmp(name, "over") == 0 ? piece / 2 + 1 : 0;
        const int reads = strcmp(name, "each") == 0 || strcmp(name, "back") == 0;
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        fill(shift == 0 ? place + 700 : place + 800);
        if (reads)
            memset(buffer, 0, (size_t)bytes);
        for (int number = 0; number < count; number++) {
            const int i = strcmp(name, "back") == 0 ? count - 1 - number : number;
            const MPI_Offset at = piece_at(place, i) + shift;
            if (reads)
                MPI_File_read_at(file, at, buffer + i * piece, piece, MPI_BYTE, &status);
            else
                MPI_File_write_at(file, at, buffer + i * piece, piece, MPI_BYTE, &status);
            int moved;
            MPI_Get_count(&status, MPI_BYTE, &moved);
            got += moved;
        }
        if (reads)
            say_bytes(name, bytes);
        fprintf(out, "%s %d\n", name, got);
    } else if (strcmp(name, "iapart") == 0 || strcmp(name, "halves") == 0) {
        MPI_Datatype half;
        MPI_Type_vector(2, piece / 2, piece * count / 2, MPI_BYTE, &half);
        MPI_Type_commit(&half);
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        fill(place + 900);
        for (int i = 0; i < count; i++) {
            MPI_Request request;
            if (strcmp(name, "halves") == 0) {
                MPI_File_write_at(file, piece_at(place, i), buffer + i * piece / 2, 1, half, &status);
            } else {
                MPI_File_iwrite_at(file, piece_at(place, i), buffer + i * piece, piece, MPI_BYTE, &request);
                MPI_Wait(&request, &status);
            }
        }
        MPI_Type_free(&half);
    } else if (strcmp(name, "vector") == 0) {
        MPI_Datatype half;
        MPI_Type_vector(count, piece / 2, piece, MPI_BYTE, &half);
        MPI_Type_commit(&half);
        view(place, rank, 1);
        fill(place + 600);
        MPI_File_write_at_all(file, 0, buffer, 1, half, &status);
        memset(buffer, 0, (size_t)bytes);
        MPI_File_read_at(file, 0, buffer, 1, half, &status);
        MPI_Type_free(&half);
        say_bytes("vector", bytes);
    } else if (strcmp(name, "ordered") == 0) {
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        memset(buffer, 0, (size_t)bytes);
        MPI_File_read_ordered(file, buffer, bytes, MPI_BYTE, &status);
        say_bytes("ordered", bytes);
    } else if (strcmp(name, "overlap") == 0) {
        for (int turn = 0; turn < ranks; turn++) {
            view(place, 0, 1);
            fill(place + 500 + turn);
            MPI_File_write_at_all(file, 0, buffer, turn == rank ? bytes : 0, MPI_BYTE, &status);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    } else if (strcmp(name, "read") == 0 || strcmp(name, "other") == 0 || strcmp(name, "all") == 0) {
        view(place, strcmp(name, "other") == 0 ? (rank + 1) % ranks : rank, 1);
        memset(buffer, 0, (size_t)bytes);
        if (strcmp(name, "all") == 0)
            MPI_File_read_at_all(file, 0, buffer, bytes, MPI_BYTE, &status);
        else
            MPI_File_read_at(file, 0, buffer, bytes, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        say_bytes(name, got);
    } else if (strcmp(name, "beyond") == 0) {
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        const int rc = MPI_File_write_at(file, INT64_MAX - piece, buffer, piece, MPI_BYTE, &status);
        fprintf(out, "beyond %s\n", rc == 0 ? "written" : "failed");
    } else if (strcmp(name, "size") == 0) {
        const int rc = MPI_File_get_size(file, &size);
        fprintf(out, rc == 0 ? "size %lld\n" : "size failed\n", (long long)size);
    } else if (strcmp(name, "end") == 0) {
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        MPI_File_seek(file, 0, MPI_SEEK_END);
        MPI_File_get_position(file, &size);
        fprintf(out, "end %lld\n", (long long)size);
    } else if (strcmp(name, "stat") == 0) {
        stat(path, &found);
        fprintf(out, "stat %lld\n", (long long)found.st_size);
    } else if (strcmp(name, "cut") == 0) {
        MPI_File_set_size(file, number);
    } else if (strcmp(name, "sync") == 0) {
        MPI_File_sync(file);
    } else if (strcmp(name, "barrier") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "reopen") == 0) {
        close_file();
        open_file();
    } else if (strcmp(name, "both") == 0) {
        MPI_File kept_file = file;
        name_file(path, number);
        open_file();
        make_step("write", 0);
        make_step("write", 1);
        close_file();
        name_file(path, 0);
        file = kept_file;
    } else if (strcmp(name, "file") == 0) {
        close_file();
        name_file(path, number);
        open_file();
    } else if (strcmp(name, "delete") == 0) {
        char other[4096];
        name_file(other, number);
        if (rank == 0)
            fprintf(out, "delete %d\n", MPI_File_delete(other, MPI_INFO_NULL));
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "alone") == 0) {
        char other[4096];
        MPI_File found_file;
        name_file(other, number);
        if (rank == ranks - 1) {
            MPI_File_open(MPI_COMM_SELF, other, MPI_MODE_RDONLY, MPI_INFO_NULL, &found_file);
            MPI_File_read(found_file, buffer, bytes, MPI_BYTE, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            say_bytes("alone", got);
            MPI_File_close(&found_file);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "nap") == 0) {
        usleep((useconds_t)number * 1000);
    } else if (strcmp(name, "until") == 0) {
        char end[4096 + 4];
        snprintf(end, sizeof end, "%s.end", first);
        while (access(end, F_OK) != 0)
            usleep(1000);
    } else if (strcmp(name, "lock") == 0) {
        take_lock(number);
    } else if (strcmp(name, "locked") == 0) {
        look_for_lock(number);
    } else if (strcmp(name, "limit") == 0) {
        const struct rlimit limit = {(rlim_t)number, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
    } else if (strcmp(name, "memory") == 0) {
        say_memory();
    } else if (strcmp(name, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            exit(0);
        waitpid(child, &got, 0);
        fprintf(out, "fork %d\n", WIFEXITED(got) ? WEXITSTATUS(got) : -1);
    } else if (strcmp(name, "child") == 0) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
        }
    } else if (strcmp(name, "signals") == 0) {
        signal(SIGUSR1, on_alarm);
        for (int i = 0; i < 100; i++)
            kill(getpid(), SIGUSR1);
        fprintf(out, "signals %d\n", alarms == 100);
    } else if (strcmp(name, "kill") == 0) {
        fflush(out);
        MPI_Barrier(MPI_COMM_WORLD);
        kill(getpid(), SIGKILL);
    } else if (strcmp(name, "exit") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        exit(0);
    } else if (strcmp(name, "survivor") == 0) {
        usleep((useconds_t)((ranks - 1 - rank) * number * 1000));
        MPI_File_read_at(file, bytes, buffer, piece, MPI_BYTE, &status);
        say_bytes("survivor", piece);
        fflush(out);
        kill(getpid(), SIGKILL);
    } else if (strcmp(name, "leave") == 0) {
        MPI_Finalize();
        exit(0);
    } else {
        fprintf(stderr, "no such step: %s\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

int main(int argc, char **argv)
{
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (getenv("PIECE") != NULL)
        piece = atoi(getenv("PIECE"));
    if (getenv("COUNT") != NULL)
        count = atoi(getenv("COUNT"));
    first = argv[1];
    name_file(path, 0);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    buffer = malloc((size_t)piece * (size_t)count);
    open_file();
    for (int i = 3; i < argc; i++) {
        char *number = strchr(argv[i], ':');
        if (number != NULL)
            *number++ = '\0';
        make_step(argv[i], number == NULL ? 0 : atol(number));
        fflush(out);
    }
    close_file();
    fflush(out);
    MPI_Finalize();
    return 0;
}
