#include "leased_read.h"

#include <errno.h>
#include <stdlib.h>

#include "collective_consensus.h"
#include "leased_open.h"
#include "redirected_call.h"
#include "replica_read.h"
#include "write_stats.h"

/* What a call reads. */
struct prepared_read {
    struct view_range range;
    int64_t size;            /* of the original */
    bool touches;            /* it may read leased bytes */
    struct typemap *memory;  /* NULL: contiguous; to be released */
};

/* NULL: the call can be served; otherwise why not. */
static const char *prepare(const struct io_call *call, struct prepared_read *read)
{
    const struct leased *leased = redirection_of(call->handle)->leased;
    *read = (struct prepared_read){.touches = call->bytes != 0};
    if (call->bytes == 0)
        return NULL;
    const char *why = view_range_of(call, &read->range);
    if (why != NULL)
        return why;
    if (!leased_holds(leased, &read->size))
        return "its bytes were written back meanwhile";
    read->touches = leased_touches(&leased->bytes, &read->range);
    if (!read->touches)
        return NULL;
    if ((why = result_fits(call)) != NULL)
        return why;
    /* There the MPI library must read: it alone knows what such a read counts. */
    if (view_range_last(&read->range) >= read->size)
        return "past the end of the file";
    return memory_of(call, &read->memory) ? NULL : "the memory datatype cannot be flattened";
}

struct leased_runs {
    struct leased *leased;
    struct runs runs;
    uint32_t first[MOST_REPLICAS]; /* the run of the first component of each replica */
    int64_t size;
};

static bool add_leased(struct leased_runs *to, uint32_t number, struct piece piece, char *buffer)
{
    const struct leased_bytes *bytes = &to->leased->bytes;
    while (piece.length > 0) {
        struct strip strip = locate_strip(bytes->map, leased_replica(bytes, number), piece.replica_offset);
        if (strip.length > piece.length)
            strip.length = piece.length;
        struct run *run = &to->runs.each[to->first[number] + strip.component];
        if (run->fd < 0 && (run->fd = leased_component(to->leased, number, strip.component)) < 0)
            return false;
        if (run_add(&to->runs, run, strip.offset, strip.length, buffer) != DONE)
            return false;
        buffer += strip.length;
        piece.replica_offset += strip.length;
        piece.length -= strip.length;
    }
    return true;
}

/* Reads a range into contiguous memory. */
static bool read_stream(void *context, const struct view_range *range, char *buffer)
{
    struct leased_runs *to = context;
    struct leased_walk walk;
    struct piece piece;
    int replica;
    leased_walk_start(&walk, &to->leased->bytes, range);
    while (leased_walk_next(&walk, &piece, &replica)) {
        /* Extents that do not ascend can pass the end of the file before the last one does. */
        if (piece.offset < 0 || piece.length > to->size - piece.offset)
            return false;
        struct run *original = &to->runs.each[to->runs.components];
        if (replica >= 0 ? !add_leased(to, (uint32_t)replica, piece, buffer)
                         : run_add(&to->runs, original, piece.offset, piece.length, buffer) != DONE)
            return false;
        buffer += piece.length;
    }
    for (uint32_t i = 0; i <= to->runs.components; i++)
        if (run_flush(&to->runs, &to->runs.each[i]) != DONE)
            return false;
    return true;
}

