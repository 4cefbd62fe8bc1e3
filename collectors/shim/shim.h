/* The middle of libpdla.so: what the interposed calls (files.c, access.c) know about an MPI file and hand to the two halves,
 * the recorder (PDLA_TRACE) and the redirection stub (PDLA_MAP). */
#ifndef PDLA_SHIM_H
#define PDLA_SHIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rawlog.h"
#include "typemap.h"

/* ---- the running MPI, without its mpi.h -------------------------------------------------------------------------- */

enum mpi_family { MPI_FAMILY_UNKNOWN = 0, MPI_FAMILY_MPICH = 1, MPI_FAMILY_OPENMPI = 2, MPI_FAMILY_ABI = 3 };

/* MPI handles travel as uintptr_t. Handles that MPI writes are 4 bytes on MPICH and 8 elsewhere: give it a zeroed
 * uintptr_t. */
typedef uintptr_t mpi_handle;
typedef int64_t mpi_offset;
typedef int64_t mpi_count;

/* MPICH's values whatever the family; files.c translates what a program passes. */
enum { AMODE_CREATE = 1, AMODE_RDONLY = 2, AMODE_WRONLY = 4, AMODE_RDWR = 8, AMODE_DELETE_ON_CLOSE = 16,
       AMODE_UNIQUE_OPEN = 32, AMODE_EXCL = 64, AMODE_APPEND = 128, AMODE_SEQUENTIAL = 256 };

/* The real calls and the family's constants, found on first use (interposition of a library that may be loaded later,
 * and RTLD_LOCAL). A pointer is NULL when this MPI has no such call. */
struct mpi {
    enum mpi_family family;
    mpi_handle comm_world, byte, int64, op_min, op_sum, op_band, request_null, comm_null, file_null;
    mpi_handle datatype_null;
    uintptr_t handle_mask; /* what of a handle in a register or an array is its value (the low 4 bytes on MPICH) */
    size_t handle_size;    /* bytes of a communicator, datatype or request in memory: 4 on MPICH, else 8 */
    size_t status_size;
    size_t count_place;    /* where a status has the bytes moved, as 8 bytes; on MPICH with the upper 4 shifted by 1 */
    int count_shift;
    void *status_ignore;   /* also STATUSES_IGNORE */
    int seek_set, seek_end, err_io, err_no_space;
    int (*Initialized)(int *);
    int (*Error_class)(int, int *);
    int (*Get_library_version)(char *, int *);
    int (*Comm_test_inter)(mpi_handle, int *);
    int (*Comm_rank)(mpi_handle, int *);
    int (*Comm_size)(mpi_handle, int *);
    int (*Comm_dup)(mpi_handle, mpi_handle *);
    int (*Comm_free)(mpi_handle *);
    int (*Iallreduce)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle, mpi_handle *);
    int (*Ibcast)(void *, int, mpi_handle, int, mpi_handle, mpi_handle *);
    int (*Iallgather)(const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle, mpi_handle *);
    int (*Iallgatherv)(const void *, int, mpi_handle, void *, const int *, const int *, mpi_handle, mpi_handle, mpi_handle *);
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
    int (*Grequest_start)(int (*query)(void *, void *), int (*free_)(void *), int (*cancel)(void *, int), void *, mpi_handle *);
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
};
extern const struct mpi *running_mpi; /* NULL until it is found; mpi.c only */
const struct mpi *find_mpi(void);
/* Never NULL after the first MPI call of the program; NULL if no MPI is loaded. */
static inline const struct mpi *pdla_mpi(void)
{
    const struct mpi *mpi = __atomic_load_n(&running_mpi, __ATOMIC_ACQUIRE);
    return mpi ? mpi : find_mpi();
}

/* The bytes that the call moved which gave this status; -1 unknown. */
mpi_count moved_bytes(const void *status);
/* After MPI_Init: moved_bytes() need not ask MPI if this finds that it does not have to. */
void learn_moved_bytes(void);

/* The next definition of an MPI function or object after this library, however libmpi was loaded; or NULL. */
void *mpi_symbol(const char *name);

/* ---- files ------------------------------------------------------------------------------------------------------- */

struct file_view {
    struct typemap *map; /* NULL: could not be flattened, or not the native representation */
    mpi_offset displacement;
    int64_t etype_size;
    uint32_t id;         /* the recorder's; 0 = bytes from 0 */
    bool native;         /* datarep "native" */
};

struct stub_file;   /* the redirection stub's state of one open file */
struct stub_writer; /* and of its redirected writes */

