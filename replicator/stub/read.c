#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stub.h"

struct plan {
    struct request request;
    int64_t size;            /* of the original */
    int chosen;              /* replica, or -1 */
    const char *why_none;    /* a literal, when it is -1 */
    int64_t covered;
    struct typemap *memory;  /* NULL: contiguous; to be released */
};

static bool memory_layout(const struct io_call *call, struct plan *plan)
{
    if (call->datatype == pdla_mpi()->byte)
        return true;
    struct typemap *memory = typemap_flatten(call->datatype);
    if (memory == NULL)
        return false;
    if (typemap_is_contiguous(memory))
        typemap_release(memory);
    else
        plan->memory = memory;
    return true;
}

/* NULL: the stub could serve the call; else why not. */
static const char *make_plan(const struct io_call *call, struct plan *plan)
{
    struct stub_file *stub = call->handle->stub;
    const struct file_view *view = &call->handle->view;
    *plan = (struct plan){.chosen = -1};
    if (call->bytes == 0)
        return NULL;
    if (call->handle->atomic)
        return "atomic mode";
    if (view->map == NULL || !view->native || typemap_size(view->map) <= 0)
        return "the view is opaque";
    if (call->position < 0 || call->bytes < 0 || view->etype_size <= 0 || call->bytes % view->etype_size != 0
        || call->position % view->etype_size != 0 || call->bytes > INT64_MAX - call->position)
        return "the position is not known";
    plan->request = (struct request){view->map, view->displacement, call->position, call->bytes};
    if (!request_fits(&plan->request))
        return "past the end of the file";
    switch (state_check(stub->source->map, stub->source->file, stub->fd, &plan->size)) {
    case STATE_WRITING:
        return "being written";
    case STATE_CHANGED:
        return "the original was changed";
    case STATE_FRESH:
        break;
    }
    if (pdla_mpi()->Status_set_elements_x == NULL && call->bytes > INT_MAX)
        return "too large for a status";
    if (request_last(&plan->request) >= plan->size)
        return "past the end of the file";
    if (!memory_layout(call, plan))
        return "the memory datatype is opaque";
    plan->chosen = plan_choose(stub, &plan->request, &plan->covered, &plan->why_none);
    return NULL;
}

static void set_status(void *status, int64_t bytes)
{
    const struct mpi *mpi = pdla_mpi();
    if (status == NULL || status == mpi->status_ignore)
        return;
    if (mpi->Status_set_elements_x != NULL)
        mpi->Status_set_elements_x(status, mpi->byte, bytes);
    else
        mpi->Status_set_elements(status, mpi->byte, (int)bytes);
}

static int request_query(void *state, void *status)
{
    set_status(status, *(int64_t *)state);
    pdla_mpi()->Status_set_cancelled(status, 0);
    return 0;
}

static int request_free(void *state)
{
    free(state);
    return 0;
}

static int request_cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return 0;
}

/* A request that is complete when the program gets it. */
static bool hand_out_request(const struct io_call *call)
{
    const struct mpi *mpi = pdla_mpi();
    mpi_handle request = 0;
    int64_t *bytes = malloc(sizeof *bytes);
    if (bytes == NULL)
        return false;
    *bytes = call->bytes;
    if (mpi->Grequest_start(request_query, request_free, request_cancel, bytes, &request) != 0) {
        free(bytes);
        return false;
    }
    mpi->Grequest_complete(request);
    memcpy(call->request, &request, mpi->handle_size);
    return true;
}

