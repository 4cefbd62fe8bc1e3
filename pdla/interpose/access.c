/* The calls that read and write, and those that touch no data. */
#include <limits.h>
#include <string.h>

#include "calls.h"

enum { ERR_COUNT = 2 }; /* MPI_ERR_COUNT of every family */

enum form { PLAIN, AT, BEGIN, BEGIN_AT };

/* A data call as the program made it. `last` is the status or the request, if the form has one. */
struct access {
    enum call call;
    unsigned flags;
    enum form form;
    mpi_handle file;
    mpi_offset offset;
    void *buffer;
    mpi_count count;
    mpi_handle datatype;
    void *last;
    any_call real;
};

/* RATIONALE: one type for the int and the large calls: an argument register holds either, sign-extended. */
__attribute__((always_inline)) static inline int make_real(const struct access *access, void *last)
{
    switch (access->form) {
    case AT:
        return ((int (*)(mpi_handle, mpi_offset, void *, mpi_count, mpi_handle, void *))access->real)(
            access->file, access->offset, access->buffer, access->count, access->datatype, last);
    case BEGIN:
        return ((int (*)(mpi_handle, void *, mpi_count, mpi_handle))access->real)(
            access->file, access->buffer, access->count, access->datatype);
    case BEGIN_AT:
        return ((int (*)(mpi_handle, mpi_offset, void *, mpi_count, mpi_handle))access->real)(
            access->file, access->offset, access->buffer, access->count, access->datatype);
    default:
        return ((int (*)(mpi_handle, void *, mpi_count, mpi_handle, void *))access->real)(
            access->file, access->buffer, access->count, access->datatype, last);
    }
}

/* A contiguous type that every MPICH defines. Its handle contains its size. */
static bool is_basic(mpi_handle datatype)
{
    return running_mpi()->family == MPI_FAMILY_MPICH && datatype >> 24 == 0x4c;
}

static int64_t bytes_of(const struct access *access)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle datatype = value_of(access->datatype);
    mpi_count size = 1;
    int64_t bytes;
    /* RATIONALE: asking for the size of MPI_DATATYPE_NULL would call the program's error handler. */
    if (access->count < 0 || datatype == mpi->datatype_null)
        return -1;
    if (is_basic(datatype))
        size = datatype >> 8 & 0xff;
    else if (datatype != mpi->byte && mpi->Type_size_x(datatype, &size) != 0)
        return -1;
    return __builtin_mul_overflow(access->count, size, &bytes) ? -1 : bytes;
}

bool is_strided(const struct io_call *call)
{
    const struct mpi *mpi = running_mpi();
    mpi_count lb, extent, true_lb, true_extent;
    return call->bytes >= 0 && call->datatype != mpi->byte && !is_basic(call->datatype) &&
           mpi->Type_get_extent_x(call->datatype, &lb, &extent) == 0 &&
           mpi->Type_get_true_extent_x(call->datatype, &true_lb, &true_extent) == 0 &&
           (call->bytes != call->count * extent || extent != true_extent);
}

static mpi_handle request_of(const void *place)
{
    mpi_handle request = 0;
    memcpy(&request, place, running_mpi()->handle_size);
    return request;
}

/* Bytes of the view's data stream before the shared file pointer; -1: not known. RATIONALE: ranks
 * that share it move it at any time. So it tells a rank where a call goes only if the rank has the
 * file alone. */
static int64_t shared_position(const struct file_handle *handle)
{
    mpi_offset offset;
    if (!handle->view.map || handle->ranks != 1 || (handle->amode & AMODE_SEQUENTIAL) ||
        running_mpi()->File_get_position_shared(handle->file, &offset) != 0)
        return -1;
    return offset * handle->view.etype_size;
}

/* RATIONALE: only what every MPI refuses before it examines anything else. */
static bool is_refused(const struct access *access, const struct file_handle *handle)
{
    return access->count < 0 || value_of(access->datatype) == running_mpi()->datatype_null ||
           (access->flags & CALL_EXPLICIT && access->offset < 0) ||
           (access->flags & CALL_WRITE && handle->amode & AMODE_RDONLY);
}

static int64_t position_of(const struct access *access, const struct file_handle *handle)
{
    if (access->flags & CALL_SHARED)
        return handle->observed ? shared_position(handle) : -1;
    if (!(access->flags & CALL_EXPLICIT))
        return current_position(handle);
    int64_t position;
    if (!handle->view.map || access->offset < 0 ||
        __builtin_mul_overflow(access->offset, handle->view.etype_size, &position))
        return -1;
    return position;
}

