/* Every call on a file that forms.c does not make. Usage: others FILE */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Request request;
    MPI_Offset offset;
    MPI_Group group;
    MPI_Info info;
    MPI_Datatype etype, filetype;
    MPI_Aint extent;
    char representation[MPI_MAX_DATAREP_STRING];
    int data[4] = {1, 2, 3, 4}, flag;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_preallocate(file, 100);
    MPI_File_set_size(file, 256);
    MPI_File_write_shared(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_iwrite_shared(file, data, 4, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_write_ordered(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_File_get_position_shared(file, &offset);
    MPI_File_read_shared(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_iread_shared(file, data, 4, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_read_ordered(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_write_all_begin(file, data, 4, MPI_INT);
    MPI_File_write_all_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_write_at_all_begin(file, 32, data, 4, MPI_INT);
    MPI_File_write_at_all_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_write_ordered_begin(file, data, 4, MPI_INT);
    MPI_File_write_ordered_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_read_all_begin(file, data, 4, MPI_INT);
    MPI_File_read_all_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_read_at_all_begin(file, 32, data, 4, MPI_INT);
    MPI_File_read_at_all_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_read_ordered_begin(file, data, 4, MPI_INT);
    MPI_File_read_ordered_end(file, data, MPI_STATUS_IGNORE);
    MPI_File_set_atomicity(file, 1);
    MPI_File_get_atomicity(file, &flag);
    MPI_File_get_amode(file, &flag);
    MPI_File_get_byte_offset(file, 3, &offset);
    MPI_File_get_group(file, &group);
    MPI_File_get_info(file, &info);
    MPI_File_set_info(file, info);
    MPI_File_get_position(file, &offset);
    MPI_File_get_size(file, &offset);
    MPI_File_get_type_extent(file, MPI_INT, &extent);
    MPI_File_get_view(file, &offset, &etype, &filetype, representation);
    MPI_File_sync(file);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_delete(argv[1], MPI_INFO_NULL);
    MPI_Finalize();
    return 0;
}
