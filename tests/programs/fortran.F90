! What forms.c (mode "forms") and others.c (mode "others") do, in Fortran: compiled with -DF08 through mpi_f08, with -DMODULE
! through the module mpi, else through mpif.h. Usage: fortran MODE FILE [FILE_TO_DELETE]
#ifdef F08
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status)
#else
#define HANDLE(kind) integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#endif
#define INTS data, 4, MPI_INTEGER
#define IGNORED MPI_STATUS_IGNORE, ierror

program fortran
#if defined(F08)
    use mpi_f08
#elif defined(MODULE)
    use mpi
#endif
    implicit none
#if !defined(F08) && !defined(MODULE)
    include 'mpif.h'
#endif
    integer, parameter :: o = MPI_OFFSET_KIND
    HANDLE(MPI_File) :: file
    HANDLE(MPI_Request) :: requests(2)
    STATUS :: status
    character(len=1000) :: mode, path, other
    integer :: ierror, rank, k = 0
    integer, asynchronous :: data(4)

    call get_command_argument(1, mode)
    call get_command_argument(2, path)
    call get_command_argument(3, other)
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_File_open(MPI_COMM_WORLD, path, ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, ierror)
    if (mode == 'forms') then
        call set_view
        call write_forms
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
        call read_forms
    else
        call shared_forms
        call without_data
    end if
    call MPI_File_close(file, ierror)
    if (mode == 'others') call MPI_File_delete(other, MPI_INFO_NULL, ierror)
    call MPI_Finalize(ierror)

