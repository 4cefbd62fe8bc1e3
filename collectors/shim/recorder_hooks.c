/* The recorder as an observer: makes a record of each call on a file that is recorded. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "recorder.h"

/* Of a file that is recorded. */
struct recorded_file {
    uint32_t id, view; /* for the records */
};

static bool is_traced(void)
{
    const char *directory = getenv("PDLA_TRACE");
    return directory && *directory;
}

/* Called when the library is loaded: no other thread looks at the environment. */
static bool wanted(void)
{
    learn_unasked();
    return is_traced();
}

static void initialized(void)
{
    if (is_traced())
        clocks_align();
    recorder_start();
}

/* Records a call that ends now. `handle` NULL: it is on no open file. `about` has the rest. Returns
 * the place from recorder_append(). */
static uint64_t record(struct rawlog_record *about, enum call call, const struct file_handle *handle, int rc)
{
    const struct recorded_file *file = handle ? handle->observed : NULL;
    about->t_end = ticks_at_end();
    if (about->t_end < about->t_start) /* counters of two processors may differ a little */
        about->t_end = about->t_start;
    about->call = (uint16_t)call;
    about->error = error_class(rc);
    if (about->position > INT64_MAX / 2) /* impossible for a file; a sum with it may overflow */
        about->position = -1;
    if (file) {
        about->file = file->id;
        about->view = file->view;
    }
    if (handle && !handle->view.map)
        about->flags |= RAWLOG_OPAQUE_VIEW;
    const struct recorded made = recorder_append(about);
    if (*call_note())
        posix_link(made.number);
    return made.place;
}

static void called(const struct file_call *call)
{
    struct rawlog_record about = {.t_start = call->start, .position = call->position,
                                  .flags = call->flags & CALL_COLLECTIVE ? RAWLOG_COLLECTIVE : 0};
    record(&about, call->number, call->handle, call->rc);
}

/* Whether the file at `path` is gone. It is still there if a link to it was deleted. */
static bool is_gone(const char *path)
{
    const int error = errno; /* the program's */
    const bool gone = access(path, F_OK) != 0;
    errno = error;
    return gone;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void opening(const struct opening *opening)
{
    posix_opening(opening->name);
}

static void observe(const struct opening *opening, struct file_handle *handle)
{
    struct recorded_file *file = calloc(1, sizeof *file);
    if (file)
        file->id = recorder_file(opening->path, handle->amode, opening->comm);
    handle->observed = file;
}

static void opened(const struct opening *opening, const struct file_call *call)
{
    const bool recording = recorder_on() && recorder_wants(opening->path);
    if (recording && call->handle)
        observe(opening, call->handle);
    const struct recorded_file *file = call->handle ? call->handle->observed : NULL;
    posix_opened(opening->path, file ? file->id : 0);
    if (recording)
        called(call);
}

static void deleted(const char *path, const struct file_call *call)
{
    if (!recorder_on() || !recorder_wants(path))
        return;
    struct rawlog_record about = {.t_start = call->start, .position = call->position};
    if (call->rc == 0 && is_gone(path))
        about.file = recorder_deleted_file(path);
    record(&about, call->number, NULL, call->rc);
}

static void viewed(struct file_handle *handle)
{
    struct recorded_file *file = handle->observed;
    file->view = recorder_view(&handle->view);
}

static void forget(struct file_handle *handle)
{
    free(handle->observed);
}

/* ---- data access ------------------------------------------------------------------------------------------------- */

static unsigned flags_of(const struct io_call *call)
{
    const unsigned flags = call->flags;
    return (flags & CALL_COLLECTIVE ? RAWLOG_COLLECTIVE : 0) | (flags & CALL_NONBLOCKING ? RAWLOG_NONBLOCKING : 0) |
           (flags & CALL_LARGE ? RAWLOG_LARGE : 0) | (flags & CALL_EXPLICIT ? RAWLOG_EXPLICIT : 0) |
           (is_strided(call) ? RAWLOG_MEMORY_STRIDED : 0) | (call->redirected ? RAWLOG_REDIRECTED : 0);
}

static uint64_t accessed(const struct io_call *call, int rc, bool pending)
{
    struct rawlog_record data = {.t_start = call->start, .position = call->position,
                                 .length = call->bytes > 0 ? call->bytes : 0, .flags = (uint16_t)flags_of(call)};
    if (rc == 0)
        data.moved = pending ? -1 : moved_bytes(call->status);
    if (data.moved < 0) {
        data.moved = data.length;
        data.flags |= RAWLOG_MOVED_UNKNOWN;
    }
    if (pending)
        data.flags |= RAWLOG_PENDING;
    return record(&data, call->number, call->handle, rc);
}

static void completed(uint64_t operation, const void *status, int rc)
{
    mpi_count moved = 0;
    if (rc == 0)
        moved = status ? moved_bytes(status) : -1;
    const uint64_t number = recorder_end(operation, moved, error_class(rc));
    if (*call_note())
        posix_link(number);
}

const struct observer interpose_observer = {
    .wanted = wanted,
    .initialized = initialized,
    .finalizing = recorder_finalize,
    .opening = opening,
    .opened = opened,
    .deleted = deleted,
    .viewed = viewed,
    .called = called,
    .accessed = accessed,
    .completed = completed,
    .passed = recorder_passed,
    .forget = forget,
};
