/* Every form of data access except those by the shared pointer (others.c). Two ranks access the
 * file through a view of 2 ints in 4, in the order of tests/collectors/test_shim.py. The ints that call number
 * k writes are 1000 * k, 1000 * k + 1, ... Usage: forms FILE [large] */
#include <mpi.h>
#include <string.h>

static MPI_File file;
static int data[4], k;

static int *next(void)
{
    k++;
    for (int i = 0; i < 4; i++)
        data[i] = 1000 * k + i;
    return data;
}

#define CALL(name, ...) MPI_File_##name(file, __VA_ARGS__, MPI_INT, MPI_STATUS_IGNORE)
#define START(name, ...)                                     \
    do {                                                     \
        MPI_Request request;                                 \
        MPI_File_##name(file, __VA_ARGS__, MPI_INT, &request); \
        MPI_Wait(&request, MPI_STATUS_IGNORE);               \
    } while (0)

#define SPLIT(call, suffix, ...)                                           \
    do {                                                                   \
        MPI_File_##call##_begin##suffix(file, __VA_ARGS__, 4, MPI_INT);    \
        MPI_File_##call##_end(file, data, MPI_STATUS_IGNORE);              \
    } while (0)

static void plain(void)
{
    MPI_Status status;
    CALL(write, next(), 4);
    CALL(write_all, next(), 4);
    CALL(write_at, 8, next(), 4);
    CALL(write_at_all, 12, next(), 4);
    START(iwrite, next(), 4);
    START(iwrite_all, next(), 4);
    START(iwrite_at, 16, next(), 4);
    START(iwrite_at_all, 20, next(), 4);
    SPLIT(write_all,, next());
    SPLIT(write_at_all,, 24, next());
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    CALL(read, data, 4);
    CALL(read_all, data, 4);
    CALL(read_at, 8, data, 4);
    CALL(read_at_all, 12, data, 4);
    START(iread, data, 4);
    START(iread_all, data, 4);
    START(iread_at, 16, data, 4);
    START(iread_at_all, 20, data, 4);
    SPLIT(read_all,, data);
    SPLIT(read_at_all,, 24, data);
    MPI_File_seek(file, 2, MPI_SEEK_CUR);
    MPI_File_read_at(file, 26, data, 4, MPI_INT, &status);
}

#ifdef LARGE_COUNTS
static void large(void)
{
    CALL(write_c, next(), 4);
    CALL(write_all_c, next(), 4);
    CALL(write_at_c, 8, next(), 4);
    CALL(write_at_all_c, 12, next(), 4);
    START(iwrite_c, next(), 4);
    START(iwrite_all_c, next(), 4);
    START(iwrite_at_c, 16, next(), 4);
    START(iwrite_at_all_c, 20, next(), 4);
    SPLIT(write_all, _c, next());
    SPLIT(write_at_all, _c, 24, next());
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    CALL(read_c, data, 4);
    CALL(read_all_c, data, 4);
    CALL(read_at_c, 8, data, 4);
    CALL(read_at_all_c, 12, data, 4);
    START(iread_c, data, 4);
    START(iread_all_c, data, 4);
    START(iread_at_c, 16, data, 4);
    START(iread_at_all_c, 20, data, 4);
    SPLIT(read_all, _c, data);
    SPLIT(read_at_all, _c, 24, data);
    MPI_File_seek(file, 2, MPI_SEEK_CUR);
    CALL(read_at_c, 26, data, 4);
}
#endif

int main(int argc, char **argv)
{
    int rank;
    MPI_Datatype pair, filetype;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 16, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, 16 + 8 * rank, MPI_INT, filetype, "native", MPI_INFO_NULL);
    MPI_Type_free(&filetype);
    MPI_Type_free(&pair);
#ifdef LARGE_COUNTS
    if (argc > 2 && strcmp(argv[2], "large") == 0)
        large();
    else
#endif
        plain();
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