/* Reads what was prepared. False: the contents of the buffer are undefined. */
static bool read_prepared(const struct io_call *call, const struct prepared_read *read, struct served *served)
{
    struct leased *leased = redirection_of(call->handle)->leased;
    struct leased_runs to = {.leased = leased, .size = read->size, .runs = {.map = leased->bytes.map,
                                                                            .no_nowait = &leased->no_nowait}};
    for (uint32_t i = 0; i < leased->bytes.target->replica_count; i++) {
        to.first[i] = to.runs.components;
        to.runs.components += leased_replica(&leased->bytes, i)->servers;
    }
    if ((to.runs.each = calloc(to.runs.components + 1, sizeof *to.runs.each)) == NULL)
        return false;
    for (uint32_t i = 0; i < leased->bytes.target->replica_count; i++)
        for (uint32_t number = 0; number < leased_replica(&leased->bytes, i)->servers; number++)
            to.runs.each[to.first[i] + number] =
                (struct run){.fd = __atomic_load_n(&leased->replicas[i].components[number], __ATOMIC_ACQUIRE),
                             .progress = &leased->replicas[i].progress[number], .tally = &served->replica};
    to.runs.each[to.runs.components] =
        (struct run){.fd = leased->fd, .progress = &leased->progress, .tally = &served->original};
    const bool done = read->memory == NULL ? read_stream(&to, &read->range, call->buffer)
                                           : read_scattered(&read->range, call->buffer, read->memory, read_stream, &to);
    for (uint32_t i = 0; i <= to.runs.components; i++)
        run_free(&to.runs.each[i]);
    free(to.runs.each);
    return done;
}

/* False: the call was not served. */
static bool serve(struct io_call *call, const struct prepared_read *read)
{
    struct leased *leased = redirection_of(call->handle)->leased;
    struct served served = {0};
    bool done = true;
    if (call->bytes > 0) {
        pthread_rwlock_rdlock(&leased->reading);
        done = !leased->ended && read_prepared(call, read, &served);
        pthread_rwlock_unlock(&leased->reading);
    }
    if (!done || !result_set(call))
        return false;
    write_stats_leased(leased->written, served.replica.bytes);
    call->redirected = served.replica.bytes > 0;
    return true;
}

/* An independent read, or a collective one that the redirector joins. */
static bool read_alone(struct io_call *call, int *rc)
{
    struct prepared_read read;
    const bool prepared = prepare(call, &read) == NULL;
    const bool served = read.touches && prepared && serve(call, &read);
    if (read.touches && !served)
        *rc = writer_raise(call->handle, leased_bring_home(redirection_of(call->handle)->leased, false));
    typemap_release(read.memory);
    return served || *rc != 0;
}

/* A blocking collective read. */
static bool read_together(struct io_call *call, int *rc)
{
    struct leased *leased = redirection_of(call->handle)->leased;
    struct prepared_read read;
    const bool prepared = prepare(call, &read) == NULL;
    /* Whether this rank can serve its part, and whether it needs nothing that is leased. */
    int64_t mine[2] = {prepared, !read.touches}, all[2] = {0, 0};
    const bool agreed = leased->agrees && agree_reduce(mine, all, 2, running_mpi()->op_min, leased->comm);
    const bool needed = !agreed || all[1] == 0, serves = needed && agreed && all[0] != 0;
    if (serves && !serve(call, &read)) {
        *rc = writer_raise(call->handle, leased_bring_home(leased, false));
        *rc = *rc != 0 ? *rc : call_independently(call);
    } else if (needed && !serves) {
        *rc = writer_raise(call->handle, leased_bring_home(leased, agreed));
    }
    typemap_release(read.memory);
    return serves || *rc != 0;
}

static bool is_blocking_collective(const struct io_call *call)
{
    return call->flags & CALL_COLLECTIVE && !(call->flags & (CALL_NONBLOCKING | CALL_SPLIT));
}

bool redirector_read_leased(struct io_call *call, int *rc)
{
    const int error = errno;
    *rc = 0;
    call->joins = call->flags & CALL_COLLECTIVE && !is_blocking_collective(call);
    const bool done = is_blocking_collective(call) ? read_together(call, rc) : !call->refused && read_alone(call, rc);
    call->joins = call->joins && done;
    errno = error;
    return done;
}

bool redirector_read_leased_shared(struct io_call *call, int *rc)
{
    const int error = errno;
    struct leased *leased = redirection_of(call->handle)->leased;
    *rc = writer_raise(call->handle, leased_bring_home(leased, is_blocking_collective(call)));
    call->joins = *rc != 0 && call->flags & CALL_COLLECTIVE && !is_blocking_collective(call);
    errno = error;
    return *rc != 0;
}
