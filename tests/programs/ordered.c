/* Ordered calls of three ranks with different sizes. Step number k of rank r writes ints that are
 * 100 * r + k. Usage: ordered DIRECTORY */
#include <mpi.h>
#include <stdio.h>

enum { LARGEST = 40 };

static const int counts[][3] = {{2, 0, 3}, {1, 4, 2}, {3, 1, 1}, {1, 1, 5}, {2, 2, 2}, {LARGEST, 30, 20}};
static int rank, step;

static MPI_File open_file(const char *directory, const char *name)
{
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    step = 0;
    return file;
}

static const int *next(void)
{
    static int data[LARGEST];
    step++;
    for (int i = 0; i < LARGEST; i++)
        data[i] = 100 * rank + step;
    return data;
}

static void write_ordered(MPI_File file, int which)
{
    MPI_File_write_ordered(file, next(), counts[which][rank], MPI_INT, MPI_STATUS_IGNORE);
}

static void write_split(MPI_File file, int which)
{
    const int *data = next();
    MPI_File_write_ordered_begin(file, data, counts[which][rank], MPI_INT);
    MPI_File_write_ordered_end(file, data, MPI_STATUS_IGNORE);
}

static void read_ordered(MPI_File file, int which)
{
    int data[LARGEST];
    MPI_File_read_ordered(file, data, counts[which][rank], MPI_INT, MPI_STATUS_IGNORE);
}

static void read_split(MPI_File file, int which)
{
    int data[LARGEST];
    MPI_File_read_ordered_begin(file, data, counts[which][rank], MPI_INT);
    MPI_File_read_ordered_end(file, data, MPI_STATUS_IGNORE);
}

static void in_bytes(MPI_File file)
{
    write_ordered(file, 0);
    write_split(file, 1);
    MPI_File_seek_shared(file, 8, MPI_SEEK_SET);
    read_split(file, 2);
    read_ordered(file, 5);
    write_ordered(file, 4);
    MPI_File_seek_shared(file, -24, MPI_SEEK_CUR);
    read_ordered(file, 0);
}

static void in_blocks(MPI_File file)
{
    MPI_Datatype pair, blocks;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 20, &blocks);
    MPI_Type_commit(&blocks);
    MPI_File_set_view(file, 40, MPI_INT, blocks, "native", MPI_INFO_NULL);
    write_ordered(file, 0);
    write_split(file, 1);
    MPI_File_seek_shared(file, 14, MPI_SEEK_SET);
    write_ordered(file, 2);
    write_split(file, 3);
    MPI_File_set_view(file, 400, MPI_INT, blocks, "native", MPI_INFO_NULL);
    write_ordered(file, 4);
    MPI_Type_free(&pair);
    MPI_Type_free(&blocks);
}

static void with_one_alone(MPI_File file)
{
    write_ordered(file, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        MPI_File_write_shared(file, next(), 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    write_split(file, 1);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    read_ordered(file, 2);
    MPI_File_set_view(file, 400, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    write_ordered(file, 3);
}

static void once(MPI_File file)
{
    write_ordered(file, 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(MPI_File file);
    } files[] = {{"bytes", in_bytes}, {"blocks", in_blocks}, {"alone", with_one_alone}, {"once", once}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 4; i++) {
        MPI_File file = open_file(argv[1], files[i].name);
        files[i].make(file);
        MPI_File_close(&file);
    }
    MPI_Finalize();
    return 0;
}
