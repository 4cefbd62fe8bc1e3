/* Calls that MPI refuses, and the file's state after them: misuse FILE OUT. OUT.<rank> gets the
 * error class of each. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

static FILE *out;
static MPI_File file;
static char buffer[4096];

static void say(const char *what, int rc)
{
    int class = 0;
    MPI_Offset position = -1;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    if (file != MPI_FILE_NULL)
        MPI_File_get_position(file, &position);
    fprintf(out, "%s class=%d position=%lld\n", what, class, (long long)position);
}

static void open_wrongly(const char *path, int rank)
{
    MPI_Comm half, between;
    MPI_File none;
    /* The class that Open MPI's open gives for a wrong communicator. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    say("no communicator", MPI_File_open(MPI_COMM_NULL, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &none));
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &between);
    say("an intercommunicator", MPI_File_open(between, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &none));
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
    say("no such file", MPI_File_open(MPI_COMM_WORLD, "/nothing/there", MPI_MODE_RDONLY, MPI_INFO_NULL, &none));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    say("two modes", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_RDWR, MPI_INFO_NULL, &none));
}

static void read_wrongly(void)
{
    MPI_Request request;
    say("no type", MPI_File_read_at(file, 500, buffer, 10, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE));
    say("no type, iread", MPI_File_iread(file, buffer, 10, MPI_DATATYPE_NULL, &request));
    say("no type, shared", MPI_File_read_shared(file, buffer, 10, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE));
    say("negative count", MPI_File_read_at(file, 500, buffer, -1, MPI_BYTE, MPI_STATUS_IGNORE));
    say("negative offset", MPI_File_read_at(file, -5, buffer, 10, MPI_BYTE, MPI_STATUS_IGNORE));
    say("write", MPI_File_write_at(file, 500, buffer, 10, MPI_BYTE, MPI_STATUS_IGNORE));
    say("negative displacement", MPI_File_set_view(file, -7, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    say("no representation", MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "nothing", MPI_INFO_NULL));
    say("no file type", MPI_File_set_view(file, 0, MPI_BYTE, MPI_DATATYPE_NULL, "native", MPI_INFO_NULL));
    say("seek", MPI_File_seek(file, -1, MPI_SEEK_SET));
    say("read", MPI_File_read(file, buffer, 100, MPI_BYTE, MPI_STATUS_IGNORE));
    say("no file", MPI_File_read(MPI_FILE_NULL, buffer, 100, MPI_BYTE, MPI_STATUS_IGNORE));
}

int main(int argc, char **argv)
{
    char name[4096];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    out = fopen(name, "w");
    setvbuf(out, NULL, _IOLBF, 4096);
    file = MPI_FILE_NULL;
    open_wrongly(argv[1], rank);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    read_wrongly();
    MPI_File_close(&file);
    fclose(out);
    MPI_Finalize();
    return 0;
}
