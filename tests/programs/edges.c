/* Calls of no bytes, of too many and of very many, by one rank:
 *   edges FILE         reads and writes 100 bytes, in the order of tests/collectors/test_programs.py
 *   edges FILE huge    reads 3 GiB from byte 5 on, in two ways
 *   edges FILE blocks  writes 8 bytes near the end of a view of a million blocks
 *   edges FILE absurd  writes 10 bytes and asks for bytes that no file has */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GiB (1ll << 30)

static MPI_File file;

static void nothing(char *bytes)
{
    MPI_Request request;
    MPI_File_write_at(file, 10, bytes, 0, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_write_all(file, bytes, 0, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_iwrite_at(file, 5, bytes, 0, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_read(file, bytes, 0, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void past_the_end(char *bytes)
{
    MPI_File_read_at(file, 60, bytes, 100, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 100, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, 70, bytes, 100, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 96, bytes, 3, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_seek_shared(file, 85, MPI_SEEK_SET);
    MPI_File_read_shared(file, bytes, 50, MPI_BYTE, MPI_STATUS_IGNORE);
#ifndef OPEN_MPI /* its waits for such reads do not end */
    MPI_Request request;
    MPI_File_seek(file, 80, MPI_SEEK_SET);
    MPI_File_read_all_begin(file, bytes, 50, MPI_BYTE);
    MPI_File_read_all_end(file, bytes, MPI_STATUS_IGNORE);
    MPI_File_iread_at(file, 95, bytes, 10, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

/* 3 GiB of addresses on 1 MiB of memory. */
static char *many_addresses(void)
{
    const size_t size = 1 << 20;
    int memory = memfd_create("buffer", 0);
    char *all = mmap(NULL, 3 * GiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 || ftruncate(memory, size) != 0)
        return NULL;
    for (char *part = all; part < all + 3 * GiB; part += size)
        mmap(part, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0);
    return all;
}

static void huge(void)
{
    MPI_Datatype mebibyte;
    char *buffer = many_addresses();
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &mebibyte);
    MPI_Type_commit(&mebibyte);
    MPI_File_set_size(file, 3 * GiB + 5);
    MPI_File_read_at(file, 5, buffer, 3072, mebibyte, MPI_STATUS_IGNORE);
#if defined(LARGE_COUNTS) && MPICH_NUMVERSION >= 40100000 /* earlier versions fail an assertion */
    MPI_File_read_at_c(file, 5, buffer, 3 * GiB, MPI_BYTE, MPI_STATUS_IGNORE);
#endif
    MPI_File_set_size(file, 0);
    MPI_Type_free(&mebibyte);
}

static void absurd(char *bytes)
{
    MPI_File_write_at(file, 0, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, INT64_MAX - 4, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_set_size(file, INT64_MAX);
}

static void blocks(void)
{
    MPI_Datatype type;
    MPI_Type_vector(1000000, 4, 8, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, 100, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_File_write_at(file, 3999990, "12345678", 8, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    char bytes[100];
    MPI_Init(&argc, &argv);
    memset(bytes, 1, sizeof bytes);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (argc > 2 && strcmp(argv[2], "huge") == 0) {
        huge();
    } else if (argc > 2 && strcmp(argv[2], "absurd") == 0) {
        absurd(bytes);
    } else if (argc > 2) {
        blocks();
    } else {
        MPI_File_write_at(file, 0, bytes, 100, MPI_BYTE, MPI_STATUS_IGNORE);
        nothing(bytes);
        past_the_end(bytes);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
