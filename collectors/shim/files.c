/* Opening and closing files, their views and pointers. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"

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

void resolve_path(const char *name, char resolved[PATH_MAX])
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

enum { ERR_COMM = 5 }; /* MPI_ERR_COMM of every family */

typedef int open_call(mpi_handle, const char *, int, mpi_handle, mpi_handle *);

/* Where nothing is recorded or redirected: nobody is to see a file as it was before writes that wait in replicas. */
static int open_settled(open_call *real, mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    struct opening opening;
    int rc = stub_opening(value_of(comm), name, mpich_amode(amode), &opening);
    if (rc)
        *file = pdla_mpi()->file_null;
    stub_not_opened(&opening);
    return rc ? rc : real(comm, name, amode, info, file);
}

static int watch_open(open_call *real, mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    struct rawlog_record opened = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    char path[PATH_MAX];
    struct opening opening;
    posix_opening(name);
    int rc = stub_opening(value_of(comm), name, mpich_amode(amode), &opening);
    const bool refused = rc != 0;
    if (refused)
        *file = pdla_mpi()->file_null;
    else
        rc = real(comm, name, amode, info, file);
    resolve_path(name ? name : "", path);
    struct file_handle *handle = rc == 0 ? handle_open(*file) : NULL;
    const bool recording = recorder_on() && recorder_wants(path);
    if (handle) {
        handle->amode = mpich_amode(amode);
        handle->recorded = recording;
        handle->id = recording ? recorder_file(path, handle->amode, value_of(comm)) : 0;
        pdla_mpi()->Comm_size(value_of(comm), &handle->ranks);
    }
    posix_opened(path, handle ? handle->id : 0);
    if (refused || error_class(rc) == ERR_COMM)
        stub_not_opened(&opening);
    else
        stub_opened(handle, value_of(comm), path, mpich_amode(amode), &opening);
    if (recording)
        record(&opened, CALL_File_open, handle, rc);
    return rc;
}

EXPORT int MPI_File_open(mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    open_call *real = (open_call *)real_call(CALL_File_open);
    if (enter())
        return leave(watch_open(real, comm, name, amode, info, file));
    return leave(in_call.depth == 1 ? open_settled(real, comm, name, amode, info, file) : real(comm, name, amode, info, file));
}
ALIAS(File_open)

typedef int close_call(mpi_handle *);

static int watch_close(close_call *real, mpi_handle *file)
{
    struct rawlog_record closed = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    struct file_handle *handle = file ? handle_find(*file) : NULL;
    int error = 0;
    if (handle) {
        error = stub_closing(handle);
        requests_forget(handle->file);
        /* Before the real call, which frees the handle's value for another thread's open. */
        handle_close(handle);
    }
    int rc = real(file);
    rc = rc ? rc : error;
    record_known(&closed, CALL_File_close, handle, rc);
    handle_free(handle);
    return rc;
}

EXPORT int MPI_File_close(mpi_handle *file)
{
    close_call *real = (close_call *)real_call(CALL_File_close);
    return leave(enter() ? watch_close(real, file) : real(file));
}
ALIAS(File_close)

typedef int view_call(mpi_handle, mpi_offset, mpi_handle, mpi_handle, const char *, mpi_handle);

static void set_view(struct file_handle *handle, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                     const char *representation)
{
    struct file_view *view = &handle->view;
    mpi_count etype_size = 1;
    typemap_release(view->map);
    *view = (struct file_view){.displacement = displacement, .native = strcasecmp(representation, "native") == 0};
    /* RATIONALE: a negative displacement is MPI_DISPLACEMENT_CURRENT, of sequential files. */
    if (view->native && displacement >= 0 && pdla_mpi()->Type_size_x(etype, &etype_size) == 0)
        view->map = typemap_flatten(filetype);
    view->etype_size = etype_size;
    view->id = handle->recorded ? recorder_view(view) : 0;
}

static int watch_view(view_call *real, mpi_handle file, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                      const char *representation, mpi_handle info)
{
    struct rawlog_record viewed = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    int rc = real(file, displacement, etype, filetype, representation, info);
    struct file_handle *handle = handle_find(file);
    if (handle)
        handle->views++;
    if (handle && rc == 0)
        set_view(handle, displacement, value_of(etype), value_of(filetype), representation);
    if (handle && handle->writer)
        stub_viewed(handle);
    record_known(&viewed, CALL_File_set_view, handle, rc);
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
    struct file_handle *handle = handle_find(file);
    if (handle)
        hold_pointer(handle);
    int rc = handle && handle->writer && whence == pdla_mpi()->seek_end ? stub_look_at_size(handle, STUB_ALONE) : 0;
    rc = rc ? rc : real(file, offset, whence);
    if (handle && handle->recorded)
        sought.position = current_position(handle);
    if (handle)
        release_pointer(handle);
    record_known(&sought, CALL_File_seek, handle, rc);
    return rc;
}

