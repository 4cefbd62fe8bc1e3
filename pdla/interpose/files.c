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
    if (running_mpi()->family != MPI_FAMILY_ABI)
        return amode;
    for (unsigned bit = 0; bit < sizeof abi / sizeof *abi; bit++)
        if (amode & (1 << bit))
            translated |= abi[bit];
    return translated;
}

/* The name without the prefix of a file system, such as "ufs:". */
static const char *without_prefix(const char *name)
{
    struct stat status;
    size_t prefix = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
    return prefix > 1 && name[prefix] == ':' && stat(name, &status) != 0 ? name + prefix + 1 : name;
}

void resolve_path(const char *name, char resolved[PATH_MAX])
{
    char directory[PATH_MAX];
    name = without_prefix(name);
    if (realpath(name, resolved))
        return;
    if (*name == '/' || !getcwd(directory, sizeof directory))
        snprintf(resolved, PATH_MAX, "%s", name);
    else
        snprintf(resolved, PATH_MAX, "%.*s/%s", PATH_MAX / 2, directory, name);
}

enum { ERR_COMM = 5 }; /* MPI_ERR_COMM of every family */

typedef int open_call(mpi_handle, const char *, int, mpi_handle, mpi_handle *);

/* The interceptor is called even if no tool watches: nobody may see a file without the writes that
 * the interceptor holds back. */
static int open_recovered(open_call *real, mpi_handle comm, const char *name, int amode, mpi_handle info,
                          mpi_handle *file)
{
    struct opening opening = {.comm = value_of(comm), .name = name, .amode = mpich_amode(amode),
                              .info = value_of(info)};
    int rc = ASK(opening, (&opening));
    if (rc)
        *file = running_mpi()->file_null;
    INTERCEPT(not_opened, (&opening));
    return rc ? rc : real(comm, name, amode, info, file);
}

static struct file_handle *make_handle(mpi_handle file, const struct opening *opening)
{
    struct file_handle *handle = learn_whence() ? handle_open(file) : NULL;
    if (handle) {
        handle->amode = opening->amode;
        running_mpi()->Comm_size(opening->comm, &handle->ranks);
    }
    return handle;
}

