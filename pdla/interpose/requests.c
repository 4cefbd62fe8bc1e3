/* The calls that complete requests. They end nonblocking operations that the observer sees or the
 * interceptor did. While there are none, the calls go straight through. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* An operation under way. It is in the table, or the call that tries to complete its request has
 * taken it out. */
struct pending {
    struct pending *next;
    mpi_handle request, file;
    uint64_t operation;
    int64_t served; /* bytes that the status must count; -1: those that MPI counts */
    mpi_offset position; /* if `served`: the file's pointer before the call that tries to complete it */
    int place;           /* of the request in that call */
};

enum { BUCKETS = 1024, RESERVED = 256 };

static struct pending *buckets[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int outstanding; /* changes under `mutex`, read by anyone */
/* RATIONALE: when memory is used up, the bytes of an operation may already be where they belong, and
 * only this record knows how many. */
static struct pending reserve[RESERVED];
static int taken_of_reserve; /* the first that was never used */
static struct pending *given_back;

static struct pending **bucket_of(mpi_handle request)
{
    return &buckets[(request * UINT64_C(0x9E3779B97F4A7C15)) >> 54];
}

/* With the mutex held: takes an operation out of the table. NULL: it is not there. */
static struct pending *unlink_request(mpi_handle request)
{
    for (struct pending **link = bucket_of(request); *link; link = &(*link)->next)
        if ((*link)->request == request) {
            struct pending *found = *link;
            *link = found->next;
            return found;
        }
    return NULL;
}

static void put(struct pending *pending)
{
    pthread_mutex_lock(&mutex);
    pending->next = *bucket_of(pending->request);
    *bucket_of(pending->request) = pending;
    pthread_mutex_unlock(&mutex);
}

static struct pending *allocate(void)
{
    struct pending *pending = malloc(sizeof *pending);
    if (pending)
        return pending;
    pthread_mutex_lock(&mutex);
    if (given_back) {
        pending = given_back;
        given_back = pending->next;
    } else if (taken_of_reserve < RESERVED) {
        pending = &reserve[taken_of_reserve++];
    }
    pthread_mutex_unlock(&mutex);
    return pending;
}

/* With the mutex held. */
static void release(struct pending *pending)
{
    __atomic_sub_fetch(&outstanding, 1, __ATOMIC_RELAXED);
    if (pending < reserve || pending >= reserve + RESERVED) {
        free(pending);
        return;
    }
    pending->next = given_back;
    given_back = pending;
}

static void discard(struct pending *pending)
{
    if (!pending)
        return;
    pthread_mutex_lock(&mutex);
    release(pending);
    pthread_mutex_unlock(&mutex);
}

/* RATIONALE: taken out before the call that may complete the request, since MPI then gives the
 * handle of a completed one to another thread at once. */
static struct pending *take(mpi_handle request)
{
    pthread_mutex_lock(&mutex);
    struct pending *found = unlink_request(request);
    pthread_mutex_unlock(&mutex);
    return found;
}

void request_begun(mpi_handle request, uint64_t operation, int64_t served, mpi_handle file)
{
    struct pending *pending = request == running_mpi()->request_null ? NULL : allocate();
    if (!pending) {
        end_operation(operation, NULL, 0);
        return;
    }
    *pending = (struct pending){.request = request, .file = file, .operation = operation, .served = served};
    discard(take(request));
    __atomic_add_fetch(&outstanding, 1, __ATOMIC_RELAXED);
    put(pending);
}

void requests_forget(mpi_handle file)
{
    if (!__atomic_load_n(&outstanding, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < BUCKETS; i++)
        for (struct pending **link = &buckets[i]; *link;) {
            struct pending *pending = *link;
            if (pending->file != file) {
                link = &pending->next;
                continue;
            }
            *link = pending->next;
            release(pending);
        }
    pthread_mutex_unlock(&mutex);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* The operations among a call's requests, and the statuses for the call. RATIONALE: a list, since an
 * operation must end with the right count when memory is used up. */
struct completion {
    int count;
    bool looks; /* the requests stay, complete or not */
    struct pending *found; /* in the order of the call's requests */
    max_align_t status[64 / sizeof(max_align_t)];
    void *statuses, *allocated;
};

/* Whether operations are among the requests. */
static bool begin(struct completion *completion, int count, const void *requests)
{
    const struct mpi *mpi = running_mpi();
    *completion = (struct completion){.count = count};
    struct pending **end = &completion->found;
    for (int i = 0; i < count; i++) {
        mpi_handle request = 0;
        memcpy(&request, (const char *)requests + (size_t)i * mpi->handle_size, mpi->handle_size);
        struct pending *pending = take(request);
        if (!pending)
            continue;
        pending->place = i;
        pending->next = NULL;
        *end = pending;
        end = &pending->next;
        if (pending->served >= 0 && mpi->File_get_position(pending->file, &pending->position) != 0)
            pending->position = -1;
    }
    return completion->found;
}

/* The place for the call's status or statuses: the program's, or our own if the program wants none.
 */
static void *statuses(struct completion *completion, void *wanted, bool one)
{
    const struct mpi *mpi = running_mpi();
    completion->statuses = wanted;
    if (wanted == mpi->status_ignore && one)
        completion->statuses = completion->status;
    else if (wanted == mpi->status_ignore &&
             (completion->allocated = calloc((size_t)completion->count, mpi->status_size)))
        completion->statuses = completion->allocated;
    return completion->statuses;
}

/* The operation at `link` is complete, and its status is number `order`. Returns the link of the next
 * one. */
static struct pending **complete(struct completion *completion, struct pending **link, int order, int rc)
{
    const struct mpi *mpi = running_mpi();
    struct pending *pending = *link;
    char *status = completion->statuses == mpi->status_ignore ? NULL : completion->statuses;
    status = status ? status + (size_t)order * mpi->status_size : NULL;
    if (status && pending->served >= 0 && rc == 0)
        set_moved_bytes(status, pending->served);
    end_operation(pending->operation, status, rc);
    pending->operation = 0;
    if (completion->looks && pending->served >= 0)
        return &pending->next;
    *link = pending->next;
    discard(pending);
    return link;
}

/* The link of the first operation, from `link` on, that is not before `place`. */
static struct pending **seek(struct pending **link, int place)
{
    while (*link && (*link)->place < place)
        link = &(*link)->next;
    return link;
}

/* RATIONALE: when a collective read of no bytes ends, MPICH sets the file pointer to its value at
 * the begin. */
static void keep_pointers(const struct completion *completion)
{
    const struct mpi *mpi = running_mpi();
    for (const struct pending *pending = completion->found; pending; pending = pending->next) {
        mpi_offset position;
        if (pending->served >= 0 && pending->position >= 0 && mpi->File_get_position(pending->file, &position) == 0
            && position != pending->position)
            mpi->File_seek(pending->file, pending->position, seek_set);
    }
}

/* The other requests are still under way. */
static int end(struct completion *completion, int rc)
{
    while (completion->found) {
        struct pending *pending = completion->found;
        completion->found = pending->next;
        put(pending);
    }
    free(completion->allocated);
    return rc;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

/* True if there is something to do for a call on `count` requests, in `completion`. */
static bool watch(struct completion *completion, int count, const void *requests)
{
    return enter() && count > 0 && requests && __atomic_load_n(&outstanding, __ATOMIC_RELAXED) &&
           begin(completion, count, requests);
}

/* For forms with one request: it is complete if `done`. */
static int end_one(struct completion *completion, bool done, int rc)
{
    if (done)
        complete(completion, &completion->found, 0, rc);
    return end(completion, rc);
}

/* For forms with any of several: `index` is complete. */
static int end_any(struct completion *completion, bool done, int index, int rc)
{
    struct pending **link = seek(&completion->found, index);
    if (done && *link && (*link)->place == index)
        complete(completion, link, 0, rc);
    return end(completion, rc);
}

/* For forms with all. RATIONALE: after an error only the statuses tell which requests failed. */
static int end_all(struct completion *completion, bool done, int rc)
{
    if (rc != 0)
        completion->statuses = running_mpi()->status_ignore;
    for (struct pending **link = &completion->found; (done || rc != 0) && *link;)
        link = complete(completion, link, (*link)->place, 0);
    return end(completion, rc);
}

/* For forms with some: `indices[0..done)` are complete, with as many statuses. */
static int end_some(struct completion *completion, int done, const int *indices, int rc)
{
    struct pending **link = &completion->found;
    if (rc != 0)
        completion->statuses = running_mpi()->status_ignore;
    for (int i = 0; i < done && done <= completion->count; i++) {
        /* RATIONALE: MPI libraries give the indices in ascending order, but need not. */
        link = seek(i == 0 || indices[i] < indices[i - 1] ? &completion->found : link, indices[i]);
        if (*link && (*link)->place == indices[i])
            link = complete(completion, link, i, 0);
    }
    return end(completion, rc);
}

/* Makes `call` with `arguments`, where `place` is the place of the status; then calls `finish`. */
#define EXPORT_CALL(name, parameters, count, requests, one, arguments, finish)              \
    EXPORT_FORM(name, parameters, count, requests, one, false, arguments, finish)
#define EXPORT_LOOK(name, parameters, count, requests, one, arguments, finish)              \
    EXPORT_FORM(name, parameters, count, requests, one, true, arguments, finish)
#define EXPORT_FORM(name, parameters, count, requests, one, look, arguments, finish)        \
    EXPORT int MPI_##name parameters                                                        \
    {                                                                                       \
        int(*real) parameters = (int(*) parameters)real_call(CALL_##name);                  \
        struct completion completion;                                                       \
        void *place = status;                                                               \
        bool watched = watch(&completion, count, requests);                                 \
        if (watched) {                                                                      \
            completion.looks = look;                                                        \
            place = statuses(&completion, status, one);                                     \
        }                                                                                   \
        int rc = real arguments;                                                            \
        if (watched)                                                                        \
            keep_pointers(&completion);                                                     \
        return leave(watched ? finish : rc);                                                \
    }                                                                                       \
    ALIAS(name)

EXPORT_CALL(Wait, (void *request, void *status), 1, request, true, (request, place), end_one(&completion, true, rc))
EXPORT_CALL(Test, (void *request, int *flag, void *status), 1, request, true, (request, flag, place),
            end_one(&completion, *flag, rc))
EXPORT_LOOK(Request_get_status, (mpi_handle request, int *flag, void *status), 1, &request, true,
            (request, flag, place), end_one(&completion, *flag, rc))

EXPORT_CALL(Waitany, (int count, void *requests, int *index, void *status), count, requests, true,
            (count, requests, index, place), end_any(&completion, true, *index, rc))
EXPORT_CALL(Testany, (int count, void *requests, int *index, int *flag, void *status), count, requests, true,
            (count, requests, index, flag, place), end_any(&completion, *flag, *index, rc))
EXPORT_LOOK(Request_get_status_any, (int count, void *requests, int *index, int *flag, void *status), count, requests,
            true, (count, requests, index, flag, place), end_any(&completion, *flag, *index, rc))

EXPORT_CALL(Waitall, (int count, void *requests, void *status), count, requests, false, (count, requests, place),
            end_all(&completion, true, rc))
EXPORT_CALL(Testall, (int count, void *requests, int *flag, void *status), count, requests, false,
            (count, requests, flag, place), end_all(&completion, *flag, rc))
EXPORT_LOOK(Request_get_status_all, (int count, void *requests, int *flag, void *status), count, requests, false,
            (count, requests, flag, place), end_all(&completion, *flag, rc))

EXPORT_CALL(Waitsome, (int count, void *requests, int *done, int *indices, void *status), count, requests, false,
            (count, requests, done, indices, place), end_some(&completion, *done, indices, rc))
EXPORT_CALL(Testsome, (int count, void *requests, int *done, int *indices, void *status), count, requests, false,
            (count, requests, done, indices, place), end_some(&completion, *done, indices, rc))
EXPORT_LOOK(Request_get_status_some, (int count, void *requests, int *done, int *indices, void *status), count,
            requests, false, (count, requests, done, indices, place), end_some(&completion, *done, indices, rc))

EXPORT int MPI_Request_free(void *request)
{
    int (*real)(void *) = REAL(CALL_Request_free, void *);
    struct completion completion;
    bool watched = watch(&completion, 1, request);
    if (watched)
        completion.statuses = running_mpi()->status_ignore;
    int rc = real(request);
    return leave(watched ? end_one(&completion, rc == 0, rc) : rc);
}
ALIAS(Request_free)
