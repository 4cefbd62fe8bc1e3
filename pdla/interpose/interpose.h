/* Interposition of MPI-IO, for any tool: what is known of an open file and of a call on it, and the two tables of hooks
 * by which a tool takes part. An observer sees the calls. An interceptor does some of them in the place of the MPI
 * library.
 *
 * A shared library has at most one of each. A tool registers by defining the symbol, interpose_observer or
 * interpose_interceptor, so that it is there before the first call. Any hook may be NULL. All are called inside the
 * wrapped call, so that MPI calls which they make go straight to the MPI library. */
#ifndef PDLA_INTERPOSE_H
#define PDLA_INTERPOSE_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "running_mpi.h"
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

/* The calls on files by number, ended by NULL: "MPI_File_open", ... */
extern const char *const call_names[];

/* ---- files ------------------------------------------------------------------------------------------------------- */

struct file_view {
    struct typemap *map; /* NULL: could not be flattened, or not the native representation */
    mpi_offset displacement;
    int64_t etype_size;
    bool native;         /* datarep "native" */
};

/* One per MPI_File that the library saw opened. Members change only in collective calls on the file, which MPI forbids
 * to run beside others; so is it closed, and needs no count of its users. */
struct file_handle {
    mpi_handle file;
    struct file_handle *next; /* in the table; handles.c only */
    int amode;           /* AMODE_ bits */
    int ranks;           /* that opened it together */
    bool atomic;
    struct file_view view;
    unsigned views;      /* set_view calls until now, also failed ones: the same number on every rank */
    uint64_t split;      /* the observer's operation of the split collective that is under way, or 0 */
    int64_t split_served; /* bytes that the interceptor has moved for the one under way; -1: it was left to MPI */
    pthread_mutex_t pointer; /* held by independent calls that use the individual file pointer: threads share it */
    void *observed;      /* the observer's state; NULL: it does not see the calls on this file */
    void *intercepted;   /* the interceptor's; NULL: all is left to MPI */
};

/* Between the beginning and the end of an open. */
struct opening {
    mpi_handle comm;
    const char *name;    /* what the program passes; may be NULL */
    const char *path;    /* of it, once the real call was made: resolve_path()'s */
    int amode;           /* AMODE_ bits */
    int64_t notes[2];    /* the interceptor's; 0 at first */
};

/* The path without the file-system prefix that MPI libraries accept ("ufs:"), absolute, symbolic links resolved. */
void resolve_path(const char *name, char resolved[PATH_MAX]);

/* ---- calls as tools see them ------------------------------------------------------------------------------------- */

/* A call that reads or writes. */
struct io_call {
    enum call number;
    const char *name;          /* "MPI_File_read", ... */
    unsigned flags;            /* enum call_flag */
    struct file_handle *handle; /* not NULL */
    void *buffer;              /* read: where to; write: from where (do not write through it) */
    mpi_count count;
    mpi_handle datatype;
    int64_t bytes;             /* count * size of the datatype; -1: an error of the program */
    int64_t position;          /* byte of the view's data stream where it starts; -1 unknown */
    int64_t start;             /* clock_ns() when it began; 0 where the file is not observed */
    bool refused;              /* MPI makes no such call, whatever is in the file: an error of the program */
    void *status;              /* may be STATUS_IGNORE, unless the file is observed; NULL in nonblocking calls */
    mpi_handle *request;       /* nonblocking: where the program wants it; write 4 bytes on MPICH, 8 elsewhere */
    bool redirected;           /* out: the interceptor moved some of the bytes elsewhere */
    bool joins;                /* out: it was done; the real call is made for no bytes, as the other ranks make it */
};

/* Any other call on a file. */
struct file_call {
    enum call number;
    unsigned flags;             /* CALL_COLLECTIVE or 0 */
    struct file_handle *handle; /* NULL: of a call on no open file, or one that failed to open it */
    int64_t position;           /* seek: byte of the view's data stream, -1 unknown; resize: the size; else 0 */
    int64_t start;              /* clock_ns() when it began */
    int rc;                     /* what it returns */
};

/* The buffer has holes. */
bool is_strided(const struct io_call *);
/* MPI_ERR_... of what a call returned. */
int error_class(int error);
/* Sets the individual file pointer, where the call uses it, to byte `position` of the view's data. */
bool move_pointer(const struct io_call *, int64_t position);

int64_t clock_ns(void); /* CLOCK_MONOTONIC */

