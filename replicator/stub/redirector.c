/* The redirector (PDLA_MAP) as an interceptor of the calls on MPI files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "critical_requests.h"
#include "deferred_close.h"
#include "deletion.h"
#include "leased_read.h"
#include "open.h"
#include "originals.h"
#include "read.h"
#include "report.h"
#include "roll_call.h"
#include "staleness.h"
#include "step_aside.h"
#include "redirected_call.h"
#include "redirection.h"
#include "write_open.h"
#include "writer.h"

static bool wanted(void)
{
    const char *map = getenv("PDLA_MAP");
    return map != NULL && *map != '\0';
}

/* RATIONALE: an error that one rank finds must not keep it from a collective call. */
static bool is_independent(const struct io_call *call)
{
    return !(call->flags & CALL_COLLECTIVE);
}

/* RATIONALE: nonblocking and split collectives do not wait for the other ranks, so that the ranks
 * cannot agree in them. */
static bool is_blocking_collective(const struct io_call *call)
{
    return call->flags & CALL_COLLECTIVE && !(call->flags & (CALL_NONBLOCKING | CALL_SPLIT));
}

/* For calls by the shared file pointer. True: the call is not to be made. */
static bool make_visible_for_good(struct io_call *call, int *rc)
{
    return writer_of(call->handle) != NULL && (*rc = make_visible(call->handle, call, VISIBLE_FOR_GOOD)) != 0
        && is_independent(call);
}

static bool is_leased(const struct io_call *call)
{
    return redirection_of(call->handle)->leased != NULL;
}

static bool read_shared(struct io_call *call, int *rc)
{
    if (is_leased(call) && redirector_read_leased_shared(call, rc))
        return true;
    if (make_visible_for_good(call, rc))
        return true;
    redirector_passed(call->handle, call->bytes, "shared file pointer");
    return false;
}

/* For later runs, however the call is served. */
static void judge_read(const struct io_call *call)
{
    struct critical_requests *critical = redirection_of(call->handle)->critical;
    struct view_range range;
    if (critical != NULL && call->bytes > 0 && !call->refused && view_range_of(call, &range) == NULL)
        critical_requests_judge(critical, call, CACHING_READ, &range);
}

static bool read_data(struct io_call *call, int *rc)
{
    judge_read(call);
    if (writer_of(call->handle) != NULL && redirector_read_cached(call)) {
        *rc = 0;
        return true;
    }
    if (is_leased(call) && redirector_read_leased(call, rc))
        return true;
    const enum make_visible look = is_blocking_collective(call) ? VISIBLE_BY_ALL : VISIBLE_BY_ONE;
    if (writer_of(call->handle) != NULL && (*rc = make_visible(call->handle, call, look)) != 0
        && (look == VISIBLE_BY_ALL || is_independent(call)))
        return true;
    return redirector_read(call, rc);
}

static bool write_data(struct io_call *call, int *rc)
{
    struct file_handle *handle = call->handle;
    if (call->flags & CALL_SHARED ? make_visible_for_good(call, rc)
                                  : writer_of(handle) != NULL && redirector_write(call, rc))
        return true;
    if (call->refused || (*rc = redirector_write_begin(handle, call)) == 0 || !is_independent(call))
        return false;
    redirector_write_end(handle);
    return true;
}

static bool access_data(struct io_call *call, int *rc)
{
    if (is_independent(call) && (*rc = writer_raise(call->handle, deferred_close_error())) != 0)
        return true;
    const bool done = call->flags & CALL_WRITE ? write_data(call, rc)
        : call->flags & CALL_SHARED            ? read_shared(call, rc)
                                               : read_data(call, rc);
    if (done)
        critical_requests_served(redirection_of(call->handle)->critical, call->redirected);
    return done;
}

static void access_end(struct file_handle *handle, unsigned flags)
{
    critical_requests_served(redirection_of(handle)->critical, false);
    step_aside_read(reader_of(handle));
    if (flags & CALL_WRITE)
        redirector_write_end(handle);
}

static void viewed(struct file_handle *handle)
{
    if (writer_of(handle) != NULL)
        redirector_viewed(handle);
}

static int sync_file(struct file_handle *handle)
{
    const int rc = writer_of(handle) == NULL ? 0 : make_visible(handle, NULL, VISIBLE_BY_ALL);
    if (writer_of(handle) != NULL)
        writer_exchange_service_times(handle);
    return rc != 0 ? rc : writer_raise(handle, deferred_close_error());
}

static int before_size(struct file_handle *handle, bool together)
{
    return writer_of(handle) == NULL ? 0 : make_size_visible(handle, together);
}

static void deleting(const char *name, void **note)
{
    const int error = errno;
    *note = deletion_begin(AT_FDCWD, name);
    errno = error;
}

static void deleted(void *note, bool done)
{
    const int error = errno;
    deletion_end(note, done);
    errno = error;
}

const struct interceptor interpose_interceptor = {
    .wanted = wanted,
    .initializing = roll_call_begin,
    .initialized = roll_call_end,
    .opening = redirector_opening,
    .opened = redirector_opened,
    .not_opened = redirector_not_opened,
    .closing = redirector_closing,
    .closed = originals_close_kept,
    .access = access_data,
    .access_end = access_end,
    .resize = redirector_resize_begin,
    .resize_end = redirector_write_end,
    .viewed = viewed,
    .sync = sync_file,
    .before_size = before_size,
    .deleting = deleting,
    .deleted = deleted,
    .ending = redirector_ending,
    .report = redirector_report,
};