/* One per MPI_File that the library saw opened. Members change only in collective calls on the file, which MPI forbids
 * to run beside others; so is it closed, and needs no count of its users. */
struct file_handle {
    mpi_handle file;
    struct file_handle *next; /* in the table; handles.c only */
    uint32_t id;         /* the recorder's RAWLOG_FILE id */
    int amode;           /* AMODE_ bits */
    int ranks;           /* that opened it together */
    bool atomic;
    bool recorded;       /* its calls are to be recorded */
    struct file_view view;
    unsigned views;      /* set_view calls until now, also failed ones: the same number on every rank */
    uint64_t split;      /* the recorded split collective that is under way, or 0 */
    int64_t split_served; /* bytes that the stub has read or written for the one under way; -1: it was left to MPI */
    struct stub_file *stub; /* NULL: nothing to redirect */
    struct stub_writer *writer; /* NULL: writes go to the original */
    pthread_mutex_t pointer; /* held by independent calls that use the individual file pointer: threads share it */
};

/* The table of open files (handles.c). */
struct file_handle *handle_open(mpi_handle file); /* NULL: out of memory */
struct file_handle *handle_find(mpi_handle file); /* NULL: not known */
void handle_close(struct file_handle *handle);    /* takes it out of the table; the caller frees it */
void handle_free(struct file_handle *handle);     /* NULL is allowed */

/* ---- data access ------------------------------------------------------------------------------------------------- */

enum call_flag { CALL_READ = 1, CALL_WRITE = 2, CALL_COLLECTIVE = 4, CALL_NONBLOCKING = 8, CALL_LARGE = 16,
                 CALL_EXPLICIT = 32, CALL_SHARED = 64, CALL_SPLIT = 128 };

struct io_call {
    const char *name;          /* "MPI_File_read", ... */
    unsigned flags;            /* enum call_flag */
    struct file_handle *handle; /* not NULL */
    void *buffer;              /* read: where to; write: from where (do not write through it) */
    mpi_count count;
    mpi_handle datatype;
    int64_t bytes;             /* count * size of the datatype; -1: an error of the program */
    int64_t position;          /* byte of the view's data stream where it starts; -1 unknown */
    bool refused;              /* MPI makes no such call, whatever is in the file: an error of the program */
    void *status;              /* may be the family's STATUS_IGNORE; NULL in nonblocking calls */
    mpi_handle *request;       /* nonblocking: where the program wants it; write 4 bytes on MPICH, 8 elsewhere */
    bool redirected;           /* out: the stub served some of it from a replica */
    bool joins;                /* out: it was done, and the real call is to be made for no bytes, as the other ranks make it */
};

/* ---- the redirection stub (replicator/stub/) --------------------------------------------------------------------- */

/* Each returns at once when PDLA_MAP is not set. None raises an MPI error, calls exit or abort, or leaves errno
 * changed. */

/* Between the beginning and the end of an open. */
struct opening {
    bool beside; /* the program has the file open by other means, and is to find there what it writes by MPI */
    int lock;    /* rank 0's, of the journals of the file's writes; -1: none */
};
/* Before a real MPI_File_open, on every rank of `comm`: what earlier writes left in replicas is brought home. Returns what
 * MPI_File_open is to return at once, 0 if it is to be made. */
int stub_opening(mpi_handle comm, const char *name, int amode, struct opening *opening);
/* After a real MPI_File_open, on every rank of `comm` whatever `rc` it returned (the agreement is collective), unless MPI
 * refused `comm`. Sets handle->stub and handle->writer when redirection is possible; `handle` is NULL when the open failed on
 * this rank. `opening`: what stub_opening() said. */
void stub_opened(struct file_handle *handle, mpi_handle comm, const char *path, int amode, struct opening *opening);
/* Or MPI refused `comm`. */
void stub_not_opened(struct opening *opening);
/* Before the real MPI_File_close; collective. Frees handle->stub and handle->writer. Returns what MPI_File_close is to return
 * if it succeeds. */
int stub_closing(struct file_handle *handle);
/* A read (not shared), also through an opaque view or from an unknown position, since collective reads have to agree. True
 * when the stub served the whole call: *rc is then what the wrapper returns, and the status or request and the individual
 * file pointer have been set. False: nothing was touched, make the real call. Blocking collective reads agree on the answer
 * over the file's communicator. Nonblocking and split ones cannot, since they do not wait for the other ranks: the buffer is
 * filled, and `call->joins` set; after the real call for no bytes stub_joined() sets the pointer, and what completes the
 * operation is to have stub_set_bytes() on its status. */