/* Sets the individual file pointer, where the call uses it, to byte `position` of the view's data. */
static bool seek(const struct io_call *call, int64_t position)
{
    const struct mpi *mpi = pdla_mpi();
    return call->flags & CALL_EXPLICIT
        || mpi->File_seek(call->handle->file, position / call->handle->view.etype_size, mpi->seek_set) == 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Serves a planned call whole. False: it has to be read by the MPI library, as if nothing had happened. */
static bool serve(struct io_call *call, const struct plan *plan)
{
    struct stub_file *stub = call->handle->stub;
    struct served served = {0};
    uint64_t start = now_ns();
    if (call->bytes > 0
        && (!engine_read(stub, plan->chosen, &plan->request, plan->size, call->buffer, plan->memory, &served)
            || !seek(call, call->position + call->bytes)))
        return false;
    if (!(call->flags & CALL_NONBLOCKING)) {
        set_status(call->status, call->bytes);
    } else if (!hand_out_request(call)) {
        seek(call, call->position);
        return false;
    }
    if (call->bytes > 0)
        report_served(stub->source, plan->chosen, call->bytes, &served, now_ns() - start);
    call->redirected = served.replica.bytes > 0;
    return true;
}

/* The same request by the MPI library alone, after the ranks have agreed that nobody makes the collective call. */
static int read_natively(const struct io_call *call)
{
    const struct mpi *mpi = pdla_mpi();
    mpi_handle file = call->handle->file;
    bool large = call->count > INT_MAX;
    if (!(call->flags & CALL_EXPLICIT))
        return large ? mpi->File_read_c(file, call->buffer, call->count, call->datatype, call->status)
                     : mpi->File_read(file, call->buffer, (int)call->count, call->datatype, call->status);
    mpi_offset offset = call->position < 0 ? -1 : call->position / call->handle->view.etype_size;
    return large ? mpi->File_read_at_c(file, offset, call->buffer, call->count, call->datatype, call->status)
                 : mpi->File_read_at(file, offset, call->buffer, (int)call->count, call->datatype, call->status);
}

/* How many calls like this one, each going on where the one before ends, stay inside whole tiles of the view that are inside the
 * file. */
static int64_t calls_left(const struct plan *plan)
{
    const struct request *request = &plan->request;
    int64_t data, end = request->position + request->bytes;
    if (request->bytes == 0)
        return INT64_MAX;
    int64_t extent = typemap_extent(request->view);
    if (extent <= 0 || plan->size < request->displacement
        || __builtin_mul_overflow((plan->size - request->displacement) / extent, typemap_size(request->view), &data))
        return 0;
    return end < data ? (data - end) / request->bytes : 0;
}

/* An independent read. True when it was served; else *why. */
static bool read_alone(struct io_call *call, const char **why)
{
    struct plan plan;
    bool served = false;
    *why = make_plan(call, &plan);
    if (*why == NULL && plan.chosen < 0)
        *why = plan.why_none;
    else if (*why == NULL && !(served = serve(call, &plan)))
        *why = "a replica could not be read";
    typemap_release(plan.memory);
    return served;
}

/* A collective read. True when it was done and *rc is its result; false: all ranks make the MPI library's call. */
static bool read_together(struct io_call *call, int *rc, const char **why)
{
    struct stub_file *stub = call->handle->stub;
    unsigned views = call->handle->views;
    bool holds = agreement_holds(stub, views);
    struct plan plan = {.chosen = -1};
    *why = stub->agreement.why_not;
    if (holds && !stub->agreement.redirects)
        return false;
    /* A read at an explicit offset can reach the end of the file at any call; only the ranks together get its count right. */
    holds = holds && !(call->flags & CALL_EXPLICIT);
    const char *mine = make_plan(call, &plan);
    if (mine == NULL && call->bytes > 0 && (plan.chosen < 0 || plan.covered < call->bytes - plan.covered))
        mine = plan.chosen < 0 ? plan.why_none : "mostly not replicated";
    bool redirects = holds || agreement_make(stub, views, mine, mine == NULL ? calls_left(&plan) : 0);
    if (redirects && (mine != NULL || !serve(call, &plan))) {
        report_passed(stub->source, call->bytes, mine != NULL ? mine : "a replica could not be read");
        *rc = read_natively(call);
    }
    *why = stub->agreement.why_not;
    typemap_release(plan.memory);
    return redirects;
}

static bool read_call(struct io_call *call, int *rc)
{
    struct stub_file *stub = call->handle->stub;
    bool collective = call->flags & CALL_COLLECTIVE, served = false;
    const char *why = stub->why_not;
    *rc = 0;
    if (why == NULL && collective && call->flags & CALL_NONBLOCKING)
        why = "nonblocking collective";
    else if (why == NULL && !collective && !stub->independent)
        why = "writable on several nodes";
    else if (why == NULL)
        served = collective ? read_together(call, rc, &why) : read_alone(call, &why);
    if (!served && call->bytes > 0)
        report_passed(stub->source, call->bytes, why);
    return served;
}

bool stub_read(struct io_call *call, int *rc)
{
    if (call->handle->stub == NULL)
        return false;
    int error = errno;
    bool served = read_call(call, rc);
    errno = error;
    return served;
}

void stub_passed(struct file_handle *handle, int64_t bytes, const char *why)
{
    if (handle->stub != NULL)
        report_passed(handle->stub->source, bytes, why);
}
