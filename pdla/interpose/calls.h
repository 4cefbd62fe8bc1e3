/* What the wrappers of the MPI calls (init.c, files.c, access.c) share. Each call exists as MPI_X
 * and PMPI_X, since Fortran bindings use either name. A call that the MPI library or a tool makes
 * while the thread is in another wrapped call goes straight through. */
#ifndef PDLA_CALLS_H
#define PDLA_CALLS_H

#include "interpose.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name) extern EXPORT __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)));

/* Calls a hook of the observer or the interceptor, if there is one. ASK is 0 without it. */
#define OBSERVE(hook, arguments) (interpose_observer.hook ? interpose_observer.hook arguments : (void)0)
#define INTERCEPT(hook, arguments) \
    (interpose_interceptor.hook ? (enter_hook(), interpose_interceptor.hook arguments, (void)leave_hook(0)) : (void)0)
#define ASK(hook, arguments) \
    (interpose_interceptor.hook ? (enter_hook(), leave_hook(interpose_interceptor.hook arguments)) : 0)

/* The definitions here are part of every call, also on files that no tool watches. RATIONALE: a
 * function call would cost as much as its body. */

/* The state of a thread. RATIONALE: one object, so that a call has to find only one. */
struct in_call {
    int depth;                /* wrapped calls that the thread is in */
    int hooks;                /* hooks of the interceptor that the thread is in */
    const char *outermost;    /* the first of these: the address of its frame */
    struct file_handle *held; /* the handle whose file pointer the thread holds */
    uint32_t note;            /* call_note()'s */
};
extern __thread struct in_call in_call __attribute__((tls_model("initial-exec")));

/* Around a hook of the interceptor, which may take locks. A signal handler sees that it has interrupted one. */
static inline void enter_hook(void)
{
    in_call.hooks++;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline int leave_hook(int result) /* returns result */
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    in_call.hooks--;
    return result;
}

/* Whether the thread is in a hook: a signal handler asks. */
bool inside_hook(void);

typedef void (*any_call)(void);

extern any_call known_calls[2][WRAPPED_COUNT]; /* find_call()'s */
any_call look_up_call(enum call call, bool inside);
int missing_call(void);

/* The definition of `call` after this library; `inside` another call, by its PMPI_ name. If MPI has
 * none, the result is a function that returns an error, and is_missing() is true of it. */
static inline any_call find_call(enum call call, bool inside)
{
    any_call found = __atomic_load_n(&known_calls[inside][call], __ATOMIC_RELAXED);
    return found ? found : look_up_call(call, inside);
}

static inline bool is_missing(any_call call)
{
    return call == (any_call)missing_call;
}

/* The definition to call now; that of the int twin if MPI has no large-count call. */
any_call twin_call(enum call call);
static inline any_call real_call(enum call call)
{
    any_call found = find_call(call, in_call.depth > 0);
    return is_missing(found) ? twin_call(call) : found;
}

/* real_call() as a function of the given parameter types. */
#define REAL(call, ...) ((int (*)(__VA_ARGS__))real_call(call))

/* A tool wants the calls, and this process is not the child of a fork. */
extern bool active;

/* False: MPI is of no known family. No tool wants the calls any more, and one line said so. */
bool knows_mpi(void);

/* Begins a wrapped call, which leave() ends. True: the program itself made the call, and the tools
 * are to see it. */
bool enter_again(const char *frame); /* if the thread seems to be in another one */
static inline bool enter_first(const char *frame)
{
    in_call.depth = 1;
    in_call.hooks = 0;
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
        in_call.note = 0;
    return rc;
}

/* Notes that the program has made an error handler for files, which may leave a call without a
 * return. */
void handlers_made(void);

/* To be called around an independent call that uses the individual file pointer. */
void hold_pointer(struct file_handle *handle);
void release_pointer(struct file_handle *handle);

/* The value of a handle argument. */
mpi_handle value_of(mpi_handle handle);

/* Reports a finished call to the observer. `call` has all but the handle and the result. */
int called(struct file_call *call, struct file_handle *handle, int rc); /* returns rc */

/* Reports to the observer that an operation, if not 0, has ended. `status` NULL: the bytes that it
 * moved are not known. */
void end_operation(uint64_t operation, const void *status, int rc);

/* Bytes of the view's data stream before the individual file pointer; -1: not known. */
int64_t current_position(const struct file_handle *handle);

/* ---- the table of open files (handles.c) ------------------------------------------------------------------------- */

struct file_handle *handle_open(mpi_handle file); /* NULL: out of memory */
struct file_handle *handle_find(mpi_handle file); /* NULL: not known */
void handle_close(struct file_handle *handle);    /* removes it from the table; the caller frees it */
void handle_free(struct file_handle *handle);     /* NULL is allowed */

/* ---- nonblocking operations (requests.c) ------------------------------------------------------------------------- */

/* The observer's operation, or 0, ends when a call completes `request`. If `served` is not -1, the
 * status must then count so many bytes. */
void request_begun(mpi_handle request, uint64_t operation, int64_t served, mpi_handle file);

/* Forgets the operations on a file that is being closed. A call that bypasses this library has
 * completed them. */
void requests_forget(mpi_handle file);

#endif