/* calls.def has the ends in the order of the begins, which have large-count twins. */
_Static_assert(2 * (CALL_File_write_ordered_end - CALL_File_read_all_end)
                   == CALL_File_write_ordered_begin - CALL_File_read_all_begin, "the order of the list");

/* RATIONALE: a program does not end a split collective whose begin has failed. MPI would refuse this rank's next one,
 * for which the other ranks would wait. */
static void end_now(const struct access *access)
{
    const enum call end = CALL_File_read_all_end + (access->call - CALL_File_read_all_begin) / 2;
    REAL(end, mpi_handle, void *, void *)(access->file, access->buffer, running_mpi()->status_ignore);
}

/* Makes the collective call for no bytes, after the interceptor has read or written and returned
 * `done`. */
static int join(const struct access *access, const struct io_call *call, int done)
{
    struct access nothing = *access;
    /* RATIONALE: bytes, because Intel MPI 2021.18 fails to read no elements of a datatype with holes. */
    nothing.datatype = running_mpi()->byte;
    nothing.count = 0;
    int rc = make_real(&nothing, access->last);
    if (rc == 0 && done != 0 && access->flags & CALL_SPLIT)
        end_now(access);
    if (rc == 0 && done == 0)
        move_pointer(call, call->position + call->bytes);
    return done ? done : rc;
}

/* The operation ends in a later call. */
static bool is_pending(const struct access *access, int rc)
{
    return rc == 0 && access->flags & (CALL_NONBLOCKING | CALL_SPLIT);
}

/* Makes the call, by the interceptor or by MPI. */
static int perform(const struct access *access, struct io_call *call)
{
    const bool intercepted = call->handle->intercepted;
    int rc = 0;
    if (intercepted && ASK(access, (call, &rc)))
        return call->joins ? join(access, call, rc) : rc;
    rc = make_real(access, call->status ? call->status : access->last);
    if (intercepted && !call->refused && !(access->flags & CALL_SPLIT) && !is_pending(access, rc))
        INTERCEPT(access_end, (call->handle, access->flags));
    return rc;
}

/* The call has begun the observer's operation (0: none), which another call ends. */
static void begun(const struct access *access, const struct io_call *call, uint64_t operation)
{
    const int64_t served = call->joins ? call->bytes : -1;
    if (access->flags & CALL_SPLIT) {
        call->handle->split = operation;
        call->handle->split_served = served;
    } else if (operation || served >= 0) {
        request_begun(request_of(access->last), operation, served, access->file);
    }
}

static int watch_access(const struct access *access, struct file_handle *handle)
{
    const bool pointer = !(access->flags & (CALL_EXPLICIT | CALL_COLLECTIVE | CALL_SHARED));
    if (pointer)
        hold_pointer(handle);
    /* RATIONALE: the bytes moved are read from a status, which the program may not want. 64 bytes
     * hold that of any family. */
    max_align_t status[64 / sizeof(max_align_t)];
    struct io_call call = {.number = access->call,
                           .name = call_names[access->call],
                           .flags = access->flags,
                           .handle = handle,
                           .buffer = access->buffer,
                           .count = access->count,
                           .datatype = value_of(access->datatype),
                           .bytes = bytes_of(access),
                           .position = position_of(access, handle),
                           .start = handle->observed ? ticks_at_begin() : 0,
                           .refused = is_refused(access, handle)};
    if (access->flags & CALL_NONBLOCKING)
        call.request = access->last;
    else if (!(access->flags & CALL_SPLIT))
        call.status = handle->observed && access->last == running_mpi()->status_ignore ? status : access->last;
    int rc = perform(access, &call);
    const bool pending = is_pending(access, rc), observed = handle->observed && interpose_observer.accessed;
    uint64_t operation = observed ? interpose_observer.accessed(&call, rc, pending) : 0;
    if (pending)
        begun(access, &call, operation);
    if (pointer)
        release_pointer(handle);
    return rc;
}

/* RATIONALE: part of every wrapper, so that no function is between it and MPI. Kernels that guard
 * against speculation clear the processor's predictions of returns, and then each return costs a
 * few ns. */
__attribute__((always_inline)) static inline int access_file(struct access *access)
{
    if (access->count > INT_MAX && is_missing(find_call(access->call, false)))
        return ERR_COUNT;
    access->real = real_call(access->call);
    if (!enter())
        return leave(make_real(access, access->last));
    struct file_handle *handle = handle_find(access->file);
    if (handle && (handle->observed || handle->intercepted))
        return leave(watch_access(access, handle));
    if (!handle)
        OBSERVE(passed, (access->call));
    return leave(make_real(access, access->last));
}

