#include "read.h"

#include <errno.h>

#include "collective_consensus.h"
#include "critical_requests.h"
#include "detours.h"
#include "freshness.h"
#include "read_verification.h"
#include "redirected_call.h"
#include "redirection.h"
#include "replica_choice.h"
#include "replica_read.h"
#include "report.h"
#include "step_aside.h"

/* What a call reads, and from which replica. */
struct prepared_read {
    struct view_range range;
    int64_t size;            /* of the original */
    int chosen;              /* replica, or -1 */
    const char *why_none;    /* a literal, if it is -1 */
    int64_t covered;
    struct typemap *memory;  /* NULL: contiguous; to be released */
};

/* NULL: the redirector can serve the call; otherwise why not. */
static const char *prepare(const struct io_call *call, struct prepared_read *read)
{
    struct reader *reader = reader_of(call->handle);
    *read = (struct prepared_read){.chosen = -1};
    if (call->bytes == 0)
        return NULL;
    const char *why = view_range_of(call, &read->range);
    if (why != NULL)
        return why;
    if (!freshness_check(reader->source->map, reader->source->file, reader->fd))
        return "the original was changed";
    read->size = reader->source->file->identity.size;
    if ((why = result_fits(call)) != NULL)
        return why;
    if (view_range_last(&read->range) >= read->size)
        return "past the end of the file";
    if (!memory_of(call, &read->memory))
        return "the memory datatype cannot be flattened";
    const int ranks = call->flags & CALL_COLLECTIVE ? call->handle->ranks : 1;
    struct critical_requests *critical = redirection_of(call->handle)->critical;
    if (critical == NULL && !verification_wanted()
        && detours_avoid(&reader->detours, &read->range, call->handle->ranks))
        return "in another order in the replica";
    read->chosen = choose_replica(reader, &read->range, ranks, &read->covered, &read->why_none);
    struct segment_requests *segments = critical_requests_segments(critical);
    if (segments != NULL)
        segment_requests_load(segments, reader, &read->range, read->size);
    return NULL;
}

/* Serves a prepared call. NULL: all of it was served. Otherwise the reason, and the MPI library must
 * read all of it. */
static const char *serve(struct io_call *call, const struct prepared_read *read)
{
    struct reader *reader = reader_of(call->handle);
    struct served served = {0};
    const char *why = NULL;
    if (call->bytes > 0 && verification_wanted())
        why = verify_read(reader, call->name, read->chosen, &read->range, read->size);
    if (why != NULL)
        return why;
    const int64_t start = clock_ns();
    if (call->bytes > 0
        && !replica_read(reader, read->chosen, &read->range, read->size, call->buffer, read->memory, &served))
        return "a replica could not be read";
    if (!result_set(call))
        return "the status or request could not be set";
    if (call->bytes > 0) {
        report_served(reader->source, read->chosen, call->bytes, &served, (uint64_t)(clock_ns() - start));
        detours_note(&reader->detours, &read->range, call->handle->ranks, &served.replica);
    }
    call->redirected = served.replica.bytes > 0;
    return NULL;
}

/* An independent read, or a collective one that the redirector joins. True: it was served;
 * otherwise *why. */
static bool read_alone(struct io_call *call, const char **why)
{
    struct prepared_read read;
    bool prepared = (*why = prepare(call, &read)) == NULL && read.chosen >= 0;
    if (prepared)
        *why = serve(call, &read);
    else if (*why == NULL)
        *why = read.why_none;
    typemap_release(read.memory);
    return prepared && *why == NULL;
}

/* A collective read. True: it was done, and *rc is its result. False: all ranks make the MPI
 * library's call. */
static bool read_together(struct io_call *call, int *rc, const char **why)
{
    struct reader *reader = reader_of(call->handle);
    unsigned views = call->handle->views;
    struct prepared_read read;
    bool held = agreement_holds(&reader->agreement, views);
    const char *mine = prepare(call, &read);
    if (mine == NULL && call->bytes > 0 && (read.chosen < 0 || read.covered < call->bytes - read.covered))
        mine = read.chosen < 0 ? read.why_none : "mostly not replicated";
    /* RATIONALE: the ranks agree anew for each call that is redirected; only a refusal holds longer. After a
     * seek of one rank any read may reach the end of the file, and there the MPI library must read,
     * with all ranks. */
    bool redirects = !held && agreement_make(&reader->agreement, reader->comm, reader->independent, views, mine, 0);
    const char *failed = redirects ? serve(call, &read) : NULL;
    if (failed != NULL) {
        report_passed(reader->source, call->bytes, failed);
        *rc = call_independently(call);
    }
    *why = agreement_why(held, mine);
    typemap_release(read.memory);
    return redirects;
}

static bool read_call(struct io_call *call, int *rc)
{
    struct reader *reader = reader_of(call->handle);
    bool collective = call->flags & CALL_COLLECTIVE, served = false;
    const char *why = reader->why_not;
    *rc = 0;
    call->joins = collective && call->flags & (CALL_NONBLOCKING | CALL_SPLIT);
    if (why == NULL && (!collective || call->joins) && !reader->independent)
        why = "ranks on several nodes may write to the file";
    else if (why == NULL && step_aside(reader, call))
        return false;
    else if (why == NULL)
        served = collective && !call->joins ? read_together(call, rc, &why) : read_alone(call, &why);
    step_aside_redirected(served);
    if (!served && call->bytes > 0)
        report_passed(reader->source, call->bytes, why);
    call->joins = call->joins && served;
    return served;
}

bool redirector_read(struct io_call *call, int *rc)
{
    if (reader_of(call->handle) == NULL)
        return false;
    int error = errno;
    bool served = read_call(call, rc);
    errno = error;
    return served;
}

void redirector_passed(struct file_handle *handle, int64_t bytes, const char *why)
{
    if (reader_of(handle) != NULL)
        report_passed(reader_of(handle)->source, bytes, why);
}
