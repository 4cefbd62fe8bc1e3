/* What the wrappers of the MPI calls (init.c, files.c, access.c) share. Each call exists as MPI_X and PMPI_X: Fortran
 * bindings enter by either name. A call that is made while the thread is in another one, by the MPI library itself or
 * by a tool, goes straight through. */
#ifndef PDLA_CALLS_H
#define PDLA_CALLS_H

#include <limits.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name) extern EXPORT __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)));

#define SPECIAL(name) CALL_##name,
#define ACCESS(name, form, flags) CALL_##name, CALL_##name##_c,
#define END(name, flags) CALL_##name,
#define RESIZE(name) CALL_##name,
#define OTHER(name, flags, parameters, arguments) CALL_##name,
enum call {
#include "calls.def"
    CALL_COUNT,
    /* Not on a file: without a number in the log. */
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
_Static_assert(CALL_COUNT <= sizeof((struct rawlog_header *)0)->unrecorded / sizeof(uint32_t), "a count for each");

/* What is defined here is part of every call, also on files that are of no interest: a function call costs as much as what it
 * does. */

/* Of a thread. One object, which a call has to find once. */
struct in_call {
    int depth;                /* wrapped calls that it is in */
    const char *outermost;    /* the first of these: where its frame is, */
    struct file_handle *held; /* the handle whose file pointer it holds, */
    uint32_t posix_group;     /* and the POSIX calls that were recorded in it; 0: none */
};
extern __thread struct in_call in_call __attribute__((tls_model("initial-exec")));

typedef void (*any_call)(void);

extern any_call known_calls[2][WRAPPED_COUNT]; /* find_call()'s */
any_call look_up_call(enum call call, bool inside);
int missing_call(void);

/* The definition of `call` after this library, by its PMPI_ name when `inside` another call. Where MPI has none it is a
 * function that returns an error, of which is_missing() is true. */
static inline any_call find_call(enum call call, bool inside)
{
    any_call found = __atomic_load_n(&known_calls[inside][call], __ATOMIC_RELAXED);
    return found ? found : look_up_call(call, inside);
}

static inline bool is_missing(any_call call)
{
    return call == (any_call)missing_call;
}

/* The definition to call now; that of the int twin where MPI has no large-count call. */
any_call twin_call(enum call call);
static inline any_call real_call(enum call call)
{
    any_call found = find_call(call, in_call.depth > 0);
    return is_missing(found) ? twin_call(call) : found;
}

/* real_call() as a function of the given parameter types. */
#define REAL(call, ...) ((int (*)(__VA_ARGS__))real_call(call))

/* PDLA_TRACE or PDLA_MAP is set, and this is not the child of a fork. */
extern bool active;

/* Begins a wrapped call, ended by leave(); true when it is the program's own and is to be watched. */
bool enter_again(const char *frame); /* while the thread seems to be in another one */
static inline bool enter_first(const char *frame)
{
    in_call.depth = 1;
    in_call.outermost = frame;
    return active;
}
__attribute__((always_inline)) static inline bool enter(void)
{
    const char *frame = __builtin_frame_address(0);
    return in_call.depth > 0 ? enter_again(frame) : enter_first(frame);
}

static inline int leave(int rc) /* returns rc */
{
    if (in_call.depth > 0 && --in_call.depth == 0)
        in_call.posix_group = 0;
    return rc;
}

/* The program has made an error handler for files, which may leave a call without returning from it. */
void handlers_made(void);

/* After find_own_code(): the address is one of this library's code. */
void find_own_code(void);
bool is_own_code(const void *address);

/* Around an independent call that uses the individual file pointer. */
void hold_pointer(struct file_handle *handle);
void release_pointer(struct file_handle *handle);

/* MPI_ERR_... of what a call returned. */
int error_class(int error);

/* The thread is in a wrapped call. */
bool inside_call(void);

/* The path without the file-system prefix that MPI libraries accept ("ufs:"), absolute, symbolic links resolved. */
void resolve_path(const char *name, char resolved[PATH_MAX]);

/* The value of a handle argument. */
mpi_handle value_of(mpi_handle handle);

/* Records a call that ends now; `handle` NULL: it is on no open file. `about` has the rest. Returns recorder_append()'s. */
uint64_t record(struct rawlog_record *about, enum call call, const struct file_handle *handle, int rc);

/* Records the call if it is on a file that is to be recorded, counts it if the library did not see the file opened. */
void record_known(struct rawlog_record *about, enum call call, const struct file_handle *handle, int rc);

/* Ends the recorded operation that is still under way; `status` NULL: the bytes that it moved are not known. */
void record_end(uint64_t operation, const void *status, int rc);

/* Bytes of the view's data stream before the individual file pointer; -1 unknown. */
int64_t current_position(const struct file_handle *handle);

/* ---- nonblocking operations (requests.c) ------------------------------------------------------------------------- */

/* The operation, recorded as that or 0, ends when a call completes `request`. Its status is then to say `served` bytes, unless
 * they are -1. */
void request_begun(mpi_handle request, uint64_t operation, int64_t served, mpi_handle file);

/* Forgets operations on a file that is being closed: a call that does not come through this library completed them. */
void requests_forget(mpi_handle file);

/* ---- POSIX calls (posix.c) --------------------------------------------------------------------------------------- */

/* Those in the group of the thread were made for the recorded operation. */
void posix_link(uint64_t operation);

/* Around the real MPI_File_open: what it opens is of interest; `id` is the recorder's, 0 = the file is not recorded. */
void posix_opening(const char *name);
void posix_opened(const char *path, uint32_t id);

#endif
