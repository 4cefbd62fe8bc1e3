#include "read.h"

#include <errno.h>
#include <time.h>

#include "collective_consensus.h"
#include "freshness.h"
#include "read_plan.h"
#include "read_verification.h"
#include "replica_read.h"
#include "report.h"
#include "request.h"
#include "stub.h"

struct plan {
    struct request request;
    int64_t size;            /* of the original */
    int chosen;              /* replica, or -1 */
    const char *why_none;    /* a literal, when it is -1 */
    int64_t covered;
    struct typemap *memory;  /* NULL: contiguous; to be released */
};

/* NULL: the stub could serve the call; else why not. */
static const char *make_plan(const struct io_call *call, struct plan *plan)
{
    struct stub_file *stub = stub_of(call->handle);
    *plan = (struct plan){.chosen = -1};
    if (call->bytes == 0)
        return NULL;
    const char *why = request_of(call, &plan->request);
    if (why != NULL)
        return why;
    switch (freshness_check(stub->source->map, stub->source->file, stub->fd, &plan->size)) {
    case STATE_WRITING:
        return "being written";
    case STATE_CHANGED:
        return "the original was changed";
    case STATE_FRESH:
        break;
    }
    if ((why = result_fits(call)) != NULL)
        return why;
    if (request_last(&plan->request) >= plan->size)
        return "past the end of the file";
    if (!memory_of(call, &plan->memory))
        return "the memory datatype is opaque";
    plan->chosen = plan_choose(stub, &plan->request, &plan->covered, &plan->why_none);
    return NULL;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Serves a planned call whole. Not NULL: it has to be read by the MPI library, as if nothing had happened. */
static const char *serve(struct io_call *call, const struct plan *plan)
{
    struct stub_file *stub = stub_of(call->handle);
    struct served served = {0};
    const char *why = NULL;
    if (call->bytes > 0 && compare_wanted())
        why = compare_read(stub, call->name, plan->chosen, &plan->request, plan->size);
    if (why != NULL)
        return why;
    uint64_t start = now_ns();
    if (call->bytes > 0
        && !replica_read(stub, plan->chosen, &plan->request, plan->size, call->buffer, plan->memory, &served))
        return "a replica could not be read";
    if (!result_give(call))
        return "the result could not be given";
    if (call->bytes > 0)
        report_served(stub->source, plan->chosen, call->bytes, &served, now_ns() - start);
    call->redirected = served.replica.bytes > 0;
    return NULL;
}

/* An independent read, or one that the stub joins. True when it was served; else *why. */
static bool read_alone(struct io_call *call, const char **why)
{
    struct plan plan;
    bool planned = (*why = make_plan(call, &plan)) == NULL && plan.chosen >= 0;
    if (planned)
        *why = serve(call, &plan);
    else if (*why == NULL)
        *why = plan.why_none;
    typemap_release(plan.memory);
    return planned && *why == NULL;
}

/* A collective read. True when it was done and *rc is its result; false: all ranks make the MPI library's call. */
static bool read_together(struct io_call *call, int *rc, const char **why)
{
    struct stub_file *stub = stub_of(call->handle);
    unsigned views = call->handle->views;
    struct plan plan;
    bool held = agreement_holds(&stub->agreement, views);
    const char *mine = make_plan(call, &plan);
    if (mine == NULL && call->bytes > 0 && (plan.chosen < 0 || plan.covered < call->bytes - plan.covered))
        mine = plan.chosen < 0 ? plan.why_none : "mostly not replicated";
    /* RATIONALE: only what was agreed not to do holds for more than one call. Any read can reach the end of the file, after a
     * seek of one rank, and what is read there is for the MPI library to say, by all ranks together. */
    bool redirects = !held && agreement_make(&stub->agreement, stub->comm, stub->independent, views, mine, 0);
    const char *failed = redirects ? serve(call, &plan) : NULL;
    if (failed != NULL) {
        report_passed(stub->source, call->bytes, failed);
        *rc = make_alone(call);
    }
    *why = agreement_why(held, mine);
    typemap_release(plan.memory);
    return redirects;
}

static bool read_call(struct io_call *call, int *rc)
{
    struct stub_file *stub = stub_of(call->handle);
    bool collective = call->flags & CALL_COLLECTIVE, served = false;
    const char *why = stub->why_not;
    *rc = 0;
    call->joins = collective && call->flags & (CALL_NONBLOCKING | CALL_SPLIT);
    if (why == NULL && (!collective || call->joins) && !stub->independent)
        why = "writable on several nodes";
    else if (why == NULL)
        served = collective && !call->joins ? read_together(call, rc, &why) : read_alone(call, &why);
    if (!served && call->bytes > 0)
        report_passed(stub->source, call->bytes, why);
    call->joins = call->joins && served;
    return served;
}

bool stub_read(struct io_call *call, int *rc)
{
    if (stub_of(call->handle) == NULL)
        return false;
    int error = errno;
    bool served = read_call(call, rc);
    errno = error;
    return served;
}

void stub_passed(struct file_handle *handle, int64_t bytes, const char *why)
{
    if (stub_of(handle) != NULL)
        report_passed(stub_of(handle)->source, bytes, why);
}
