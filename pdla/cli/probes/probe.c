/* The MPI-IO program of 'pdla doctor': probe FILE, for two ranks. The view of a rank has 8 bytes of
 * every 16, and data byte i of rank r is i * 2 + r. Each rank prints its rank, the number of ranks,
 * whether libpdla.so is to be preloaded, whether libmpi is a shared library, the version of MPI, and
 * the name that MPI gives itself. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 112, SECONDS = 30 };

#if MPI_VERSION >= 4
#define WRITE_AT_LARGE MPI_File_write_at_c
#else
#define WRITE_AT_LARGE MPI_File_write_at
#endif

static int has_shared_mpi(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strstr(line, "/libmpi") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

static void print_line(int rank, int ranks)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    const char *preload = getenv("LD_PRELOAD");
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0';
    printf("probe %d %d %d %d %d %s\n", rank, ranks, preload && strstr(preload, "libpdla.so"), has_shared_mpi(),
           MPI_VERSION, version);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    unsigned char data[BYTES], got[BYTES];
    MPI_File file;
    MPI_Request request;
    MPI_Datatype piece, filetype;
    alarm(SECONDS); /* a rank whose launcher is gone ends, too */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 2 + rank);
    print_line(rank, ranks);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Type_contiguous(8, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, 16, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, 8 * rank, MPI_BYTE, filetype, "native", MPI_INFO_NULL);
    MPI_File_write_at_all(file, 0, data, 32, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_write_at(file, 32, data + 32, 16, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_iwrite_at(file, 48, data + 48, 16, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_seek(file, 64, MPI_SEEK_SET);
    MPI_File_write(file, data + 64, 16, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_write_all_begin(file, data + 80, 16, MPI_BYTE);
    MPI_File_write_all_end(file, data + 80, MPI_STATUS_IGNORE);
    WRITE_AT_LARGE(file, 96, data + 96, 16, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_File_read_at_all(file, 0, got, 32, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 32, got + 32, 16, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_iread_at(file, 48, got + 48, 16, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&filetype);
    MPI_Type_free(&piece);
    MPI_Finalize();
    return memcmp(data, got, 64) != 0;
}
