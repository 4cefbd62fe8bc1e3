/* Interposition of MPI-IO, for any tool: what is known of an open file and of a call on it, and two
 * tables of hooks. An observer sees the calls. An interceptor does some of them in place of the MPI
 * library.
 *
 * A shared library has at most one of each. A tool registers by defining the symbol
 * interpose_observer or interpose_interceptor, so that its table is there before the first call.
 * Any hook may be NULL. All hooks are called inside the wrapped call, so that MPI calls which they
 * make go straight to the MPI library. */
#ifndef PDLA_INTERPOSE_H
#define PDLA_INTERPOSE_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "running_mpi.h"
#include "ticks.h"
#include "typemap.h"

/* ---- the calls --------------------------------------------------------------------------------------------------- */

enum call_flag { CALL_READ = 1, CALL_WRITE = 2, CALL_COLLECTIVE = 4, CALL_NONBLOCKING = 8, CALL_LARGE = 16,
                 CALL_EXPLICIT = 32, CALL_SHARED = 64, CALL_SPLIT = 128 };

#define SPECIAL(name) CALL_##name,
#define ACCESS(name, form, flags) CALL_##name, CALL_##name##_c,
#define END(name, flags) CALL_##name,
#define RESIZE(name) CALL_##name,
#define OTHER(name, flags, parameters, arguments) CALL_##name,
enum call {
#include "calls.def"
    CALL_COUNT,
    /* Not on a file. */
    CALL_Init = CALL_COUNT, CALL_Init_thread, CALL_Finalize, CALL_Session_finalize,
    CALL_Wait, CALL_Waitany, CALL_Waitall, CALL_Waitsome, CALL_Test, CALL_Testany, CALL_Testall, CALL_Testsome,
    CALL_Request_get_status, CALL_Request_get_status_any, CALL_Request_get_status_all, CALL_Request_get_status_some,
    CALL_Request_free, CALL_File_create_errhandler,
    WRAPPED_COUNT
};
#undef SPECIAL
#undef ACCESS
#undef END
#undef RESIZE
#undef OTHER

/* The names of the calls on files by number ("MPI_File_open", ...), ended by NULL. */
extern const char *const call_names[];

/* ---- files ------------------------------------------------------------------------------------------------------- */

struct file_view {
    struct typemap *map; /* NULL: could not be flattened, or is not in the native representation */
    mpi_offset displacement;
    int64_t etype_size;
    bool native;         /* datarep "native" */
};

/* One for each MPI_File that the library saw opened. Its members change, and it is closed, only in
 * collective calls on the file, beside which MPI allows no others. So it needs no count of its
 * users. */
struct file_handle {
    mpi_handle file;
    struct file_handle *next; /* in the table; handles.c only */
    int amode;           /* AMODE_ bits */
    int ranks;           /* that opened the file together */
    bool atomic;
    struct file_view view;
    unsigned views;      /* set_view calls so far, failed ones too: the same number on every rank */
    uint64_t split;      /* the observer's operation of the split collective under way, or 0 */
    int64_t split_served; /* bytes of it that the interceptor has moved; -1: it was left to MPI */
    pthread_mutex_t pointer; /* held by independent calls that use the individual file pointer, which threads share */
    void *observed;      /* the observer's state; NULL: it does not see the calls on this file */
    void *intercepted;   /* the interceptor's state; NULL: all calls are left to MPI */
};

/* An open from its beginning to its end. */
struct opening {
    mpi_handle comm;
    const char *name;    /* as the program passes it; may be NULL */
    const char *path;    /* resolve_path() of the name, after the real call */
    int amode;           /* AMODE_ bits */
    mpi_handle info;
    int64_t notes[4];    /* the interceptor's; 0 at first */
};

/* The absolute path without the file-system prefix that MPI libraries accept ("ufs:"), with
 * symbolic links resolved. */
void resolve_path(const char *name, char resolved[PATH_MAX]);

/* ---- calls as tools see them ------------------------------------------------------------------------------------- */

/* A call that reads or writes. */
struct io_call {
    enum call number;
    const char *name;          /* "MPI_File_read", ... */
    unsigned flags;            /* enum call_flag */
    struct file_handle *handle; /* not NULL */
    void *buffer;              /* read: destination; write: source (do not write through it) */
    mpi_count count;
    mpi_handle datatype;
    int64_t bytes;             /* count * size of the datatype; -1: an error of the program */
    int64_t position;          /* byte of the view's data stream where it starts; -1: not known */
    int64_t start;             /* ticks_at_begin(); 0 if the file is not observed */
    bool refused;              /* MPI refuses the call whatever is in the file: an error of the program */
    void *status;              /* may be STATUS_IGNORE, unless the file is observed; NULL in nonblocking calls */
    mpi_handle *request;       /* nonblocking: where the program wants it; write 4 bytes on MPICH, 8 elsewhere */
    bool redirected;           /* out: the interceptor moved some of the bytes elsewhere */
    bool joins;                /* out: the call was done; the real one is made for no bytes, with the other ranks */
};

/* Any other call on a file. */
struct file_call {
    enum call number;
    unsigned flags;             /* CALL_COLLECTIVE or 0 */
    struct file_handle *handle; /* NULL: the call is on no open file, or failed to open one */
    int64_t position;           /* seek: byte of the view's data stream, -1: not known; resize: the size; otherwise 0 */
    int64_t start;              /* ticks_at_begin() */
    int rc;                     /* its result */
};

