/* The interposed calls. Each exists as MPI_X and PMPI_X: Fortran bindings enter by either name. A call that the MPI library makes
 * while it serves one (the thread's depth says so) goes straight through. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name) extern EXPORT __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)));

enum { ERR_COUNT = 2 }; /* MPI_ERR_COUNT of every family */

/* ---- the real calls --------------------------------------------------------------------------------------------------- */

#define SPECIAL(name) CALL_##name,
#define ACCESS(name, form, flags) CALL_##name, CALL_##name##_c,
#define PASSED(name, form, flags) CALL_##name, CALL_##name##_c,
#define END(name, flags) CALL_##name,
#define RESIZE(name) CALL_##name,
#define OTHER(name, parameters, arguments) CALL_##name,
enum call {
#include "calls.def"
    CALL_COUNT,
    /* Wrapped, but not calls on a file: without a number in the log. */
    CALL_Init = CALL_COUNT, CALL_Init_thread, CALL_Finalize, WRAPPED_COUNT
};
#undef SPECIAL
#undef ACCESS
#undef PASSED
#undef END
#undef RESIZE
#undef OTHER
_Static_assert(CALL_COUNT <= sizeof((struct rawlog_header *)0)->unrecorded / sizeof(uint32_t), "a count for every call");

#define SPECIAL(name) "MPI_" #name,
#define ACCESS(name, form, flags) "MPI_" #name, "MPI_" #name "_c",
#define PASSED(name, form, flags) "MPI_" #name, "MPI_" #name "_c",
#define END(name, flags) "MPI_" #name,
#define RESIZE(name) "MPI_" #name,
#define OTHER(name, parameters, arguments) "MPI_" #name,
const char *const call_names[] = {
#include "calls.def"
    NULL
};
#undef SPECIAL
#undef ACCESS
#undef PASSED
#undef END
#undef RESIZE
#undef OTHER

static const char *name_of(unsigned call)
{
    static const char *const others[] = {"MPI_Init", "MPI_Init_thread", "MPI_Finalize"};
    return call < CALL_COUNT ? call_names[call] : others[call - CALL_COUNT];
}

static __thread int depth __attribute__((tls_model("initial-exec")));
static bool active; /* PDLA_TRACE or PDLA_MAP is set, and this is not the child of a fork */

typedef void (*any_call)(void);

/* What stands in for a call that MPI does not have. */
static int missing(void)
{
    const struct mpi *mpi = pdla_mpi();
    return mpi && mpi->family == MPI_FAMILY_MPICH ? 15 : 16; /* MPI_ERR_OTHER */
}

static bool is_missing(any_call call)
{
    return call == (any_call)missing;
}

/* The definition of `call` after this library, or `missing`. RATIONALE: from outside the MPI_ name, so that
 * another tool preloaded after this one sees the call; from inside the PMPI_ name, since that tool, calling on with PMPI_, comes
 * back here and must not be called again. */
static any_call find_call(unsigned call, bool inside)
{
    static any_call calls[2][WRAPPED_COUNT];
    any_call found = __atomic_load_n(&calls[inside][call], __ATOMIC_RELAXED);
    if (!found) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", inside ? "P" : "", name_of(call));
        *(void **)&found = mpi_symbol(name);
        if (!found)
            found = (any_call)missing;
        __atomic_store_n(&calls[inside][call], found, __ATOMIC_RELAXED);
    }
    return found;
}

static bool is_large(unsigned call)
{
    const char *name = name_of(call);
    return strcmp(name + strlen(name) - 2, "_c") == 0;
}

/* RATIONALE: mpi4py looks whether the _c calls exist, and with this library they always do: where MPI has none, the int twin
 * (listed before it) does the work. */
static any_call real_call(unsigned call)
{
    any_call found = find_call(call, depth > 0);
    return is_missing(found) && is_large(call) ? find_call(call - 1, depth > 0) : found;
}

/* The real call as a function of the given parameter types. */
#define REAL(call, ...) ((int (*)(__VA_ARGS__))real_call(call))

/* Begins a wrapped call; true when it is the program's and is to be watched. Ended by leave(). */
static bool enter(void)
{
    return depth++ == 0 && active;
}

static int leave(int rc)
{
    depth--;
    return rc;
}