EXPORT int MPI_File_seek(mpi_handle file, mpi_offset offset, int whence)
{
    seek_call *real = (seek_call *)real_call(CALL_File_seek);
    return leave(enter() ? watch_seek(real, file, offset, whence) : real(file, offset, whence));
}
ALIAS(File_seek)

/* RATIONALE: another rank may already have moved the shared pointer, so that asking for it says nothing: only a place
 * sought from the start is known. */
static int64_t sought_position(const struct file_handle *handle, mpi_offset offset, int whence)
{
    const int seek_set = pdla_mpi()->family == MPI_FAMILY_ABI ? 403 : 600;
    int64_t position;
    if (!handle || !handle->view.map || whence != seek_set ||
        __builtin_mul_overflow(offset, handle->view.etype_size, &position))
        return -1;
    return position;
}

EXPORT int MPI_File_seek_shared(mpi_handle file, mpi_offset offset, int whence)
{
    seek_call *real = (seek_call *)real_call(CALL_File_seek_shared);
    if (!enter())
        return leave(real(file, offset, whence));
    struct rawlog_record sought = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    int rc = handle && handle->writer && whence == pdla_mpi()->seek_end ? stub_look_at_size(handle, STUB_TOGETHER) : 0;
    rc = rc ? rc : real(file, offset, whence);
    sought.position = rc == 0 ? sought_position(handle, offset, whence) : -1;
    record_known(&sought, CALL_File_seek_shared, handle, rc);
    return leave(rc);
}
ALIAS(File_seek_shared)

EXPORT int MPI_File_set_atomicity(mpi_handle file, int flag)
{
    int (*real)(mpi_handle, int) = REAL(CALL_File_set_atomicity, mpi_handle, int);
    if (!enter())
        return leave(real(file, flag));
    struct rawlog_record set = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    int rc = handle && handle->writer ? stub_look(handle, NULL, STUB_TOGETHER) : 0;
    rc = rc ? rc : real(file, flag);
    if (handle && rc == 0)
        handle->atomic = flag != 0;
    record_known(&set, CALL_File_set_atomicity, handle, rc);
    return leave(rc);
}
ALIAS(File_set_atomicity)

EXPORT int MPI_File_delete(const char *name, mpi_handle info)
{
    int (*real)(const char *, mpi_handle) = REAL(CALL_File_delete, const char *, mpi_handle);
    if (!enter())
        return leave(real(name, info));
    struct rawlog_record deleted = {.t_start = clock_ns()};
    uint64_t inode;
    char path[PATH_MAX];
    resolve_path(name ? name : "", path);
    stub_deleting(path, &inode);
    int rc = real(name, info);
    if (rc == 0)
        stub_deleted(path, inode);
    if (recorder_on() && recorder_wants(path))
        record(&deleted, CALL_File_delete, NULL, rc);
    return leave(rc);
}
ALIAS(File_delete)

EXPORT int MPI_File_get_size(mpi_handle file, mpi_offset *size)
{
    int (*real)(mpi_handle, mpi_offset *) = REAL(CALL_File_get_size, mpi_handle, mpi_offset *);
    if (!enter())
        return leave(real(file, size));
    struct rawlog_record asked = {.t_start = clock_ns()};
    struct file_handle *handle = handle_find(file);
    int rc = handle && handle->writer ? stub_look_at_size(handle, STUB_ALONE) : 0;
    rc = rc ? rc : real(file, size);
    record_known(&asked, CALL_File_get_size, handle, rc);
    return leave(rc);
}
ALIAS(File_get_size)

EXPORT int MPI_File_sync(mpi_handle file)
{
    int (*real)(mpi_handle) = REAL(CALL_File_sync, mpi_handle);
    if (!enter())
        return leave(real(file));
    struct rawlog_record synced = {.t_start = clock_ns(), .flags = RAWLOG_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    int error = handle && handle->writer ? stub_look(handle, NULL, STUB_TOGETHER) : 0;
    int rc = real(file);
    rc = rc ? rc : error;
    record_known(&synced, CALL_File_sync, handle, rc);
    return leave(rc);
}
ALIAS(File_sync)
