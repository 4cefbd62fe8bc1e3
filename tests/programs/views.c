/* Writes through a view of each datatype constructor, one file each: byte i of the data stream is i % 251 + 1, from
 * byte 5 on. Usage: views DIRECTORY */
#include <mpi.h>
#include <stdio.h>

enum { START = 5, BYTES = 400 };

static void write_through(const char *directory, const char *name, MPI_Datatype type)
{
    char path[1000];
    unsigned char data[BYTES];
    MPI_File file;
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)((START + i) % 251 + 1);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    MPI_Type_commit(&type);
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 64, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_File_write_at(file, START, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Datatype type, inner, types[3] = {MPI_INT, MPI_CHAR, MPI_DOUBLE};
    int lengths[3] = {2, 3, 1}, places[3] = {1, 6, 10}, uneven[3] = {0, 5, 11};
    MPI_Aint bytes[3] = {4, 20, 40};
    int sizes[3] = {4, 5, 6}, parts[3] = {2, 3, 2}, starts[3] = {1, 1, 3};
    int distributions[3] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}, grid[3] = {2, 2, 1};
    int arguments[3] = {MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG};
    const char *directory = argv[1];

    write_through(directory, "contiguous", (MPI_Type_contiguous(7, MPI_INT, &type), type));
    write_through(directory, "dup", (MPI_Type_dup(MPI_DOUBLE, &type), type));
    write_through(directory, "vector", (MPI_Type_vector(5, 2, 3, MPI_INT, &type), type));
    write_through(directory, "hvector", (MPI_Type_create_hvector(5, 2, 13, MPI_INT, &type), type));
    write_through(directory, "indexed", (MPI_Type_indexed(3, lengths, places, MPI_INT, &type), type));
    write_through(directory, "hindexed", (MPI_Type_create_hindexed(3, lengths, bytes, MPI_INT, &type), type));
    write_through(directory, "indexed_block", (MPI_Type_create_indexed_block(3, 2, uneven, MPI_INT, &type), type));
    write_through(directory, "hindexed_block", (MPI_Type_create_hindexed_block(3, 2, bytes, MPI_INT, &type), type));
    write_through(directory, "struct", (MPI_Type_create_struct(3, lengths, bytes, types, &type), type));
    write_through(directory, "subarray_c",
                  (MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type), type));
    write_through(directory, "subarray_fortran",
                  (MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type), type));
    write_through(directory, "darray_c", (MPI_Type_create_darray(4, 1, 3, sizes, distributions, arguments, grid,
                                                                 MPI_ORDER_C, MPI_INT, &type), type));
    write_through(directory, "darray_fortran", (MPI_Type_create_darray(4, 2, 3, sizes, distributions, arguments, grid,
                                                                       MPI_ORDER_FORTRAN, MPI_INT, &type), type));
    write_through(directory, "resized", (MPI_Type_create_resized(MPI_INT, 0, 11, &type), type));
    MPI_Type_vector(3, 1, 2, MPI_INT, &inner);
    write_through(directory, "vector_of_vectors", (MPI_Type_create_hvector(4, 1, 50, inner, &type), type));
    MPI_Type_free(&inner);
    MPI_Finalize();
    return 0;
}