static mpi_handle value_of(mpi_handle handle)
{
    return handle & pdla_mpi()->handle_mask;
}

static int error_class(int error)
{
    int class = error;
    if (error != 0)
        pdla_mpi()->Error_class(error, &class);
    return class;
}

/* ---- start and end ---------------------------------------------------------------------------------------------------- */

static void leave_to_parent(void)
{
    active = false;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

__attribute__((constructor)) static void begin_process(void)
{
    active = is_set("PDLA_TRACE") || is_set("PDLA_MAP");
    if (active)
        pthread_atfork(NULL, NULL, leave_to_parent);
}

static void report_once(void)
{
    static int reported;
    if (active && !__atomic_exchange_n(&reported, 1, __ATOMIC_ACQ_REL))
        stub_report();
}

__attribute__((destructor)) static void end_process(void)
{
    report_once();
}

static int initialized(bool watched, int rc)
{
    if (rc == 0 && watched)
        recorder_start();
    return leave(rc);
}

EXPORT int MPI_Init(int *argc, char ***argv)
{
    int (*real)(int *, char ***) = REAL(CALL_Init, int *, char ***);
    bool watched = enter();
    return initialized(watched, real(argc, argv));
}
ALIAS(Init)

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*real)(int *, char ***, int, int *) = REAL(CALL_Init_thread, int *, char ***, int, int *);
    bool watched = enter();
    return initialized(watched, real(argc, argv, required, provided));
}
ALIAS(Init_thread)

/* RATIONALE: a guard of its own: programs close files in callbacks of MPI_Finalize, and those calls are the program's. */
EXPORT int MPI_Finalize(void)
{
    static __thread bool inside;
    int (*real)(void) = (int (*)(void))find_call(CALL_Finalize, inside);
    if (active && !inside) {
        recorder_finalize();
        report_once();
    }
    inside = true;
    int rc = real();
    inside = false;
    return rc;
}
ALIAS(Finalize)

/* ---- recording -------------------------------------------------------------------------------------------------------- */

static void record(struct rawlog_record *record, unsigned call, const struct file_handle *handle, int rc)
{
    record->t_end = clock_ns();
    record->call = (uint16_t)call;
    record->error = error_class(rc);
    if (handle) {
        record->file = handle->id;
        record->view = handle->view.id;
    }
    if (handle && !handle->view.map)
        record->flags |= RAWLOG_OPAQUE_VIEW;
    recorder_append(record);
}

/* Records the call, or counts it where the library did not see the file opened. */
static void record_known(struct rawlog_record *about, unsigned call, const struct file_handle *handle, int rc)
{
    if (!handle)
        recorder_passed(call);
    else if (recorder_on())
        record(about, call, handle, rc);
}

/* Bytes of the view's data stream before the individual file pointer; -1 unknown. */
static int64_t current_position(const struct file_handle *handle)
{
    mpi_offset offset;
    /* RATIONALE: asking raises an error on a sequential file. */
    if (!handle->view.map || (handle->amode & AMODE_SEQUENTIAL) ||
        pdla_mpi()->File_get_position(handle->file, &offset) != 0)
        return -1;
    return offset * handle->view.etype_size;
}

/* ---- open, close, view, seek ------------------------------------------------------------------------------------------ */

static int mpich_amode(int amode)
{
    static const int abi[] = {AMODE_APPEND, AMODE_CREATE, AMODE_DELETE_ON_CLOSE, AMODE_EXCL, AMODE_RDONLY, AMODE_RDWR,
                              AMODE_SEQUENTIAL, AMODE_UNIQUE_OPEN, AMODE_WRONLY};
    int translated = 0;
    if (pdla_mpi()->family != MPI_FAMILY_ABI)
        return amode;
    for (unsigned bit = 0; bit < sizeof abi / sizeof *abi; bit++)
        if (amode & (1 << bit))
            translated |= abi[bit];
    return translated;
}

