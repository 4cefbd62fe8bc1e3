/* Parallel HDF5: hdf5 FILE, for 2 ranks. In the dataset "rows", 8 x 12 ints, a rank writes every
 * other column of the first 4 rows collectively and 2 of the other rows independently. In "chunks",
 * 8 x 8 ints in chunks of 4 x 4, it writes the left or the right half collectively. Each int is the
 * rank plus 1. */
#include <hdf5.h>
#include <mpi.h>

static int rank, ints[64];

static hid_t transfer(H5FD_mpio_xfer_t mode)
{
    hid_t list = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(list, mode);
    return list;
}

static hid_t create(hid_t file, const char *name, hsize_t rows, hsize_t columns, const hsize_t *chunk)
{
    hid_t space = H5Screate_simple(2, (hsize_t[]){rows, columns}, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    if (chunk)
        H5Pset_chunk(list, 2, chunk);
    hid_t dataset = H5Dcreate(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    H5Sclose(space);
    return dataset;
}

/* `columns` of the `rows` from the place on, every `stride`-th one. */
static void write_part(hid_t dataset, H5FD_mpio_xfer_t mode, hsize_t row, hsize_t column, hsize_t rows, hsize_t columns,
                       hsize_t stride)
{
    hid_t space = H5Dget_space(dataset), list = transfer(mode);
    hid_t memory = H5Screate_simple(2, (hsize_t[]){rows, columns}, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, (hsize_t[]){row, column}, (hsize_t[]){1, stride},
                        (hsize_t[]){rows, columns}, NULL);
    H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, list, ints);
    H5Sclose(memory);
    H5Pclose(list);
    H5Sclose(space);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 64; i++)
        ints[i] = rank + 1;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t rows = create(file, "rows", 8, 12, NULL), chunks = create(file, "chunks", 8, 8, (hsize_t[]){4, 4});
    write_part(rows, H5FD_MPIO_COLLECTIVE, 0, (hsize_t)rank, 4, 6, 2);
    write_part(rows, H5FD_MPIO_INDEPENDENT, 4 + 2 * (hsize_t)rank, 0, 2, 12, 1);
    write_part(chunks, H5FD_MPIO_COLLECTIVE, 0, 4 * (hsize_t)rank, 8, 4, 1);
    H5Dclose(rows);
    H5Dclose(chunks);
    H5Fclose(file);
    H5Pclose(access);
    MPI_Finalize();
    return 0;
}
