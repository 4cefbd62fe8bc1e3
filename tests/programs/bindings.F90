! What depends on the binding of a redirected call, in Fortran: compiled with -DF08 through mpi_f08, with -DMODULE through the module
! mpi, else through mpif.h. Each rank reads a column of the file DIRECTORY/data, writes one of DIRECTORY/written and one of
! DIRECTORY/grown, which is new, and says what it sees in the file OUT.rank, a line a call: the hazard's number, then results.
! Usage: bindings DIRECTORY OUT [no-bottom]
#ifdef F08
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status)
#else
#define HANDLE(kind) integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#endif
#define IGNORED MPI_STATUS_IGNORE, ierror

module handling
    implicit none
    integer :: handled = 0
contains
    subroutine count_it(file, code)
#ifdef F08
        use mpi_f08
#endif
        HANDLE(MPI_File) :: file
        integer :: code
        if (code /= 0) handled = handled + 1
    end subroutine
end module

program bindings
    use handling
#if defined(F08)
    use mpi_f08
#elif defined(MODULE)
    use mpi
#endif
    implicit none
#if !defined(F08) && !defined(MODULE)
    include 'mpif.h'
#endif
    integer, parameter :: o = MPI_OFFSET_KIND, piece = 24, rows = 60
    HANDLE(MPI_File) :: file
    HANDLE(MPI_Request) :: requests(2)
    STATUS :: status
    character(len=1000) :: directory, out, how, name
    integer :: ierror, rank, unit
    integer, asynchronous, volatile :: data(100), more(100) ! MPI finds them by their addresses

    call get_command_argument(1, directory)
    call get_command_argument(2, out)
    call get_command_argument(3, how)
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    write (name, '(a,a,i0)') trim(out), '.', rank
    open (newunit=unit, file=name)
    call open_file('data', MPI_MODE_RDONLY)
    call with_status
    call without_status
    call memory
    call nonblocking
    call split
    call errors
    call MPI_File_close(file, ierror)
    call open_file('written', ior(MPI_MODE_CREATE, MPI_MODE_RDWR))
    call writing
    call MPI_File_close(file, ierror)
    call open_file('written', MPI_MODE_RDONLY)
    call MPI_File_read_at_all(file, 0_o, data, 96, MPI_INTEGER, status, ierror)
    call tell(1)
    call MPI_File_close(file, ierror)
    call open_file('grown', ior(MPI_MODE_CREATE, MPI_MODE_RDWR))
    call growing
    call MPI_File_close(file, ierror)
    call open_file('grown', MPI_MODE_RDONLY)
    call tell_size
    call MPI_File_read_all(file, data, 96, MPI_INTEGER, status, ierror)
    call tell(49)
    call MPI_File_close(file, ierror)
    close (unit)
    call MPI_Finalize(ierror)