/* Without the file-system prefix that MPI libraries accept ("ufs:"), absolute, symbolic links resolved. */
static void resolve_path(const char *name, char resolved[PATH_MAX])
{
    struct stat status;
    size_t prefix = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
    char directory[PATH_MAX];
    if (prefix > 1 && name[prefix] == ':' && stat(name, &status) != 0)
        name += prefix + 1;
    if (realpath(name, resolved))
        return;
    if (*name == '/' || !getcwd(directory, sizeof directory))
        snprintf(resolved, PATH_MAX, "%s", name);
    else
        snprintf(resolved, PATH_MAX, "%.*s/%s", PATH_MAX / 2, directory, name);
}

typedef int open_call(mpi_handle, const char *, int, mpi_handle, mpi_handle *);

static int watch_open(open_call *real, mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    const bool recording = recorder_on();
    struct rawlog_record opened = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    char path[PATH_MAX];
    int rc = real(comm, name, amode, info, file);
    resolve_path(name, path);
    struct file_handle *handle = rc == 0 ? handle_open(*file) : NULL;
    if (handle) {
        handle->amode = mpich_amode(amode);
        handle->id = recorder_file(path, handle->amode, value_of(comm));
    }
    if (value_of(comm) != pdla_mpi()->comm_null)
        stub_opened(handle, value_of(comm), path, mpich_amode(amode));
    if (recording)
        record(&opened, CALL_File_open, handle, rc);
    handle_release(handle);
    return rc;
}

EXPORT int MPI_File_open(mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    open_call *real = (open_call *)real_call(CALL_File_open);
    return leave(enter() ? watch_open(real, comm, name, amode, info, file) : real(comm, name, amode, info, file));
}
ALIAS(File_open)

typedef int close_call(mpi_handle *);

static int watch_close(close_call *real, mpi_handle *file)
{
    struct rawlog_record closed = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    struct file_handle *handle = handle_find(*file);
    if (handle) {
        stub_closing(handle);
        /* Before the real call, which frees the handle's value for another thread's open. */
        handle_close(handle);
    }
    int rc = real(file);
    record_known(&closed, CALL_File_close, handle, rc);
    handle_release(handle);
    return rc;
}

EXPORT int MPI_File_close(mpi_handle *file)
{
    close_call *real = (close_call *)real_call(CALL_File_close);
    return leave(enter() ? watch_close(real, file) : real(file));
}
ALIAS(File_close)

typedef int view_call(mpi_handle, mpi_offset, mpi_handle, mpi_handle, const char *, mpi_handle);

static void set_view(struct file_view *view, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                     const char *representation)
{
    mpi_count etype_size = 1;
    typemap_release(view->map);
    *view = (struct file_view){.displacement = displacement, .native = strcasecmp(representation, "native") == 0};
    /* RATIONALE: a negative displacement is MPI_DISPLACEMENT_CURRENT, of sequential files. */
    if (view->native && displacement >= 0 && pdla_mpi()->Type_size_x(etype, &etype_size) == 0)
        view->map = typemap_flatten(filetype);
    view->etype_size = etype_size;
    view->id = recorder_view(view);
}

static int watch_view(view_call *real, mpi_handle file, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                      const char *representation, mpi_handle info)
{
    struct rawlog_record viewed = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    int rc = real(file, displacement, etype, filetype, representation, info);
    struct file_handle *handle = handle_find(file);
    if (handle && rc == 0)
        set_view(&handle->view, displacement, value_of(etype), value_of(filetype), representation);
    record_known(&viewed, CALL_File_set_view, handle, rc);
    handle_release(handle);
    return rc;
}

EXPORT int MPI_File_set_view(mpi_handle file, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                             const char *representation, mpi_handle info)
{
    view_call *real = (view_call *)real_call(CALL_File_set_view);
    return leave(enter() ? watch_view(real, file, displacement, etype, filetype, representation, info)
                         : real(file, displacement, etype, filetype, representation, info));
}
ALIAS(File_set_view)

typedef int seek_call(mpi_handle, mpi_offset, int);

static int watch_seek(seek_call *real, mpi_handle file, mpi_offset offset, int whence)
{
    struct rawlog_record sought = {.t_start = clock_ns()};
    int rc = real(file, offset, whence);
    struct file_handle *handle = handle_find(file);
    if (handle && recorder_on())
        sought.position = current_position(handle);
    record_known(&sought, CALL_File_seek, handle, rc);
    handle_release(handle);
    return rc;
}