/* Whether the buffer has holes. */
bool is_strided(const struct io_call *);
/* The MPI_ERR_... class of a call's result. */
int error_class(int error);
/* Sets the individual file pointer, if the call uses it, to byte `position` of the view's data. */
bool move_pointer(const struct io_call *, int64_t position);

/* ---- an observer ------------------------------------------------------------------------------------------------- */

/* It sees the calls on the files for which its opened() sets handle->observed. */
struct observer {
    /* When the process begins: whether there is something to observe. If neither tool has anything
     * to do, calls go straight through. */
    bool (*wanted)(void);
    /* At the end of MPI_Init, and before MPI or a session ends. */
    void (*initialized)(void);
    void (*finalizing)(void);
    /* Around an open. `call` has no handle if the open failed; otherwise handle->observed may be
     * set. */
    void (*opening)(const struct opening *);
    void (*opened)(const struct opening *, const struct file_call *call);
    /* MPI_File_delete of the file at this path. */
    void (*deleted)(const char *path, const struct file_call *);
    /* The file has another view. */
    void (*viewed)(struct file_handle *);
    /* A call that moves no data has been made. MPI_File_close is the last one on its handle. */
    void (*called)(const struct file_call *);
    /* A call that moves data has been made, or (`pending`) begun. After a pending one the result is
     * not 0, and completed() gets it at the end; a `status` of NULL says nothing. */
    uint64_t (*accessed)(const struct io_call *, int rc, bool pending);
    void (*completed)(uint64_t operation, const void *status, int rc);
    /* A call on a file that was opened before this library was there. */
    void (*passed)(enum call);
    /* The handle is freed; this hook is to free handle->observed. */
    void (*forget)(struct file_handle *);
};
extern const struct observer interpose_observer;

/* A word of the observer's for the wrapped call that the thread is in; 0 when the call begins. */
uint32_t *call_note(void);

/* Calls the error handler of a file, which may end the program. The caller holds no lock. Returns what
 * MPI_File_call_errhandler does. */
int raise_error(mpi_handle file, int code);
/* Calls the error handler of MPI_FILE_NULL, as MPI_File_open does when it fails. */
void raise_open_error(int code);
/* Whether the thread is in a wrapped call. */
bool inside_call(void);
/* Whether the address is in this library's code. find_own_code() must be called before. */
void find_own_code(void);
bool is_own_code(const void *address);

/* ---- an interceptor ---------------------------------------------------------------------------------------------- */

/* It is called for the files for which its opened() sets handle->intercepted. Only hooks that
 * return an MPI error raise one. No hook calls exit or abort, or leaves errno changed. If a hook
 * with a result does not return 0, the real call is not made, and that is its result. */
struct interceptor {
    /* When the process begins: whether there is something to intercept. If neither tool has
     * anything to do, only opening() and not_opened() are called. */
    bool (*wanted)(void);
    /* Around MPI_Init. */
    void (*initializing)(void);
    void (*initialized)(void);
    /* Before a real MPI_File_open, on every rank. */
    int (*opening)(struct opening *);
    /* After the open, on every rank, whatever its result (the ranks may agree here), unless MPI
     * refused the communicator. `handle` is NULL if the open failed on this rank. If there is
     * nothing to agree on, not_opened() is called instead. */
    void (*opened)(struct opening *, struct file_handle *handle);
    void (*not_opened)(struct opening *);
    /* Before the real MPI_File_close; collective. It is to free handle->intercepted. Returns what
     * MPI_File_close is to return if it succeeds. */
    int (*closing)(struct file_handle *);
    /* After the real call. */
    void (*closed)(void);
    /* Before a call that reads or writes. True: it was done, *rc is what the wrapper returns, and
     * the status or request and the individual file pointer have been set. A nonblocking or split
     * collective may be done with `call->joins` set: then the real call is made for no bytes, and
     * the wrappers set the pointer and complete the operation. False: nothing was changed, and the
     * real call follows. */
    bool (*access)(struct io_call *, int *rc);
    /* A call with these flags, which access() left to MPI, is over. Not called for the begin of
     * nonblocking calls. */
    void (*access_end)(struct file_handle *, unsigned flags);
    /* Around MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does
     * not; on all ranks. */
    int (*resize)(struct file_handle *, mpi_offset size, bool cuts);
    void (*resize_end)(struct file_handle *);
    /* After MPI_File_set_view, on all ranks. */
    void (*viewed)(struct file_handle *);
    /* Before MPI_File_sync and MPI_File_set_atomicity, on all ranks: what any of them wrote must be
     * in the file afterwards. The sync is made whatever the result. */
    int (*sync)(struct file_handle *);
    /* Before a call that depends on the size of the file, by one rank or by all of them `together`. */
    int (*before_size)(struct file_handle *, bool together);
    /* Before and after MPI_File_delete of `name`, which is without a prefix and may be a symbolic link. Both have the
     * same note, NULL at first. */
    void (*deleting)(const char *name, void **note);
    void (*deleted)(void *note, bool done);
    /* Before MPI or a session ends, and when the process is `over`: files may still be open. Makes
     * no MPI call. `interrupts`: a signal handler ends them, and the thread is in another hook. It
     * must wait for nothing. */
    void (*ending)(bool over, bool interrupts);
    /* Once, after the last ending() of MPI_Finalize or of the process, unless it interrupts. */
    void (*report)(void);
};
extern const struct interceptor interpose_interceptor;

#endif
