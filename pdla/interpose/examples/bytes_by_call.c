/* An observer that counts the bytes moved by each kind of MPI-IO call. Each process prints them when it ends:
 *
 *     MPI_File_write_at_all: 3 calls, 196608 bytes
 */
#include <stdio.h>

#include "interpose.h"

static struct {
    int64_t calls, bytes;
} counts[CALL_COUNT];

static void count(enum call call, int calls, int64_t moved)
{
    __atomic_add_fetch(&counts[call].calls, calls, __ATOMIC_RELAXED);
    if (moved > 0) /* -1: MPI does not say */
        __atomic_add_fetch(&counts[call].bytes, moved, __ATOMIC_RELAXED);
}

static bool wanted(void)
{
    return true;
}

/* All files are observed, and have no state of their own. */
static void opened(const struct opening *opening, const struct file_call *call)
{
    (void)opening;
    if (call->handle)
        call->handle->observed = counts;
}

/* RATIONALE: how much an operation moved is known when it is over. What stands for it until then is its call. */
static uint64_t accessed(const struct io_call *call, int rc, bool pending)
{
    count(call->number, 1, rc == 0 && !pending ? moved_bytes(call->status) : 0);
    return pending ? call->number : 0;
}

static void completed(uint64_t operation, const void *status, int rc)
{
    count((enum call)operation, 0, rc == 0 && status ? moved_bytes(status) : 0);
}

__attribute__((destructor)) static void report(void)
{
    for (int call = 0; call < CALL_COUNT; call++)
        if (counts[call].calls > 0)
            printf("%s: %lld calls, %lld bytes\n", call_names[call], (long long)counts[call].calls,
                   (long long)counts[call].bytes);
}

const struct observer interpose_observer = {
    .wanted = wanted,
    .opened = opened,
    .accessed = accessed,
    .completed = completed,
};