EXPORT int MPI_File_seek(mpi_handle file, mpi_offset offset, int whence)
{
    seek_call *real = (seek_call *)real_call(CALL_File_seek);
    return leave(enter() ? watch_seek(real, file, offset, whence) : real(file, offset, whence));
}
ALIAS(File_seek)

EXPORT int MPI_File_set_atomicity(mpi_handle file, int flag)
{
    int (*real)(mpi_handle, int) = REAL(CALL_File_set_atomicity, mpi_handle, int);
    bool watched = enter();
    int rc = real(file, flag);
    struct file_handle *handle = watched ? handle_find(file) : NULL;
    if (handle && rc == 0)
        handle->atomic = flag != 0;
    if (watched)
        recorder_passed(CALL_File_set_atomicity);
    handle_release(handle);
    return leave(rc);
}
ALIAS(File_set_atomicity)

/* ---- data access ------------------------------------------------------------------------------------------------------ */

enum form { PLAIN, AT, BEGIN, BEGIN_AT };

/* A data call as the program made it. `last` is the status or the request of the forms that have one. */
struct access {
    unsigned call, flags;
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
    if (datatype != mpi->byte && mpi->Type_size_x(datatype, &size) != 0)
        return 0;
    return access->count * size;
}

static bool is_strided(mpi_handle datatype)
{
    const struct mpi *mpi = pdla_mpi();
    mpi_count size, lb, extent, true_lb, true_extent;
    return datatype != mpi->byte && mpi->Type_size_x(datatype, &size) == 0 &&
           mpi->Type_get_extent_x(datatype, &lb, &extent) == 0 &&
           mpi->Type_get_true_extent_x(datatype, &true_lb, &true_extent) == 0 &&
           (size != extent || size != true_extent);
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
                              (is_strided(call->datatype) ? RAWLOG_MEMORY_STRIDED : 0) |
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
    else
        call.position = handle->view.map && access->offset >= 0 ? access->offset * handle->view.etype_size : -1;
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
    } else {
        rc = recorded_access(access, handle);
    }
    handle_release(handle);
    return rc;
}

static int access_file(struct access *access)
{
    if (access->count > INT_MAX && is_missing(find_call(access->call, depth > 0)))
        return ERR_COUNT;
    access->real = real_call(access->call);
    return leave(enter() ? watch_access(access) : make_real(access, access->last));
}

static int end_split(unsigned call, unsigned flags, mpi_handle file, void *buffer, void *status)
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

static int resize(unsigned call, mpi_handle file, mpi_offset size)
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

/* ---- expansions of calls.def ------------------------------------------------------------------------------------------ */

#define MAKE_PLAIN(name, type, flags)                                                                                  \
    EXPORT int MPI_##name(mpi_handle file, void *buffer, type count, mpi_handle datatype, void *last)                  \
    {                                                                                                                  \
        return access_file(&(struct access){CALL_##name, flags, PLAIN, file, 0, buffer, count, datatype, last, NULL}); \
    }                                                                                                                  \
    ALIAS(name)

#define MAKE_AT(name, type, flags)                                                                                       \
    EXPORT int MPI_##name(mpi_handle file, mpi_offset offset, void *buffer, type count, mpi_handle datatype, void *last) \
    {                                                                                                                    \
        return access_file(&(struct access){CALL_##name, flags, AT, file, offset, buffer, count, datatype, last, NULL}); \
    }                                                                                                                    \
    ALIAS(name)

#define MAKE_BEGIN(name, type, flags)                                                                                  \
    EXPORT int MPI_##name(mpi_handle file, void *buffer, type count, mpi_handle datatype)                              \
    {                                                                                                                  \
        return access_file(&(struct access){CALL_##name, flags, BEGIN, file, 0, buffer, count, datatype, NULL, NULL}); \
    }                                                                                                                  \
    ALIAS(name)

#define MAKE_BEGIN_AT(name, type, flags)                                                                            \
    EXPORT int MPI_##name(mpi_handle file, mpi_offset offset, void *buffer, type count, mpi_handle datatype)        \
    {                                                                                                               \
        return access_file(                                                                                         \
            &(struct access){CALL_##name, flags, BEGIN_AT, file, offset, buffer, count, datatype, NULL, NULL});     \
    }                                                                                                               \
    ALIAS(name)

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
