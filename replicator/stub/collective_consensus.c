#include "collective_consensus.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

enum {
    LONGEST = 31, /* collective calls without a new agreement */
    TAG = 1,
    NO_PARCEL = -1 /* instead of a number of bytes */
};
enum { PATIENCE_S = 60 };

static __thread struct {
    const char *file; /* NULL: all ranks are known to come */
    int rank;
} opening;

void agree_opening(const char *file, int rank)
{
    opening.file = file;
    opening.rank = rank;
}

/* RATIONALE: so few of many ranks that their lines can be read, and others than the first, which may
 * be the one that nobody waits with. */
static bool speaks(int rank)
{
    return (rank & (rank - 1)) == 0;
}

static void say_waiting(void)
{
    if (speaks(opening.rank))
        print_message("rank %d has waited for %d s for the other ranks that open %s; if some run without pdla, it "
                      "waits for ever: end the program, and preload pdla in all ranks (docs/howto/launchers.md)",
                      opening.rank, PATIENCE_S, opening.file);
}

/* As a wait, but says so if it takes long. */
static bool wait_noticed(const struct mpi *mpi, mpi_handle *request)
{
    const int64_t start = clock_ns();
    bool said = false;
    int done = 0;
    for (; mpi->Test(request, &done, mpi->status_ignore) == 0 && !done; sched_yield())
        if (!said && clock_ns() - start > PATIENCE_S * INT64_C(1000000000)) {
            say_waiting();
            said = true;
        }
    return done;
}

/* RATIONALE: nonblocking calls, and a wait. MPICH's blocking reductions and broadcasts on a node
 * spin without yielding, which takes 10 ms a call if there are more ranks than cores. These take a
 * two-hundredth of that. */
static bool finish(int rc, mpi_handle *request)
{
    const struct mpi *mpi = running_mpi();
    if (rc == 0 && opening.file != NULL)
        return wait_noticed(mpi, request);
    return rc == 0 && mpi->Wait(request, mpi->status_ignore) == 0;
}

bool agree_reduce(const void *mine, void *all, int words, mpi_handle op, mpi_handle comm)
{
    const struct mpi *mpi = running_mpi();
    if (comm == mpi->comm_null) {
        memcpy(all, mine, (size_t)words * sizeof(int64_t));
        return true;
    }
    mpi_handle request = 0;
    return finish(mpi->Iallreduce(mine, all, words, mpi->int64, op, comm, &request), &request);
}

bool agree_broadcast(void *data, int bytes, mpi_handle comm)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle request = 0;
    return comm == mpi->comm_null || finish(mpi->Ibcast(data, bytes, mpi->byte, 0, comm, &request), &request);
}

static bool send(const void *data, int bytes, int to, mpi_handle comm)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle request = 0;
    return finish(mpi->Isend(data, bytes, mpi->byte, to, TAG, comm, &request), &request);
}

static bool receive(void *data, int bytes, int from, mpi_handle comm)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle request = 0;
    return finish(mpi->Irecv(data, bytes, mpi->byte, from, TAG, comm, &request), &request);
}

static bool add_nothing(struct parcel *parcel, const void *more, int bytes)
{
    (void)parcel, (void)more, (void)bytes;
    return true;
}

/* Adds what rank `from` sends. */
static bool add_from(struct parcel *parcel, add_parcel *add, int from, mpi_handle comm)
{
    int32_t bytes = NO_PARCEL;
    if (!receive(&bytes, (int)sizeof bytes, from, comm) || bytes == NO_PARCEL)
        return false;
    void *more = malloc((size_t)bytes + 1);
    const int32_t ready = more != NULL;
    bool added = send(&ready, (int)sizeof ready, from, comm) && ready;
    if (added && bytes > 0)
        added = receive(more, bytes, from, comm);
    added = added && add(parcel, more, bytes);
    free(more);
    return added;
}

bool agree_merge(struct parcel *parcel, add_parcel *add, int rank, int ranks, mpi_handle comm)
{
    bool whole = parcel->memory != NULL;
    for (int step = 1; step < ranks; step *= 2) {
        if (rank % (2 * step) == 0) {
            if (rank + step < ranks)
                whole = add_from(parcel, whole ? add : add_nothing, rank + step, comm) && whole;
            continue;
        }
        const int32_t bytes = whole ? parcel->bytes : NO_PARCEL;
        int32_t ready = 0;
        bool sent = send(&bytes, (int)sizeof bytes, rank - step, comm);
        if (sent && whole && receive(&ready, (int)sizeof ready, rank - step, comm) && ready && bytes > 0)
            sent = send(parcel->memory, bytes, rank - step, comm);
        return sent && whole;
    }
    return whole;
}

/* A duplicate of MPI_COMM_WORLD for all files; 0: there is none yet. RATIONALE: to duplicate a
 * communicator takes as long as a tenth of an open. Where one thread at a time calls MPI, all ranks
 * make the collective calls on different files in the same order. */
static mpi_handle world_apart;

static bool one_thread_at_a_time(void)
{
    int level;
    return running_mpi()->Query_thread(&level) == 0 && level < running_mpi()->thread_multiple;
}

bool agree_apart(mpi_handle comm, mpi_handle *apart)
{
    const struct mpi *mpi = running_mpi();
    if (comm != mpi->comm_world || !one_thread_at_a_time())
        return mpi->Comm_dup(comm, apart) == 0;
    const bool made = world_apart != 0 || mpi->Comm_dup(comm, &world_apart) == 0;
    if (made)
        *apart = world_apart;
    return made;
}

void agree_apart_free(mpi_handle *apart)
{
    if (*apart != world_apart)
        running_mpi()->Comm_free(apart);
}

bool agreement_holds(struct agreement *agreement, unsigned views)
{
    if (agreement->calls == 0 || agreement->views != views)
        return false;
    agreement->calls--;
    return true;
}

bool agreement_make(struct agreement *agreement, mpi_handle comm, bool lasting, unsigned views, const char *objection,
                    int64_t calls_left)
{
    int64_t mine[2] = {objection == NULL, calls_left}, all[2];
    bool redirects = agree_reduce(mine, all, 2, running_mpi()->op_min, comm) && all[0] != 0;
    bool again = agreement->views == views && agreement->redirects == redirects;
    int64_t span = !lasting || !again ? 0 : 2 * agreement->span + 1;
    span = span > LONGEST ? LONGEST : span;
    *agreement = (struct agreement){.redirects = redirects,
                                    .views = views,
                                    .span = span,
                                    .calls = redirects && all[1] < span ? all[1] : span};
    return redirects;
}

const char *agreement_why(bool held, const char *objection)
{
    if (objection != NULL)
        return objection;
    return held ? "agreed at an earlier collective call" : "another rank cannot redirect";
}