contains

    subroutine open_file(which, amode)
        character(len=*), intent(in) :: which
        integer, intent(in) :: amode
        HANDLE(MPI_Datatype) :: part, filetype
        call MPI_File_open(MPI_COMM_WORLD, trim(directory)//'/'//which, amode, MPI_INFO_NULL, file, ierror)
        call MPI_Type_contiguous(piece, MPI_INTEGER, part, ierror)
        call MPI_Type_create_resized(part, 0_MPI_ADDRESS_KIND, 384_MPI_ADDRESS_KIND, filetype, ierror)
        call MPI_Type_commit(filetype, ierror)
        call MPI_File_set_view(file, 480_o + 96_o * rank, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierror)
        call MPI_Type_free(filetype, ierror)
        call MPI_Type_free(part, ierror)
        data = -1
        more = -1
    end subroutine

    ! What is in memory, and where the file pointer is.
    subroutine tell_memory(hazard)
        integer, intent(in) :: hazard
        integer(o) :: sum, position
        integer :: i
        sum = 0
        do i = 1, 100
            sum = mod(sum * 31 + iand(data(i), 65535) + 7 * iand(more(i), 65535), 1000000007_o)
        end do
        call MPI_File_get_position(file, position, ierror)
        write (unit, '(i0,a,i0,a,i0)') hazard, ' sum ', sum, ' position ', position
        data = -1
        more = -1
    end subroutine

    subroutine tell(hazard)
        integer, intent(in) :: hazard
        integer :: count, elements
        call MPI_Get_count(status, MPI_INTEGER, count, ierror)
        call MPI_Get_elements(status, MPI_INTEGER, elements, ierror)
        write (unit, '(i0,a,i0,a,i0)') hazard, ' count ', count, ' elements ', elements
        call tell_memory(hazard)
    end subroutine

    subroutine with_status
        call MPI_File_read(file, data, 48, MPI_INTEGER, status, ierror); call tell(11)
        call MPI_File_read_at(file, 100_o, data, 30, MPI_INTEGER, status, ierror); call tell(11)
        call MPI_File_read_at_all(file, 200_o, data, 90, MPI_INTEGER, status, ierror); call tell(11)
        call MPI_File_read_at(file, 100000_o, data, 30, MPI_INTEGER, status, ierror)
        data = -1 ! MPICH leaves something there
        call tell(11)
    end subroutine

    subroutine without_status
        call MPI_File_read(file, data, 48, MPI_INTEGER, IGNORED); call tell_memory(11)
        call MPI_File_read_all(file, data, 48, MPI_INTEGER, IGNORED); call tell_memory(11)
    end subroutine

    ! Two parts of `data`, by their addresses; the caller frees it.
    subroutine make_absolute(absolute)
        HANDLE(MPI_Datatype), intent(out) :: absolute
        integer(MPI_ADDRESS_KIND) :: places(2)
        call MPI_Get_address(data(3), places(1), ierror)
        call MPI_Get_address(more(50), places(2), ierror)
        call MPI_Type_create_hindexed(2, [10, 14], places, MPI_INTEGER, absolute, ierror)
        call MPI_Type_commit(absolute, ierror)
    end subroutine

    subroutine memory
        HANDLE(MPI_Datatype) :: strided, absolute
        call MPI_Type_vector(12, 2, 3, MPI_INTEGER, strided, ierror)
        call MPI_Type_commit(strided, ierror)
        call MPI_File_read_at_all(file, 24_o, data, 1, strided, status, ierror); call tell(9)
        call MPI_Type_free(strided, ierror)
        if (how == 'no-bottom') return
        call make_absolute(absolute)
        call MPI_File_read_at(file, 5_o, MPI_BOTTOM, 1, absolute, status, ierror)
        call tell(9)
        call MPI_File_iread_at(file, 7_o, MPI_BOTTOM, 1, absolute, requests(1), ierror)
        call MPI_Type_free(absolute, ierror)
        call MPI_Wait(requests(1), status, ierror)
        call tell(9)
    end subroutine

    subroutine nonblocking
        logical :: flag
        integer :: which
        call MPI_File_iread_at(file, 30_o, data, 40, MPI_INTEGER, requests(1), ierror)
        call MPI_Wait(requests(1), status, ierror); call tell(7)
        call MPI_File_iread_at(file, 31_o, data, 40, MPI_INTEGER, requests(1), ierror)
        call MPI_File_iread(file, more, 20, MPI_INTEGER, requests(2), ierror)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror); call tell_memory(7)
        call MPI_File_iread_at(file, 32_o, data, 40, MPI_INTEGER, requests(1), ierror)
        flag = .false.
        do while (.not. flag)
            call MPI_Test(requests(1), flag, status, ierror)
        end do
        call tell(7)
        requests(2) = MPI_REQUEST_NULL
        call MPI_File_iread_at_all(file, 33_o, data, 40, MPI_INTEGER, requests(1), ierror)
        call MPI_Waitany(2, requests, which, status, ierror)
        write (unit, '(a,i0)') '7 which ', which
        call tell(7)
    end subroutine

    subroutine split
        call MPI_File_read_all_begin(file, data, 48, MPI_INTEGER, ierror)
        call MPI_File_read_all_end(file, data, status, ierror); call tell(6)
        call MPI_File_read_at_all_begin(file, 500_o, data, 48, MPI_INTEGER, ierror)
        call MPI_File_read_at_all_end(file, data, IGNORED); call tell_memory(6)
    end subroutine

    subroutine errors
        HANDLE(MPI_File) :: none
        HANDLE(MPI_Errhandler) :: handler
        integer :: class
        call MPI_File_open(MPI_COMM_WORLD, trim(directory)//'/none', MPI_MODE_RDONLY, MPI_INFO_NULL, none, ierror)
        call MPI_Error_class(ierror, class, ierror)
        write (unit, '(a,l1)') '17 missing ', class == MPI_ERR_NO_SUCH_FILE
        call MPI_File_create_errhandler(count_it, handler, ierror)
        call MPI_File_set_errhandler(file, handler, ierror)
        call MPI_File_read_at(file, 3_o, data, -1, MPI_INTEGER, IGNORED)
        write (unit, '(a,i0,a,l1)') '17 handled ', handled, ' failed ', ierror /= MPI_SUCCESS
        call MPI_Errhandler_free(handler, ierror)
        call MPI_File_read_at(file, 3_o, data, 24, MPI_INTEGER, status, ierror); call tell(17)
    end subroutine

    subroutine writing
        HANDLE(MPI_Datatype) :: absolute
        integer(o) :: size
        integer :: i
        data = [(1000 * rank + i, i = 1, 100)]
        more = -data
        call MPI_File_write_all(file, data, 48, MPI_INTEGER, status, ierror)
        call MPI_File_write_at(file, 48_o, more, 24, MPI_INTEGER, IGNORED)
        call MPI_File_iwrite_at(file, 72_o, data, 24, MPI_INTEGER, requests(1), ierror)
        call MPI_Wait(requests(1), IGNORED)
        if (how /= 'no-bottom') then
            call make_absolute(absolute)
            call MPI_File_write_at_all(file, 96_o, MPI_BOTTOM, 1, absolute, status, ierror)
            call MPI_Type_free(absolute, ierror)
        end if
        call MPI_File_write_at_all_begin(file, 120_o, more, 72, MPI_INTEGER, ierror)
        call MPI_File_write_at_all_end(file, more, IGNORED)
        data = -1
        more = -1
        call MPI_File_read_at(file, 40_o, data, 96, MPI_INTEGER, status, ierror); call tell(1)
        call MPI_File_sync(file, ierror)
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
        call MPI_File_sync(file, ierror)
        call MPI_File_get_size(file, size, ierror)
        write (unit, '(a,i0)') '14 size ', size
    end subroutine

    ! The file's size, and its end in this rank's view, after all ranks have written.
    subroutine tell_size
        integer(o) :: size, position
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
        call MPI_File_get_size(file, size, ierror)
        call MPI_File_seek(file, 0_o, MPI_SEEK_END, ierror)
        call MPI_File_get_position(file, position, ierror)
        write (unit, '(a,i0,a,i0)') '45 size ', size, ' end ', position
        call MPI_Barrier(MPI_COMM_WORLD, ierror)
        call MPI_File_seek(file, 0_o, MPI_SEEK_SET, ierror)
    end subroutine

    ! Writes the same bytes twice, the second time while the first ones may go home.
    subroutine growing
        double precision :: start
        integer :: i
        data = [(2000 * rank + i, i = 1, 100)]
        more = -data
        call MPI_File_write_at_all(file, 0_o, data, 96, MPI_INTEGER, status, ierror)
        call MPI_File_write_at_all_begin(file, 96_o, data, 96, MPI_INTEGER, ierror)
        call MPI_File_write_at_all_end(file, data, IGNORED)
        call tell_size
        start = MPI_Wtime()
        do while (MPI_Wtime() < start + 0.1d0)
        end do
        call MPI_File_write_at_all(file, 24_o, more, 96, MPI_INTEGER, status, ierror)
        data = -1
        more = -1
        call MPI_File_read_at(file, 12_o, data, 96, MPI_INTEGER, status, ierror); call tell(49)
        call tell_size
    end subroutine
end program