static int watch_open(open_call *real, mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    struct file_call opened = {.number = CALL_File_open, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    struct opening opening = {.comm = value_of(comm), .name = name, .amode = mpich_amode(amode),
                              .info = value_of(info)};
    char path[PATH_MAX];
    OBSERVE(opening, (&opening));
    opened.rc = ASK(opening, (&opening));
    const bool refused = opened.rc != 0;
    if (refused)
        *file = running_mpi()->file_null;
    else
        opened.rc = real(comm, name, amode, info, file);
    resolve_path(name ? name : "", path);
    opening.path = path;
    opened.handle = opened.rc == 0 ? make_handle(*file, &opening) : NULL;
    if (refused || error_class(opened.rc) == ERR_COMM)
        INTERCEPT(not_opened, (&opening));
    else
        INTERCEPT(opened, (&opening, opened.handle));
    OBSERVE(opened, (&opening, &opened));
    return opened.rc;
}

EXPORT int MPI_File_open(mpi_handle comm, const char *name, int amode, mpi_handle info, mpi_handle *file)
{
    open_call *real = (open_call *)real_call(CALL_File_open);
    if (!knows_mpi())
        return real(comm, name, amode, info, file);
    if (enter())
        return leave(watch_open(real, comm, name, amode, info, file));
    return leave(in_call.depth == 1 ? open_recovered(real, comm, name, amode, info, file)
                                    : real(comm, name, amode, info, file));
}
ALIAS(File_open)

typedef int close_call(mpi_handle *);

static int watch_close(close_call *real, mpi_handle *file)
{
    struct file_call closed = {.number = CALL_File_close, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    struct file_handle *handle = file ? handle_find(*file) : NULL;
    const bool intercepted = handle && handle->intercepted;
    int error = 0;
    if (handle) {
        error = intercepted ? ASK(closing, (handle)) : 0;
        requests_forget(handle->file);
        /* Before the real call, which frees the handle's value for another thread's open. */
        handle_close(handle);
    }
    int rc = real(file);
    if (intercepted)
        INTERCEPT(closed, ());
    rc = rc ? rc : error;
    called(&closed, handle, rc);
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
    if (view->native && displacement >= 0 && running_mpi()->Type_size_x(etype, &etype_size) == 0)
        view->map = typemap_flatten(filetype);
    view->etype_size = etype_size;
    if (handle->observed)
        OBSERVE(viewed, (handle));
}

static int watch_view(view_call *real, mpi_handle file, mpi_offset displacement, mpi_handle etype, mpi_handle filetype,
                      const char *representation, mpi_handle info)
{
    struct file_call viewed = {.number = CALL_File_set_view, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    int rc = real(file, displacement, etype, filetype, representation, info);
    struct file_handle *handle = handle_find(file);
    if (handle)
        handle->views++;
    if (handle && rc == 0)
        set_view(handle, displacement, value_of(etype), value_of(filetype), representation);
    if (handle && handle->intercepted)
        INTERCEPT(viewed, (handle));
    return called(&viewed, handle, rc);
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
    struct file_call sought = {.number = CALL_File_seek, .start = ticks_at_begin()};
    struct file_handle *handle = handle_find(file);
    if (handle)
        hold_pointer(handle);
    int rc = handle && handle->intercepted && whence == seek_end ? ASK(before_size, (handle, false)) : 0;
    rc = rc ? rc : real(file, offset, whence);
    if (handle && handle->observed)
        sought.position = current_position(handle);
    if (handle)
        release_pointer(handle);
    return called(&sought, handle, rc);
}

EXPORT int MPI_File_seek(mpi_handle file, mpi_offset offset, int whence)
{
    seek_call *real = (seek_call *)real_call(CALL_File_seek);
    return leave(enter() ? watch_seek(real, file, offset, whence) : real(file, offset, whence));
}
ALIAS(File_seek)

/* RATIONALE: another rank may already have moved the shared pointer, so that its value says
 * nothing. Only a seek from the start gives a known place. */
static int64_t sought_position(const struct file_handle *handle, mpi_offset offset, int whence)
{
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
    struct file_call sought = {.number = CALL_File_seek_shared, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    int rc = handle && handle->intercepted && whence == seek_end ? ASK(before_size, (handle, true)) : 0;
    rc = rc ? rc : real(file, offset, whence);
    sought.position = rc == 0 ? sought_position(handle, offset, whence) : -1;
    return leave(called(&sought, handle, rc));
}
ALIAS(File_seek_shared)

EXPORT int MPI_File_set_atomicity(mpi_handle file, int flag)
{
    int (*real)(mpi_handle, int) = REAL(CALL_File_set_atomicity, mpi_handle, int);
    if (!enter())
        return leave(real(file, flag));
    struct file_call set = {.number = CALL_File_set_atomicity, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    const int error = handle && handle->intercepted ? ASK(sync, (handle)) : 0;
    int rc = real(file, flag);
    if (handle && rc == 0)
        handle->atomic = flag != 0;
    rc = rc ? rc : error;
    return leave(called(&set, handle, rc));
}
ALIAS(File_set_atomicity)

EXPORT int MPI_File_delete(const char *name, mpi_handle info)
{
    int (*real)(const char *, mpi_handle) = REAL(CALL_File_delete, const char *, mpi_handle);
    if (!enter())
        return leave(real(name, info));
    struct file_call deleted = {.number = CALL_File_delete, .start = ticks_at_begin()};
    void *note = NULL;
    char path[PATH_MAX];
    resolve_path(name ? name : "", path);
    INTERCEPT(deleting, (without_prefix(name ? name : ""), &note));
    deleted.rc = real(name, info);
    INTERCEPT(deleted, (note, deleted.rc == 0));
    OBSERVE(deleted, (path, &deleted));
    return leave(deleted.rc);
}
ALIAS(File_delete)

EXPORT int MPI_File_get_size(mpi_handle file, mpi_offset *size)
{
    int (*real)(mpi_handle, mpi_offset *) = REAL(CALL_File_get_size, mpi_handle, mpi_offset *);
    if (!enter())
        return leave(real(file, size));
    struct file_call asked = {.number = CALL_File_get_size, .start = ticks_at_begin()};
    struct file_handle *handle = handle_find(file);
    int rc = handle && handle->intercepted ? ASK(before_size, (handle, false)) : 0;
    rc = rc ? rc : real(file, size);
    return leave(called(&asked, handle, rc));
}
ALIAS(File_get_size)

EXPORT int MPI_File_sync(mpi_handle file)
{
    int (*real)(mpi_handle) = REAL(CALL_File_sync, mpi_handle);
    if (!enter())
        return leave(real(file));
    struct file_call synced = {.number = CALL_File_sync, .start = ticks_at_begin(), .flags = CALL_COLLECTIVE};
    struct file_handle *handle = handle_find(file);
    int error = handle && handle->intercepted ? ASK(sync, (handle)) : 0;
    int rc = real(file);
    rc = rc ? rc : error;
    return leave(called(&synced, handle, rc));
}
ALIAS(File_sync)
