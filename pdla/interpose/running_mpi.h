/* The running MPI, without its mpi.h: its family, its calls and its constants. */
#ifndef PDLA_RUNNING_MPI_H
#define PDLA_RUNNING_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mpi_family { MPI_FAMILY_UNKNOWN = 0, MPI_FAMILY_MPICH = 1, MPI_FAMILY_OPENMPI = 2, MPI_FAMILY_ABI = 3 };

/* MPI handles are passed as uintptr_t. Handles that MPI writes have 4 bytes on MPICH and 8
 * elsewhere: give it a zeroed uintptr_t. */
typedef uintptr_t mpi_handle;
typedef int64_t mpi_offset;
typedef int64_t mpi_count;

/* MPICH's values in every family; mpich_amode() translates what a program passes. */
enum { AMODE_CREATE = 1, AMODE_RDONLY = 2, AMODE_WRONLY = 4, AMODE_RDWR = 8, AMODE_DELETE_ON_CLOSE = 16,
       AMODE_UNIQUE_OPEN = 32, AMODE_EXCL = 64, AMODE_APPEND = 128, AMODE_SEQUENTIAL = 256 };

/* The real calls and the family's constants, found at the first use, since the library may be
 * loaded later, and with RTLD_LOCAL. A pointer is NULL if this MPI has no such call. */
struct mpi {
    enum mpi_family family;
    mpi_handle comm_world, byte, int64, op_min, op_sum, op_band, request_null, comm_null, comm_self;
    mpi_handle file_null, info_null, datatype_null;
    uintptr_t handle_mask; /* which bits of a handle in a register or an array are its value (4 bytes on MPICH) */
    size_t handle_size;    /* bytes of a communicator, datatype or request in memory: 4 on MPICH, otherwise 8 */
    size_t status_size;
    size_t count_place;    /* where a status has the bytes moved (8 bytes; on MPICH the upper 4 are shifted by 1) */
    int count_shift;
    void *status_ignore;   /* also STATUSES_IGNORE */
    int err_io, err_no_space;
    int thread_multiple; /* MPI_THREAD_MULTIPLE */
    int (*Initialized)(int *);
    int (*Query_thread)(int *);
    int (*Error_class)(int, int *);
    int (*Get_library_version)(char *, int *);
    int (*Comm_test_inter)(mpi_handle, int *);
    int (*Comm_rank)(mpi_handle, int *);
    int (*Comm_size)(mpi_handle, int *);
    int (*Comm_dup)(mpi_handle, mpi_handle *);
    int (*Comm_free)(mpi_handle *);
    int (*Iallreduce)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle, mpi_handle *);
    int (*Ibcast)(void *, int, mpi_handle, int, mpi_handle, mpi_handle *);
    int (*Ialltoall)(const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle, mpi_handle *);
    int (*Ialltoallv)(const void *, const int *, const int *, mpi_handle, void *, const int *, const int *, mpi_handle,
                      mpi_handle, mpi_handle *);
    int (*Wait)(mpi_handle *, void *);
    int (*Test)(mpi_handle *, int *, void *);
    int (*Cancel)(mpi_handle *);
    int (*Request_free)(mpi_handle *);
    int (*Isend)(const void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *);
    int (*Irecv)(void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *);
    int (*Bcast)(void *, int, mpi_handle, int, mpi_handle);
    int (*Type_size_x)(mpi_handle, mpi_count *);
    int (*Type_get_extent_x)(mpi_handle, mpi_count *, mpi_count *);
    int (*Type_get_true_extent_x)(mpi_handle, mpi_count *, mpi_count *);
    int (*Type_get_envelope)(mpi_handle, int *, int *, int *, int *);
    int (*Type_get_envelope_c)(mpi_handle, mpi_count *, mpi_count *, mpi_count *, mpi_count *, int *); /* or NULL */
    int (*Type_get_contents)(mpi_handle, int, int, int, int *, intptr_t *, void *);
    int (*Type_get_contents_c)(mpi_handle, mpi_count, mpi_count, mpi_count, mpi_count, int *, intptr_t *, mpi_count *,
                               void *); /* or NULL */
    int (*Type_free)(mpi_handle *);
    int (*Status_set_cancelled)(void *, int);
    int (*Status_set_elements)(void *, mpi_handle, int);
    int (*Status_set_elements_x)(void *, mpi_handle, mpi_count); /* or NULL */
    int (*Get_elements_x)(const void *, mpi_handle, mpi_count *); /* or NULL */
    int (*Grequest_start)(int (*query)(void *, void *), int (*free_)(void *), int (*cancel)(void *, int), void *,
                          mpi_handle *);
    int (*Grequest_complete)(mpi_handle);
    int (*File_get_position)(mpi_handle, mpi_offset *);
    int (*File_get_position_shared)(mpi_handle, mpi_offset *);
    int (*File_seek)(mpi_handle, mpi_offset, int);
    int (*File_read)(mpi_handle, void *, int, mpi_handle, void *);
    int (*File_read_c)(mpi_handle, void *, mpi_count, mpi_handle, void *); /* or NULL */
    int (*File_read_at)(mpi_handle, mpi_offset, void *, int, mpi_handle, void *);
    int (*File_read_at_c)(mpi_handle, mpi_offset, void *, mpi_count, mpi_handle, void *); /* or NULL */
    int (*File_write)(mpi_handle, void *, int, mpi_handle, void *);
    int (*File_write_c)(mpi_handle, void *, mpi_count, mpi_handle, void *); /* or NULL */
    int (*File_write_at)(mpi_handle, mpi_offset, void *, int, mpi_handle, void *);
    int (*File_write_at_c)(mpi_handle, mpi_offset, void *, mpi_count, mpi_handle, void *); /* or NULL */
    int (*File_call_errhandler)(mpi_handle, int);
    int (*File_open)(mpi_handle, const char *, int, mpi_handle, mpi_handle *);
    int (*File_close)(mpi_handle *);
    int (*File_get_info)(mpi_handle, mpi_handle *);
    int (*Info_free)(mpi_handle *);
    int (*Info_get)(mpi_handle, const char *, int, char *, int *);
    int (*Info_get_string)(mpi_handle, const char *, int *, char *, int *); /* or NULL */
};
extern const struct mpi *known_mpi; /* NULL until it is found; running_mpi.c only */
const struct mpi *find_mpi(void);
/* Never NULL after the first MPI call of the program. NULL: no MPI is loaded. */
static inline const struct mpi *running_mpi(void)
{
    const struct mpi *mpi = __atomic_load_n(&known_mpi, __ATOMIC_ACQUIRE);
    return mpi ? mpi : find_mpi();
}

/* MPI_SEEK_SET and MPI_SEEK_END, if learn_whence() returned true. It is called at each open: MPI must
 * have begun. */
extern int seek_set, seek_end;
bool learn_whence(void);

/* The bytes moved by the call that gave this status; -1: not known. */
mpi_count moved_bytes(const void *status);
/* Sets the bytes moved in a status, which may be the family's STATUS_IGNORE. */
void set_moved_bytes(void *status, int64_t bytes);
/* After MPI_Init: finds out whether moved_bytes() can do without calls of MPI. */
void learn_moved_bytes(void);

/* The next definition of an MPI function or object after this library, however libmpi was loaded;
 * or NULL. */
void *mpi_symbol(const char *name);

#endif