static int watch_end(int (*real)(mpi_handle, void *, void *), enum call call, unsigned flags, mpi_handle file,
                     void *buffer, void *status)
{
    max_align_t own[64 / sizeof(max_align_t)];
    struct file_handle *handle = handle_find(file);
    if (handle && handle->split && status == running_mpi()->status_ignore)
        status = own;
    int rc = real(file, buffer, status);
    const bool joined = handle && handle->split_served >= 0;
    if (joined && rc == 0) {
        set_moved_bytes(status, handle->split_served);
        handle->split_served = -1;
    }
    if (handle) {
        end_operation(handle->split, status, rc);
        handle->split = 0;
        if (handle->intercepted && !joined)
            INTERCEPT(access_end, (handle, flags));
    } else {
        OBSERVE(passed, (call));
    }
    return rc;
}

static int end_split(enum call call, unsigned flags, mpi_handle file, void *buffer, void *status)
{
    int (*real)(mpi_handle, void *, void *) = REAL(call, mpi_handle, void *, void *);
    return leave(enter() ? watch_end(real, call, flags, file, buffer, status) : real(file, buffer, status));
}

static int watch_resize(int (*real)(mpi_handle, mpi_offset), enum call call, mpi_handle file, mpi_offset size)
{
    struct file_call resized = {.number = call, .start = ticks_at_begin(), .position = size, .flags = CALL_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    const bool intercepted = handle && handle->intercepted;
    int rc = intercepted ? ASK(resize, (handle, size, call == CALL_File_set_size)) : 0;
    rc = rc ? rc : real(file, size);
    if (intercepted)
        INTERCEPT(resize_end, (handle));
    return called(&resized, handle, rc);
}

static int resize(enum call call, mpi_handle file, mpi_offset size)
{
    int (*real)(mpi_handle, mpi_offset) = REAL(call, mpi_handle, mpi_offset);
    return leave(enter() ? watch_resize(real, call, file, size) : real(file, size));
}

static int other(enum call call, unsigned flags, int64_t start, mpi_handle file, int rc)
{
    struct file_call made = {.number = call, .start = start, .flags = flags};
    return called(&made, handle_find(file), rc);
}

/* ---- expansions of calls.def ------------------------------------------------------------------------------------- */

/* The parameters that all forms have. */
#define DATA(type) void *buffer, type count, mpi_handle datatype

#define MAKE(name, flags, form, offset, last)                                                                   \
    {                                                                                                           \
        struct access access = {CALL_##name, flags, form, file, offset, buffer, count, datatype, last, NULL};   \
        return access_file(&access);                                                                            \
    }                                                                                                           \
    ALIAS(name)
#define MAKE_PLAIN(name, type, flags)                                \
    EXPORT int MPI_##name(mpi_handle file, DATA(type), void *last)   \
    MAKE(name, flags, PLAIN, 0, last)
#define MAKE_AT(name, type, flags)                                                    \
    EXPORT int MPI_##name(mpi_handle file, mpi_offset offset, DATA(type), void *last) \
    MAKE(name, flags, AT, offset, last)
#define MAKE_BEGIN(name, type, flags)                  \
    EXPORT int MPI_##name(mpi_handle file, DATA(type)) \
    MAKE(name, flags, BEGIN, 0, NULL)
#define MAKE_BEGIN_AT(name, type, flags)                                  \
    EXPORT int MPI_##name(mpi_handle file, mpi_offset offset, DATA(type)) \
    MAKE(name, flags, BEGIN_AT, offset, NULL)

#define SPECIAL(name)
#define ACCESS(name, form, flags) MAKE_##form(name, int, flags) MAKE_##form(name##_c, mpi_count, (flags) | CALL_LARGE)

#define END(name, flags)                                                                                   \
    EXPORT int MPI_##name(mpi_handle file, void *buffer, void *status)                                     \
    {                                                                                                      \
        return end_split(CALL_##name, flags, file, buffer, status);                                        \
    }                                                                                                      \
    ALIAS(name)

#define RESIZE(name)                                    \
    EXPORT int MPI_##name(mpi_handle file, mpi_offset size) \
    {                                                   \
        return resize(CALL_##name, file, size);         \
    }                                                   \
    ALIAS(name)

#define OTHER(name, flags, parameters, arguments)                                 \
    EXPORT int MPI_##name parameters                                              \
    {                                                                             \
        int(*real) parameters = (int(*) parameters)real_call(CALL_##name);        \
        if (!enter())                                                             \
            return leave(real arguments);                                         \
        int64_t start = ticks_at_begin();                                         \
        return leave(other(CALL_##name, flags, start, file, real arguments));     \
    }                                                                             \
    ALIAS(name)

#include "calls.def"
