/* Leaves failing calls from the file's error handler, by longjmp or, in C++, by an exception, and
 * goes on: jumps FILE OUT. */
#include <mpi.h>

#include <setjmp.h>
#include <stdio.h>

/* Not inlined: the handler has to leave a call that was made from here. */
#ifdef __cplusplus
static void jump(MPI_File *, int *error, ...)
{
    throw *error;
}

__attribute__((noinline)) static int fail(MPI_File file)
{
    char byte;
    MPI_Status status;
    try {
        MPI_File_read(file, &byte, -1, MPI_BYTE, &status);
    } catch (int) {
        return 1;
    }
    return 0;
}
#else
static jmp_buf back;

static void jump(MPI_File *file, int *error, ...)
{
    (void)file;
    longjmp(back, *error != MPI_SUCCESS);
}

__attribute__((noinline)) static int fail(MPI_File file)
{
    char byte;
    MPI_Status status;
    if (setjmp(back) != 0)
        return 1;
    MPI_File_read(file, &byte, -1, MPI_BYTE, &status);
    return 0;
}
#endif

/* Collective calls from deeper on the stack than the one that rank 0 has left. */
__attribute__((noinline)) static unsigned go_on(MPI_File *file, const char *path)
{
    volatile char room[20000];
    char buffer[96];
    unsigned sum = 0;
    for (unsigned i = 0; i < sizeof room; i++)
        room[i] = 0;
    MPI_File_close(file);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, file);
    MPI_File_read_at_all(*file, 480, buffer, sizeof buffer, MPI_BYTE, MPI_STATUS_IGNORE);
    for (unsigned j = 0; j < sizeof buffer; j++)
        sum = sum * 31 + (unsigned char)buffer[j];
    return sum + (unsigned)room[sum % sizeof room];
}

int main(int argc, char **argv)
{
    char name[4096], buffer[96];
    MPI_File file;
    MPI_Errhandler handler;
    int rank, jumped = 0;
    unsigned sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_create_errhandler(jump, &handler);
    MPI_File_set_errhandler(file, handler);
    MPI_File_seek(file, 480, MPI_SEEK_SET);
    for (int i = 0; i < 5; i++) {
        jumped += fail(file);
        MPI_File_read(file, buffer, sizeof buffer, MPI_BYTE, MPI_STATUS_IGNORE);
        for (unsigned j = 0; j < sizeof buffer; j++)
            sum = sum * 31 + (unsigned char)buffer[j];
    }
    if (rank == 0)
        jumped += fail(file);
    sum = sum * 31 + go_on(&file, argv[1]);
    snprintf(name, sizeof name, "%s.%d", argv[2], rank);
    FILE *out = fopen(name, "w");
    fprintf(out, "jumped %d sum %u\n", jumped, sum);
    fclose(out);
    MPI_Errhandler_free(&handler);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