bool stub_read(struct io_call *call, int *rc);
void stub_joined(const struct io_call *call);
/* `status` may be the family's STATUS_IGNORE. */
void stub_set_bytes(void *status, int64_t bytes);
/* A write (not shared) on a handle that has a writer. True when it was redirected, or otherwise done: as for stub_read(), but
 * whoever joins does so whatever *rc is. */
bool stub_write(struct io_call *call, int *rc);
/* After MPI_File_set_view, on all ranks of a handle that has a writer. */
void stub_viewed(struct file_handle *handle);
/* Around every real writing call on a known handle that MPI does not refuse. Nonblocking writes: begin only; stub_closing ends
 * them. What begin returns is not 0 when the call is not to be made, and then is its result. */
int stub_write_begin(struct file_handle *handle, const struct io_call *call);
void stub_write_end(struct file_handle *handle);
/* Before MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does not; on all ranks. Returns what
 * stub_write_begin() does; stub_write_end() is the end. */
int stub_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);
/* Before a call that sees the contents of the file, on a handle that has a writer. Returns what stub_write_begin() does. With
 * STUB_TOGETHER (`call` may be NULL) all ranks make the call, and what any of them wrote is in the original afterwards. Else that is
 * what this rank wrote, and of the bytes that it reads what other ranks of its node did. STUB_FOR_GOOD: and no more writes are
 * redirected by this rank. */
enum stub_look { STUB_ALONE, STUB_TOGETHER, STUB_FOR_GOOD };
int stub_look(struct file_handle *handle, const struct io_call *call, enum stub_look how);
/* Before a call that sees the size of the file only, likewise: nothing is brought back, but the original is made as long as it
 * was written. */
int stub_look_at_size(struct file_handle *handle, enum stub_look how);
/* Before and after MPI_File_delete of the file at `path`: bytes of it that wait in replicas are deleted, too. *inode: 0 where
 * there are none, or the file stays. */
void stub_deleting(const char *path, uint64_t *inode);
void stub_deleted(const char *path, uint64_t inode);
/* A read that is not handed over (shared) and passed through: counted under `why`, a literal. */
void stub_passed(struct file_handle *handle, int64_t bytes, const char *why);
/* Before MPI or a session ends, and when the process is `over`: what it has redirected of files that are still open is brought back.
 * Makes no MPI call, and does not wait for other threads. Says on stderr what cannot be brought back. */
void stub_ending(bool over);
/* Once, at the end of the process (MPI_Finalize or the destructor): writes the exit report. */
void stub_report(void);

/* ---- the recorder (recorder.c) ----------------------------------------------------------------------------------- */

int64_t clock_ns(void); /* CLOCK_MONOTONIC */

/* At the end of MPI_Init, on all ranks: compares the clocks of their nodes (clocks.c). */
void clocks_align(void);
/* What is known of this process's clock. */
struct rawlog_clock clocks_own(void);

/* The calls of calls.def by number, ended by NULL: "MPI_File_open", ... */
extern const char *const call_names[];

/* True when PDLA_TRACE is set and the log is open, which it becomes at MPI_Init or at the first use of a file. */
bool recorder_on(void);
/* After MPI_Init. */
void recorder_start(void);
/* MPI_Finalize was reached, or MPI_Session_finalize. */
void recorder_finalize(void);
/* Calls on the file of this absolute path are to be recorded: PDLA_TRACE_INCLUDE and PDLA_TRACE_EXCLUDE, globs a line
 * each, do not leave it out. */
bool recorder_wants(const char *path);
/* Names a file that was opened on `comm`; returns its id for the records, 0 when not recording. */
uint32_t recorder_file(const char *path, int amode, mpi_handle comm);
/* Names a file that was not opened through MPI; 0 also when a signal handler is in the way. */
struct stat;
uint32_t recorder_posix_file(const char *path, const struct stat *status);
/* Names a view; returns its id for the records, 0 when not recording and for the plain or an opaque view. */
uint32_t recorder_view(const struct file_view *view);
/* Appends a copy of `record` and returns its number; 0 when it was dropped. */
uint64_t recorder_append(const struct rawlog_record *record);
/* The operation that record `number` began ends now, with that error class; `moved` < 0: not known. */
void recorder_end(uint64_t number, int64_t moved, int error);
/* Counts a call that is not recorded. */
void recorder_passed(unsigned call);

/* ---- POSIX calls (posix.c) --------------------------------------------------------------------------------------- */

/* They are to be recorded. */
bool posix_wanted(void);
/* Their log is this new file. */
struct output;
void posix_start(const struct output *made);

#endif
