/* Reading and writing, and the calls that pass through. */
#include <limits.h>

#include "calls.h"

enum { ERR_COUNT = 2 }; /* MPI_ERR_COUNT of every family */

enum form { PLAIN, AT, BEGIN, BEGIN_AT };

/* A data call as the program made it. `last` is the status or the request of the forms that have one. */
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
static int make_real(const struct access *access, void *last)
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

static int64_t bytes_of(const struct access *access)
{
    const struct mpi *mpi = pdla_mpi();
    mpi_handle datatype = value_of(access->datatype);
    mpi_count size = 1;
    int64_t bytes;
    /* RATIONALE: asking about no datatype raises an error that the program's own call does not. */
    if (access->count < 0 || datatype == mpi->datatype_null ||
        (datatype != mpi->byte && mpi->Type_size_x(datatype, &size) != 0) ||
        __builtin_mul_overflow(access->count, size, &bytes))
        return -1;
    return bytes;
}

/* The buffer has holes. */
static bool is_strided(const struct io_call *call)
{
    const struct mpi *mpi = pdla_mpi();
    mpi_count lb, extent, true_lb, true_extent;
    return call->bytes >= 0 && call->datatype != mpi->byte && mpi->Type_get_extent_x(call->datatype, &lb, &extent) == 0 &&
           mpi->Type_get_true_extent_x(call->datatype, &true_lb, &true_extent) == 0 &&
           (call->bytes != call->count * extent || extent != true_extent);
}

/* Makes the call, by the stub or by MPI. */
static int perform(const struct access *access, struct io_call *call)
{
    struct file_handle *handle = call->handle;
    const struct io_call *known = handle->view.map && call->position >= 0 ? call : NULL;
    int rc;
    if (access->flags & CALL_READ) {
        if (stub_read(call, &rc))
            return rc;
        return make_real(access, call->status ? call->status : access->last);
    }
    stub_write_begin(handle, known);
    rc = make_real(access, call->status ? call->status : access->last);
    if (!(access->flags & CALL_NONBLOCKING))
        stub_write_end(handle);
    return rc;
}

static void record_access(struct rawlog_record *data, const struct access *access, const struct io_call *call, int rc)
{
    mpi_count moved = call->bytes;
    unsigned flags = access->flags;
    data->position = call->position;
    data->length = call->bytes;
    if (rc != 0)
        moved = 0;
    else if ((flags & CALL_NONBLOCKING) ||
             pdla_mpi()->Get_elements_x(call->status, pdla_mpi()->byte, &moved) != 0 || moved < 0) {
        moved = call->bytes;
        data->flags |= RAWLOG_MOVED_UNKNOWN;
    }
    data->moved = moved;
    data->flags |= (uint16_t)((flags & CALL_COLLECTIVE ? RAWLOG_COLLECTIVE : 0) |
                              (flags & CALL_NONBLOCKING ? RAWLOG_NONBLOCKING : 0) |
                              (flags & CALL_LARGE ? RAWLOG_LARGE : 0) | (flags & CALL_EXPLICIT ? RAWLOG_EXPLICIT : 0) |
                              (is_strided(call) ? RAWLOG_MEMORY_STRIDED : 0) |
                              (call->redirected ? RAWLOG_REDIRECTED : 0));
    record(data, access->call, call->handle, rc);
}

static int recorded_access(const struct access *access, struct file_handle *handle)
{
    const bool recording = recorder_on(), nonblocking = access->flags & CALL_NONBLOCKING;
    /* RATIONALE: the bytes moved are read from a status, which the program may not want; 64 bytes hold any family's. */
    max_align_t status[64 / sizeof(max_align_t)];
    struct io_call call = {.flags = access->flags,
                           .handle = handle,
                           .buffer = access->buffer,
                           .count = access->count,
                           .datatype = value_of(access->datatype),
                           .bytes = bytes_of(access)};
    if (!(access->flags & CALL_EXPLICIT))
        call.position = current_position(handle);
    else if (!handle->view.map || access->offset < 0 ||
             __builtin_mul_overflow(access->offset, handle->view.etype_size, &call.position))
        call.position = -1;
    if (nonblocking)
        call.request = access->last;
    else
        call.status = recording && access->last == pdla_mpi()->status_ignore ? status : access->last;
    if (!recording)
        return perform(access, &call);
    struct rawlog_record data = {.t_start = clock_ns()};
    int rc = perform(access, &call);
    record_access(&data, access, &call, rc);
    return rc;
}

static int passed_access(const struct access *access, struct file_handle *handle)
{
    recorder_passed(access->call);
    if (access->flags & CALL_READ) {
        stub_passed(handle, bytes_of(access), access->flags & CALL_SPLIT ? "split collective" : "shared file pointer");
        return make_real(access, access->last);
    }
    stub_write_begin(handle, NULL);
    int rc = make_real(access, access->last);
    if (!(access->flags & (CALL_NONBLOCKING | CALL_SPLIT)))
        stub_write_end(handle);
    return rc;
}

static int watch_access(const struct access *access)
{
    struct file_handle *handle = handle_find(access->file);
    int rc;
    if (!handle) {
        recorder_passed(access->call);
        rc = make_real(access, access->last);
    } else if (access->flags & (CALL_SHARED | CALL_SPLIT)) {
        rc = passed_access(access, handle);
    } else if (access->flags & (CALL_EXPLICIT | CALL_COLLECTIVE)) {
        rc = recorded_access(access, handle);
    } else {
        pthread_mutex_lock(&handle->pointer);
        rc = recorded_access(access, handle);
        pthread_mutex_unlock(&handle->pointer);
    }
    handle_release(handle);
    return rc;
}

static int access_file(struct access *access)
{
    if (access->count > INT_MAX && is_missing(find_call(access->call, false)))
        return ERR_COUNT;
    access->real = real_call(access->call);
    return leave(enter() ? watch_access(access) : make_real(access, access->last));
}

static int end_split(enum call call, unsigned flags, mpi_handle file, void *buffer, void *status)
{
    int (*real)(mpi_handle, void *, void *) = REAL(call, mpi_handle, void *, void *);
    bool watched = enter();
    int rc = real(file, buffer, status);
    struct file_handle *handle = watched ? handle_find(file) : NULL;
    if (handle && (flags & CALL_WRITE))
        stub_write_end(handle);
    if (watched)
        recorder_passed(call);
    handle_release(handle);
    return leave(rc);
}

static int resize(enum call call, mpi_handle file, mpi_offset size)
{
    int (*real)(mpi_handle, mpi_offset) = REAL(call, mpi_handle, mpi_offset);
    bool watched = enter();
    struct file_handle *handle = watched ? handle_find(file) : NULL;
    if (handle)
        stub_write_begin(handle, NULL);
    int rc = real(file, size);
    if (handle)
        stub_write_end(handle);
    if (watched)
        recorder_passed(call);
    handle_release(handle);
    return leave(rc);
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
#define PASSED(name, form, flags) ACCESS(name, form, flags)

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

#define OTHER(name, parameters, arguments)                                \
    EXPORT int MPI_##name parameters                                      \
    {                                                                     \
        int(*real) parameters = (int(*) parameters)real_call(CALL_##name); \
        if (enter())                                                      \
            recorder_passed(CALL_##name);                                 \
        return leave(real arguments);                                     \
    }                                                                     \
    ALIAS(name)

#include "calls.def"
