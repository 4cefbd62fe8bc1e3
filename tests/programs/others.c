/* Every call on a file that forms.c does not make; compiled with -DTWINS, those with large counts.
 * Write number k writes the ints k, 10 * k, 100 * k, 1000 * k. Usage: others FILE FILE_TO_DELETE */
#include <mpi.h>

#ifdef TWINS
#define CALL(name) MPI_File_##name##_c
typedef MPI_Count extent_type;
#else
#define CALL(name) MPI_File_##name
typedef MPI_Aint extent_type;
#endif

static int data[4];

static int *next(void)
{
    static int k;
    data[0] = ++k;
    for (int i = 1; i < 4; i++)
        data[i] = 10 * data[i - 1];
    return data;
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Request request;
    MPI_Offset offset;
    MPI_Group group;
    MPI_Info info;
    MPI_Datatype etype, filetype;
    extent_type extent;
    char representation[MPI_MAX_DATAREP_STRING];
    int flag;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_preallocate(file, 100);
    MPI_File_set_size(file, 256);
    CALL(write_shared)(file, next(), 4, MPI_INT, MPI_STATUS_IGNORE);
    CALL(iwrite_shared)(file, next(), 4, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CALL(write_ordered)(file, next(), 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_File_get_position_shared(file, &offset);
    CALL(read_shared)(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    CALL(iread_shared)(file, data, 4, MPI_INT, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CALL(read_ordered)(file, data, 4, MPI_INT, MPI_STATUS_IGNORE);
    CALL(write_ordered_begin)(file, next(), 4, MPI_INT);
    MPI_File_write_ordered_end(file, data, MPI_STATUS_IGNORE);
    CALL(read_ordered_begin)(file, data, 4, MPI_INT);
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
    CALL(get_type_extent)(file, MPI_INT, &extent);
    MPI_File_get_view(file, &offset, &etype, &filetype, representation);
    MPI_File_sync(file);
    MPI_File_close(&file);
    MPI_File_delete(argv[2], MPI_INFO_NULL);
    MPI_Finalize();
    return 0;
}
