/* The redirector (PDLA_MAP) as an interceptor of the calls on MPI files. */
#include <stdlib.h>

#include "open.h"
#include "read.h"
#include "report.h"
#include "staleness.h"
#include "stub.h"
#include "write_open.h"
#include "writer.h"

static bool wanted(void)
{
    const char *map = getenv("PDLA_MAP");
    return map != NULL && *map != '\0';
}

/* RATIONALE: what one rank alone finds out must not keep it from a collective call. */
static bool is_alone(const struct io_call *call)
{
    return !(call->flags & CALL_COLLECTIVE);
}

/* RATIONALE: nonblocking and split collectives do not wait for the other ranks, so that nothing can be agreed on in
 * them. */
static bool is_together(const struct io_call *call)
{
    return call->flags & CALL_COLLECTIVE && !(call->flags & (CALL_NONBLOCKING | CALL_SPLIT));
}

/* By the shared file pointer. True: the call is not to be made. */
static bool look_for_good(struct io_call *call, int *rc)
{
    return writer_of(call->handle) != NULL && (*rc = stub_look(call->handle, call, STUB_FOR_GOOD)) != 0
        && is_alone(call);
}

static bool read_shared(struct io_call *call, int *rc)
{
    if (look_for_good(call, rc))
        return true;
    stub_passed(call->handle, call->bytes, "shared file pointer");
    return false;
}

static bool read_data(struct io_call *call, int *rc)
{
    const enum stub_look look = is_together(call) ? STUB_TOGETHER : STUB_ALONE;
    if (writer_of(call->handle) != NULL && (*rc = stub_look(call->handle, call, look)) != 0
        && (look == STUB_TOGETHER || is_alone(call)))
        return true;
    return stub_read(call, rc);
}

static bool write_data(struct io_call *call, int *rc)
{
    struct file_handle *handle = call->handle;
    if (call->flags & CALL_SHARED ? look_for_good(call, rc) : writer_of(handle) != NULL && stub_write(call, rc))
        return true;
    if (call->refused || (*rc = stub_write_begin(handle, call)) == 0 || !is_alone(call))
        return false;
    stub_write_end(handle);
    return true;
}

static bool access_data(struct io_call *call, int *rc)
{
    if (call->flags & CALL_WRITE)
        return write_data(call, rc);
    return call->flags & CALL_SHARED ? read_shared(call, rc) : read_data(call, rc);
}

static void access_end(struct file_handle *handle, unsigned flags)
{
    if (flags & CALL_WRITE)
        stub_write_end(handle);
}

static void viewed(struct file_handle *handle)
{
    if (writer_of(handle) != NULL)
        stub_viewed(handle);
}

static int sync_file(struct file_handle *handle)
{
    return writer_of(handle) == NULL ? 0 : stub_look(handle, NULL, STUB_TOGETHER);
}

static int look_at_size(struct file_handle *handle, bool together)
{
    return writer_of(handle) == NULL ? 0 : stub_look_at_size(handle, together);
}

const struct interceptor interpose_interceptor = {
    .wanted = wanted,
    .opening = stub_opening,
    .opened = stub_opened,
    .not_opened = stub_not_opened,
    .closing = stub_closing,
    .access = access_data,
    .access_end = access_end,
    .resize = stub_resize_begin,
    .resize_end = stub_write_end,
    .viewed = viewed,
    .sync = sync_file,
    .look_at_size = look_at_size,
    .deleting = stub_deleting,
    .deleted = stub_deleted,
    .ending = stub_ending,
    .report = stub_report,
};