contains

    subroutine set_view
        HANDLE(MPI_Datatype) :: pair, filetype
        call MPI_Type_contiguous(2, MPI_INTEGER, pair, ierror)
        call MPI_Type_create_resized(pair, 0_MPI_ADDRESS_KIND, 16_MPI_ADDRESS_KIND, filetype, ierror)
        call MPI_Type_commit(filetype, ierror)
        call MPI_File_set_view(file, 16_o + 8_o * rank, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierror)
        call MPI_Type_free(filetype, ierror)
        call MPI_Type_free(pair, ierror)
    end subroutine

    subroutine next
        integer :: i
        k = k + 1
        if (mode == 'forms') then
            data = [(1000 * k + i, i = 0, 3)]
        else
            data = [(k * 10**i, i = 0, 3)]
        end if
    end subroutine

    subroutine wait_one
        call MPI_Wait(requests(1), IGNORED)
    end subroutine

    subroutine wait_all
        requests(2) = MPI_REQUEST_NULL
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
    end subroutine

    subroutine write_forms
        call next; call MPI_File_write(file, INTS, IGNORED)
        call next; call MPI_File_write_all(file, INTS, status, ierror)
        call next; call MPI_File_write_at(file, 8_o, INTS, IGNORED)
        call next; call MPI_File_write_at_all(file, 12_o, INTS, status, ierror)
        call next; call MPI_File_iwrite(file, INTS, requests(1), ierror); call wait_one
        call next; call MPI_File_iwrite_all(file, INTS, requests(1), ierror); call wait_all
        call next; call MPI_File_iwrite_at(file, 16_o, INTS, requests(1), ierror); call wait_one
        call next; call MPI_File_iwrite_at_all(file, 20_o, INTS, requests(1), ierror); call wait_all
        call next; call MPI_File_write_all_begin(file, INTS, ierror)
        call MPI_File_write_all_end(file, data, IGNORED)
        call next; call MPI_File_write_at_all_begin(file, 24_o, INTS, ierror)
        call MPI_File_write_at_all_end(file, data, status, ierror)
    end subroutine

    ! The last read got what write number `number` wrote.
    subroutine check(number)
        integer, intent(in) :: number
        integer :: i
        if (any(data /= [(1000 * number + i, i = 0, 3)])) error stop 'wrong data'
        data = 0
    end subroutine

    subroutine check_with_status(number)
        integer, intent(in) :: number
        integer :: count
        call MPI_Get_count(status, MPI_INTEGER, count, ierror)
        if (count /= 4) error stop 'wrong count'
        call check(number)
    end subroutine

    subroutine read_forms
        call MPI_File_seek(file, 0_o, MPI_SEEK_SET, ierror)
        call MPI_File_read(file, INTS, IGNORED); call check(1)
        call MPI_File_read_all(file, INTS, status, ierror); call check_with_status(2)
        call MPI_File_read_at(file, 8_o, INTS, IGNORED); call check(5)
        call MPI_File_read_at_all(file, 12_o, INTS, status, ierror); call check_with_status(6)
        call MPI_File_iread(file, INTS, requests(1), ierror); call wait_one; call check(5)
        call MPI_File_iread_all(file, INTS, requests(1), ierror); call wait_all; call check(6)
        call MPI_File_iread_at(file, 16_o, INTS, requests(1), ierror); call wait_one; call check(9)
        call MPI_File_iread_at_all(file, 20_o, INTS, requests(1), ierror); call wait_all; call check(8)
        call MPI_File_read_all_begin(file, INTS, ierror)
        call MPI_File_read_all_end(file, data, IGNORED); call check(9)
        call MPI_File_read_at_all_begin(file, 24_o, INTS, ierror)
        call MPI_File_read_at_all_end(file, data, status, ierror); call check_with_status(10)
        call MPI_File_seek(file, 2_o, MPI_SEEK_CUR, ierror)
        call MPI_File_read_at(file, 26_o, INTS, status, ierror)
    end subroutine

    subroutine shared_forms
        integer(o) :: offset
        call MPI_File_preallocate(file, 100_o, ierror)
        call MPI_File_set_size(file, 256_o, ierror)
        call next; call MPI_File_write_shared(file, INTS, IGNORED)
        call next; call MPI_File_iwrite_shared(file, INTS, requests(1), ierror); call wait_one
        call next; call MPI_File_write_ordered(file, INTS, IGNORED)
        call MPI_File_seek_shared(file, 0_o, MPI_SEEK_SET, ierror)
        call MPI_File_get_position_shared(file, offset, ierror)
        call MPI_File_read_shared(file, INTS, status, ierror)
        call MPI_File_iread_shared(file, INTS, requests(1), ierror); call wait_all
        call MPI_File_read_ordered(file, INTS, status, ierror)
        call next; call MPI_File_write_ordered_begin(file, INTS, ierror)
        call MPI_File_write_ordered_end(file, data, IGNORED)
        call MPI_File_read_ordered_begin(file, INTS, ierror)
        call MPI_File_read_ordered_end(file, data, status, ierror)
    end subroutine

    subroutine without_data
        HANDLE(MPI_Datatype) :: etype, filetype
        HANDLE(MPI_Group) :: group
        HANDLE(MPI_Info) :: info
        integer(o) :: offset
        integer(MPI_ADDRESS_KIND) :: extent
        integer :: amode
        logical :: flag
        character(len=MPI_MAX_DATAREP_STRING) :: representation
        call MPI_File_set_atomicity(file, .true., ierror)
        call MPI_File_get_atomicity(file, flag, ierror)
        call MPI_File_get_amode(file, amode, ierror)
        call MPI_File_get_byte_offset(file, 3_o, offset, ierror)
        call MPI_File_get_group(file, group, ierror)
        call MPI_File_get_info(file, info, ierror)
        call MPI_File_set_info(file, info, ierror)
        call MPI_File_get_position(file, offset, ierror)
        call MPI_File_get_size(file, offset, ierror)
        call MPI_File_get_type_extent(file, MPI_INTEGER, extent, ierror)
        call MPI_File_get_view(file, offset, etype, filetype, representation, ierror)
        call MPI_File_sync(file, ierror)
    end subroutine
end program