/* ---- an observer ------------------------------------------------------------------------------------------------- */

/* It sees the calls on the files for which its opened() sets handle->observed. */
struct observer {
    /* When the process begins: there is something to observe. Where neither tool has anything to do, calls go straight
     * through. */
    bool (*wanted)(void);
    /* At the end of MPI_Init, and before MPI or a session ends. */
    void (*initialized)(void);
    void (*finalizing)(void);
    /* Around an open. `call` has no handle where it failed; else handle->observed may be set. */
    void (*opening)(const struct opening *);
    void (*opened)(const struct opening *, const struct file_call *call);
    /* MPI_File_delete, of the file at this path. */
    void (*deleted)(const char *path, const struct file_call *);
    /* The file has another view. */
    void (*viewed)(struct file_handle *);
    /* A call that moves no data has been made; close is the last on its handle. */
    void (*called)(const struct file_call *);
    /* Likewise a call that moves data, or (`pending`) only begins to. What it returns then is not 0, and completed() is
     * called with it at the end; a `status` of NULL says nothing. */
    uint64_t (*accessed)(const struct io_call *, int rc, bool pending);
    void (*completed)(uint64_t operation, const void *status, int rc);
    /* A call on a file that was opened before this library was there. */
    void (*passed)(enum call);
    /* The handle is freed; it is to free handle->observed. */
    void (*forget)(struct file_handle *);
};
extern const struct observer interpose_observer;

/* A word of the observer's about the wrapped call that the thread is in; 0 when that begins. */
uint32_t *call_note(void);
/* The thread is in a wrapped call. */
bool inside_call(void);
/* After find_own_code(): the address is one of this library's code. */
void find_own_code(void);
bool is_own_code(const void *address);

/* ---- an interceptor ---------------------------------------------------------------------------------------------- */

/* It is asked about the files for which its opened() sets handle->intercepted. No hook raises an MPI error but those
 * that return one, calls exit or abort, or leaves errno changed. What a hook with a result returns is not 0 when the
 * real call is not to be made, and then is its result. */
struct interceptor {
    /* When the process begins: there is something to intercept. Where neither tool has anything to do, only opening()
     * and not_opened() are called. */
    bool (*wanted)(void);
    /* Before a real MPI_File_open, on every rank. */
    int (*opening)(struct opening *);
    /* After it, on every rank whatever it returned (the ranks may agree here), unless MPI refused the communicator;
     * `handle` is NULL when the open failed on this rank. Or not_opened(), where nothing is to be agreed on. */
    void (*opened)(struct opening *, struct file_handle *handle);
    void (*not_opened)(struct opening *);
    /* Before the real MPI_File_close; collective. It is to free handle->intercepted. Returns what MPI_File_close is to
     * return if it succeeds. */
    int (*closing)(struct file_handle *);
    /* Before a call that reads or writes. True: it was done, and *rc is what the wrapper returns; the status or request
     * and the individual file pointer have been set. A nonblocking or split collective may be done with `call->joins`
     * set: then the real call is made for no bytes, and what sets the pointer and completes the operation is left to
     * the wrappers. False: nothing was touched, and the real call follows. */
    bool (*access)(struct io_call *, int *rc);
    /* A call of these flags that access() left to MPI is over; of nonblocking ones that began it is not called. */
    void (*access_end)(struct file_handle *, unsigned flags);
    /* Around MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does not; on all ranks. */
    int (*resize)(struct file_handle *, mpi_offset size, bool cuts);
    void (*resize_end)(struct file_handle *);
    /* After MPI_File_set_view, on all ranks. */
    void (*viewed)(struct file_handle *);
    /* Before MPI_File_sync and MPI_File_set_atomicity, by all ranks: what any of them wrote is to be in the file. Sync
     * is made whatever is returned. */
    int (*sync)(struct file_handle *);
    /* Before what looks at the size of the file, by one rank or by all of them `together`. */
    int (*look_at_size)(struct file_handle *, bool together);
    /* Before MPI_File_delete, and after it where it deleted the file at `path`. */
    void (*deleting)(const char *path, uint64_t *note);
    void (*deleted)(const char *path, uint64_t note);
    /* Before MPI or a session ends, and when the process is `over`: files may still be open. Makes no MPI call. */
    void (*ending)(bool over);
    /* Once, after the last ending() of MPI_Finalize or of the process. */
    void (*report)(void);
};
extern const struct interceptor interpose_interceptor;

#endif
