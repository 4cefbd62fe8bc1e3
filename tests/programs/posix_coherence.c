/* Writes a column of files by MPI and examines them by POSIX calls in the same process, before MPI
 * has closed them: posix_coherence DIRECTORY OUT HOW ..., for 2 ranks. Each HOW is also the name of
 * a file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 96, ROWS = 60, START = 480, COLUMNS = 4, END = START + COLUMNS * ROWS * PIECE };

static int rank;
static FILE *out;
static MPI_File file;

static void write_column(char value)
{
    char bytes[PIECE];
    memset(bytes, value + rank, sizeof bytes);
    for (int row = 0; row < ROWS; row++)
        MPI_File_write_at(file, START + (row * COLUMNS + rank) * PIECE, bytes, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
}

/* Of the rank's own bytes. */
static unsigned sum_of(const char *content)
{
    unsigned sum = 0;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < PIECE; i++)
            sum = sum * 31 + (unsigned char)content[START + (row * COLUMNS + rank) * PIECE + i];
    return sum;
}

static unsigned sum_read(int fd)
{
    char content[END] = "";
    return pread(fd, content, END, 0) < 0 ? 0 : sum_of(content);
}

static void examine(const char *path)
{
    struct stat found;
    struct statx more;
    write_column('a');
    stat(path, &found);
    const int last = START + ((ROWS - 1) * COLUMNS + rank + 1) * PIECE;
    fprintf(out, "stat %d", found.st_size >= last);
    write_column('b');
    statx(AT_FDCWD, path, 0, STATX_SIZE, &more);
    fprintf(out, " statx %d\n", more.stx_size >= (unsigned)last);
}

/* Later writes show through the same descriptor. */
static void open_and_read(const char *path)
{
    write_column('c');
    int fd = openat(AT_FDCWD, path, O_RDONLY);
    fprintf(out, "read %u", sum_read(fd));
    write_column('d');
    fprintf(out, " later %u\n", sum_read(fd));
    close(fd);
}

static void read_stream(const char *path)
{
    char content[END] = "";
    write_column('e');
    FILE *stream = fopen(path, "r");
    size_t got = fread(content, 1, END, stream);
    fprintf(out, "stream %d %u\n", got > START, sum_of(content));
    fclose(stream);
}

static void map_it(const char *path)
{
    write_column('f');
    int fd = open(path, O_RDONLY);
    const char *content = mmap(NULL, END, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    fprintf(out, "mapped %u", sum_of(content));
    write_column('g');
    fprintf(out, " later %u\n", sum_of(content));
    munmap((void *)content, END);
}

/* By one rank after the other: the bytes that one cuts off were written by all. */
static void cut_off(const char *path)
{
    write_column('h');
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        write_column('i');
        fprintf(out, "truncate %d\n", truncate(path, START + PIECE));
    }
}

/* By the rank that has written last. */
static void set_times(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    write_column('k');
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        write_column('l');
        fprintf(out, "times %d", utimensat(AT_FDCWD, path, times, 0));
        write_column('m');
        int fd = open(path, O_RDONLY);
        fprintf(out, " later %u\n", sum_read(fd));
        close(fd);
    }
}

static void look(const char *how, const char *path)
{
    if (strcmp(how, "examine") == 0)
        examine(path);
    else if (strcmp(how, "open") == 0)
        open_and_read(path);
    else if (strcmp(how, "stream") == 0)
        read_stream(path);
    else if (strcmp(how, "map") == 0)
        map_it(path);
    else if (strcmp(how, "cut") == 0)
        cut_off(path);
    else if (strcmp(how, "times") == 0)
        set_times(path);
}

int main(int argc, char **argv)
{
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    for (int i = 3; i < argc; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], argv[i]);
        const int before = strcmp(argv[i], "before") == 0 ? open(path, O_RDWR | O_CREAT, 0600) : -1;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        look(argv[i], path);
        if (before >= 0) {
            write_column('j');
            fprintf(out, "before %u\n", sum_read(before));
            close(before);
        }
        MPI_File_close(&file);
    }
    fclose(out);
    MPI_Finalize();
    return 0;
}
