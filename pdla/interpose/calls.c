/* Finds the definition of each call after this library, and what the wrappers share. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "calls.h"

#define SPECIAL(name) "MPI_" #name,
#define ACCESS(name, form, flags) "MPI_" #name, "MPI_" #name "_c",
#define END(name, flags) "MPI_" #name,
#define RESIZE(name) "MPI_" #name,
#define OTHER(name, flags, parameters, arguments) "MPI_" #name,
const char *const call_names[] = {
#include "calls.def"
    NULL
};
#undef SPECIAL
#undef ACCESS
#undef END
#undef RESIZE
#undef OTHER

bool active;
__thread struct in_call in_call __attribute__((tls_model("initial-exec")));
any_call known_calls[2][WRAPPED_COUNT];

static const char *name_of(enum call call)
{
    static const char *const others[] = {
        "MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Session_finalize", "MPI_Wait", "MPI_Waitany", "MPI_Waitall",
        "MPI_Waitsome", "MPI_Test", "MPI_Testany", "MPI_Testall", "MPI_Testsome", "MPI_Request_get_status",
        "MPI_Request_get_status_any", "MPI_Request_get_status_all", "MPI_Request_get_status_some", "MPI_Request_free",
        "MPI_File_create_errhandler",
    };
    _Static_assert(sizeof others / sizeof *others == WRAPPED_COUNT - CALL_COUNT, "a name for each");
    return call < CALL_COUNT ? call_names[call] : others[call - CALL_COUNT];
}

/* Stands in for a call that MPI does not have. */
int missing_call(void)
{
    const struct mpi *mpi = running_mpi();
    return mpi && mpi->family == MPI_FAMILY_MPICH ? 15 : 16; /* MPI_ERR_OTHER */
}

/* RATIONALE: from outside a wrapped call it is the MPI_ name, so that another tool preloaded after
 * this one sees the call. From inside it is the PMPI_ name: that tool calls PMPI_ to go on, comes
 * back here, and must not be called again. */
any_call look_up_call(enum call call, bool inside)
{
    char name[64];
    any_call found;
    snprintf(name, sizeof name, "%s%s", inside ? "P" : "", name_of(call));
    *(void **)&found = mpi_symbol(name);
    if (!found)
        found = (any_call)missing_call;
    __atomic_store_n(&known_calls[inside][call], found, __ATOMIC_RELAXED);
    return found;
}

static bool is_large(enum call call)
{
    const char *name = name_of(call);
    return strcmp(name + strlen(name) - 2, "_c") == 0;
}

/* RATIONALE: mpi4py tests whether the _c calls exist, and with this library they always do. If MPI
 * has none, the int twin (listed before it) does the work. */
any_call twin_call(enum call call)
{
    return is_large(call) ? find_call(call - 1, in_call.depth > 0) : (any_call)missing_call;
}

static struct {
    uintptr_t start, size;
} own_code; /* of this library */

static int find_segment(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (uintptr_t)find_segment - start < segment->p_memsz) {
            own_code.start = start;
            own_code.size = segment->p_memsz;
            return 1;
        }
    }
    return 0;
}

void find_own_code(void)
{
    dl_iterate_phdr(find_segment, NULL);
}

bool is_own_code(const void *address)
{
    return (uintptr_t)address - own_code.start < own_code.size;
}

/* The program has error handlers of its own for files. */
static bool handles_errors;

void handlers_made(void)
{
    void *caller;
    find_own_code();
    /* RATIONALE: the first call loads a library, which a signal handler must not do. */
    backtrace(&caller, 1);
    __atomic_store_n(&handles_errors, true, __ATOMIC_RELEASE);
}

/* Whether another wrapped call of the thread has not returned: this library is among the callers of
 * the present one. */
static bool is_made_inside(void)
{
    enum { MOST = 256 };
    void *callers[MOST];
    const int count = backtrace(callers, MOST);
    int i = 0;
    while (i < count && is_own_code(callers[i]))
        i++;
    while (i < count && !is_own_code(callers[i]))
        i++;
    return i < count || count == MOST;
}

/* RATIONALE: an error handler may leave a call by longjmp or by a C++ exception. A call whose frame
 * is not below that of the outermost call cannot have been made inside it: the outermost one is
 * over. A call from deeper on the stack may have been: its callers show it. To examine them
 * takes some microseconds, and only error handlers jump. */
static bool is_over(const char *frame)
{
    return frame >= in_call.outermost || (__atomic_load_n(&handles_errors, __ATOMIC_ACQUIRE) && !is_made_inside());
}

static void abandon(void)
{
    in_call.depth = 0;
    in_call.note = 0;
    if (in_call.held)
        release_pointer(in_call.held);
}

bool inside_hook(void)
{
    return in_call.hooks > 0 && (!__atomic_load_n(&handles_errors, __ATOMIC_ACQUIRE) || is_made_inside());
}

int raise_error(mpi_handle file, int code)
{
    const int hooks = in_call.hooks;
    in_call.hooks = 0;
    const int rc = running_mpi()->File_call_errhandler(file, code);
    in_call.hooks = hooks;
    return rc;
}

/* RATIONALE: Open MPI refuses MPI_FILE_NULL here. A new file has the same error handler. */
void raise_open_error(int code)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle file = mpi->file_null;
    if (mpi->family == MPI_FAMILY_OPENMPI
        && mpi->File_open(mpi->comm_self, "/dev/null", AMODE_RDONLY, mpi->info_null, &file) != 0)
        return;
    raise_error(file, code);
    if (mpi->family == MPI_FAMILY_OPENMPI)
        mpi->File_close(&file);
}

bool enter_again(const char *frame)
{
    if (is_over(frame)) {
        abandon();
        return enter_first(frame);
    }
    in_call.depth++;
    return false;
}

void hold_pointer(struct file_handle *handle)
{
    pthread_mutex_lock(&handle->pointer);
    in_call.held = handle;
}

void release_pointer(struct file_handle *handle)
{
    in_call.held = NULL;
    pthread_mutex_unlock(&handle->pointer);
}

bool inside_call(void)
{
    return in_call.depth > 0;
}

uint32_t *call_note(void)
{
    return &in_call.note;
}

mpi_handle value_of(mpi_handle handle)
{
    return handle & running_mpi()->handle_mask;
}

int error_class(int error)
{
    int class = error;
    if (error != 0)
        running_mpi()->Error_class(error, &class);
    return class;
}

int called(struct file_call *call, struct file_handle *handle, int rc)
{
    call->handle = handle;
    call->rc = rc;
    if (!handle)
        OBSERVE(passed, (call->number));
    else if (handle->observed)
        OBSERVE(called, (call));
    return rc;
}

void end_operation(uint64_t operation, const void *status, int rc)
{
    if (operation != 0)
        OBSERVE(completed, (operation, status, rc));
}

bool move_pointer(const struct io_call *call, int64_t position)
{
    const struct mpi *mpi = running_mpi();
    return call->flags & CALL_EXPLICIT ||
           mpi->File_seek(call->handle->file, position / call->handle->view.etype_size, seek_set) == 0;
}

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t current_position(const struct file_handle *handle)
{
    mpi_offset offset;
    /* RATIONALE: the question raises an error on a sequential file. */
    if (!handle->view.map || (handle->amode & AMODE_SEQUENTIAL) ||
        running_mpi()->File_get_position(handle->file, &offset) != 0)
        return -1;
    return offset * handle->view.etype_size;
}
