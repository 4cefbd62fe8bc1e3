/* Opens an existing file in any mode and makes calls that depend on its size, position or bytes, or
 * change them: looks FILE OUT MODE STEP... MODE is letters: r RDONLY, w WRONLY, b RDWR, a APPEND, c
 * CREATE, e EXCL, s SEQUENTIAL, d DELETE_ON_CLOSE. OUT.<rank> gets a line for each step. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_File file = MPI_FILE_NULL;
static FILE *out;
static int rank;

static void note(const char *what, int rc, long long value)
{
    int class = MPI_SUCCESS;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    fprintf(out, "%s class=%d %lld\n", what, class, rc == MPI_SUCCESS ? value : -1);
    fflush(out);
}

static int mode_of(const char *letters)
{
    static const struct {
        char letter;
        int mode;
    } modes[] = {{'r', MPI_MODE_RDONLY},     {'w', MPI_MODE_WRONLY},         {'b', MPI_MODE_RDWR},
                 {'a', MPI_MODE_APPEND},     {'c', MPI_MODE_CREATE},         {'e', MPI_MODE_EXCL},
                 {'s', MPI_MODE_SEQUENTIAL}, {'d', MPI_MODE_DELETE_ON_CLOSE}};
    int mode = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strchr(letters, modes[i].letter) != NULL)
            mode |= modes[i].mode;
    return mode;
}

static void look(void)
{
    MPI_Offset value = -1;
    int rc = MPI_File_get_position(file, &value);
    note("position", rc, value);
    rc = MPI_File_get_size(file, &value);
    note("size", rc, value);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void seek_end(void)
{
    MPI_Offset value = -1;
    note("seek", MPI_File_seek(file, 0, MPI_SEEK_END), 0);
    int rc = MPI_File_get_position(file, &value);
    note("position", rc, value);
    note("seek", MPI_File_seek(file, 0, MPI_SEEK_SET), 0);
}

static void shared_end(void)
{
    MPI_Offset value = -1;
    note("seek_shared", MPI_File_seek_shared(file, 0, MPI_SEEK_END), 0);
    int rc = MPI_File_get_position_shared(file, &value);
    note("position_shared", rc, value);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void add_shared(void)
{
    char bytes[16];
    memset(bytes, 'A' + rank, sizeof bytes);
    note("write_ordered", MPI_File_write_ordered(file, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE), 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void add(void)
{
    char bytes[5] = "12345";
    int rc = rank == 0 ? MPI_File_write(file, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE) : 0;
    note("write", rc, 0);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void read_whole(void)
{
    static char buffer[1 << 16];
    uint64_t hash = 14695981039346656037u;
    int count = 0;
    MPI_Status status;
    memset(buffer, 0, sizeof buffer);
    int rc = MPI_File_read_at(file, 0, buffer, sizeof buffer, MPI_BYTE, &status);
    if (rc == MPI_SUCCESS)
        MPI_Get_count(&status, MPI_BYTE, &count);
    for (int i = 0; i < count; i++)
        hash = (hash ^ (unsigned char)buffer[i]) * 1099511628211u;
    note("read", rc, (long long)(hash >> 1));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void resize(int preallocates, MPI_Offset more)
{
    MPI_Offset size = 0;
    MPI_File_get_size(file, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    note("resize", preallocates ? MPI_File_preallocate(file, size + more) : MPI_File_set_size(file, size + more), 0);
    look();
    MPI_Barrier(MPI_COMM_WORLD);
}

static void larger(void) { resize(0, 5000); }
static void smaller(void) { resize(0, -5001); }
static void preallocate(void) { resize(1, 3000); }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step)(void);
    } steps[] = {{"look", look},     {"seek-end", seek_end},     {"shared-end", shared_end},
                 {"add", add},       {"add-shared", add_shared}, {"read", read_whole},
                 {"larger", larger}, {"smaller", smaller},       {"preallocate", preallocate}};
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    const int opened = MPI_File_open(MPI_COMM_WORLD, argv[1], mode_of(argv[3]), MPI_INFO_NULL, &file);
    note("open", opened, 0);
    for (int i = 4; opened == MPI_SUCCESS && i < argc; i++)
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            if (strcmp(argv[i], steps[s].name) == 0)
                steps[s].step();
    if (opened == MPI_SUCCESS)
        note("close", MPI_File_close(&file), 0);
    fclose(out);
    MPI_Finalize();
    return 0;
}
