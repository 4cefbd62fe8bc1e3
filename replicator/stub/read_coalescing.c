#define _GNU_SOURCE
#include "read_coalescing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "storage.h"

enum {
    RUN_PARTS = 1024,      /* IOV_MAX of Linux */
    FETCH_BYTES = 1 << 20, /* less makes small requests, and the kernel fetches little more at once */
    HOLE_BYTES = 1 << 16,  /* devices read 75 KiB and more in the time that a request takes to start up */
    NO_NOWAIT_BYTES = 1 << 16  /* cost more to copy than to fetch */
};

/* The stream that a run continues, or a new one in place of the older. *hole: the bytes between. */
static struct stream *stream_of(const struct run *run, int64_t *hole)
{
    struct progress *progress = run->progress;
    for (int i = 0; i < 2; i++) {
        int64_t end = __atomic_load_n(&progress->streams[i].end, __ATOMIC_RELAXED);
        *hole = run->start - end;
        if (end >= 0 && *hole >= 0 && *hole <= HOLE_BYTES)
            return &progress->streams[i];
    }
    struct stream *older = &progress->streams[1 - __atomic_load_n(&progress->latest, __ATOMIC_RELAXED)];
    __atomic_store_n(&older->ahead, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&older->holes, 0, __ATOMIC_RELAXED);
    *hole = 0;
    return older;
}

/* Whether the kernel reads the run ahead: it does so for sequential reads, in larger requests than
 * it could be asked for here. */
static bool read_ahead(const struct run *run)
{
    const struct stream *streams = run->progress->streams;
    return run->length <= FETCH_BYTES
        && (run->start == __atomic_load_n(&streams[0].end, __ATOMIC_RELAXED)
            || run->start == __atomic_load_n(&streams[1].end, __ATOMIC_RELAXED));
}

/* RATIONALE: a request of a striped replica has bytes on several disks. These work at the same time
 * if the kernel is asked for all the bytes before any is waited for. Threads would not be faster,
 * and would disturb programs that fork or count their threads. Of the original the kernel is asked for
 * nothing: it reads ahead for all ranks. Returns the number of hints to give, at most one for each run. */
static int others_of(const struct runs *runs, const struct run *but, struct hint *hints)
{
    int count = 0;
    for (uint32_t i = 0; i < runs->components; i++) {
        struct run *run = &runs->each[i];
        if (run == but || run->parts == 0 || run->fetched || read_ahead(run))
            continue;
        hints[count++] = (struct hint){run->fd, run->start, run->length};
        run->fetched = true;
    }
    return count;
}

static void fetch_others(const struct runs *runs, const struct run *but)
{
    struct hint *hints = malloc((runs->components + 1) * sizeof *hints);
    const int count = hints == NULL ? 0 : others_of(runs, but, hints);
    for (int i = 0; i < count; i++)
        hint_give(&hints[i]);
    free(hints);
}

/* The flags of the first call for a run: it does not wait if other runs could be fetched meanwhile.
 */
static int first_flags(const struct runs *runs, const struct run *run)
{
    if (runs->gathered < 2 || run->fetched)
        return 0;
    if (!__atomic_load_n(runs->no_nowait, __ATOMIC_RELAXED))
        return RWF_NOWAIT;
    if (run->length >= NO_NOWAIT_BYTES)
        fetch_others(runs, run);
    return 0;
}

/* RATIONALE: where ranks share bytes, a rank reads a little of each row in the sections of other
 * ranks. The kernel takes that for random reads and makes small requests, which disturb the large
 * ones of the other ranks. */
static struct hint past_holes(const struct run *run)
{
    int64_t hole, end = run->start + run->length;
    struct hint hint = {.fd = run->fd};
    struct stream *stream = stream_of(run, &hole);
    if (hole > 0 && __atomic_fetch_add(&stream->holes, 1, __ATOMIC_RELAXED) > 0) {
        int64_t ahead = __atomic_load_n(&stream->ahead, __ATOMIC_RELAXED);
        if (end > ahead - FETCH_BYTES / 2) {
            ahead = ahead < run->start ? run->start : ahead;
            hint = (struct hint){run->fd, ahead, FETCH_BYTES};
            __atomic_store_n(&stream->ahead, ahead + FETCH_BYTES, __ATOMIC_RELAXED);
        }
    }
    __atomic_store_n(&stream->end, end, __ATOMIC_RELAXED);
    __atomic_store_n(&run->progress->latest, (int)(stream - run->progress->streams), __ATOMIC_RELAXED);
    return hint;
}

static void count(const struct run *run)
{
    int64_t end = __atomic_exchange_n(&run->progress->end, run->start + run->length, __ATOMIC_RELAXED);
    run->tally->requests++;
    run->tally->bytes += (uint64_t)run->length;
    run->tally->contiguous += end == run->start;
}

/* Reads a run from storage that may not answer. */
static enum outcome flush_remote(struct runs *runs, struct run *run, const char *path)
{
    const struct component_file file = {runs->map, path, run->fd, TIMEOUT_SHORT, -1};
    struct hint *hints = malloc((runs->components + 2) * sizeof *hints);
    if (hints == NULL)
        return FAILED_ELSEWHERE;
    count(run);
    hints[0] = past_holes(run);
    const int others = runs->gathered > 1 && !run->fetched ? others_of(runs, run, hints + 1) : 0;
    const int error = storage_read(&file, run->memory, run->parts, run->start, hints, 1 + others);
    free(hints);
    if (error == ETIMEDOUT)
        __atomic_store_n(&run->progress->abandoned, true, __ATOMIC_RELAXED);
    if (error != 0)
        return error == ENOMEM ? FAILED_ELSEWHERE : FAILED;
    run->length = run->parts = 0;
    run->fetched = false;
    runs->gathered--;
    return DONE;
}

enum outcome run_flush(struct runs *runs, struct run *run)
{
    if (run->parts == 0)
        return DONE;
    struct iovec *memory = run->memory;
    const char *remote = __atomic_load_n(&run->progress->remote, __ATOMIC_RELAXED);
    if (remote != NULL)
        return flush_remote(runs, run, remote);
    int flags = first_flags(runs, run);
    count(run);
    const struct hint hint = run == &runs->each[runs->components] ? (struct hint){.length = 0} : past_holes(run);
    hint_give(&hint);
    while (run->length > 0) {
        ssize_t got = run->parts == 1 && flags == 0 ? pread(run->fd, memory->iov_base, memory->iov_len, run->start)
                                                    : preadv2(run->fd, memory, run->parts, run->start, flags);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && flags != 0) {
            flags = 0;
            if (errno == EAGAIN)
                fetch_others(runs, run);
            else
                __atomic_store_n(runs->no_nowait, true, __ATOMIC_RELAXED);
            continue;
        }
        if (got <= 0)
            return got < 0 && (errno == EFAULT || errno == ENOMEM) ? FAILED_ELSEWHERE : FAILED;
        run->start += got;
        run->length -= got;
        while (run->parts > 0 && (size_t)got >= memory->iov_len) {
            got -= (ssize_t)memory->iov_len;
            memory++;
            run->parts--;
        }
        if (run->parts > 0) {
            memory->iov_base = (char *)memory->iov_base + got;
            memory->iov_len -= (size_t)got;
        }
    }
    run->parts = 0;
    run->fetched = false;
    runs->gathered--;
    return DONE;
}

static bool make_room(struct run *run)
{
    const bool single = run->memory == &run->single;
    const int capacity = run->capacity == 0 ? 1 : single ? 8 : 2 * run->capacity;
    struct iovec *larger = run->capacity == 0 ? &run->single
                                              : realloc(single ? NULL : run->memory, (size_t)capacity * sizeof *larger);
    if (larger == NULL)
        return false;
    if (single)
        larger[0] = run->single;
    run->memory = larger;
    run->capacity = capacity;
    return true;
}

void run_free(struct run *run)
{
    if (run->memory != &run->single)
        free(run->memory);
}

enum outcome run_add(struct runs *runs, struct run *run, int64_t offset, int64_t length, char *memory)
{
    struct iovec *last = run->parts > 0 ? &run->memory[run->parts - 1] : NULL;
    bool adjacent = last != NULL && run->start + run->length == offset;
    if (adjacent && (char *)last->iov_base + last->iov_len == memory) {
        last->iov_len += (size_t)length;
        run->length += length;
        return DONE;
    }
    if (last != NULL && (!adjacent || run->parts == RUN_PARTS)) {
        enum outcome outcome = run_flush(runs, run);
        if (outcome != DONE)
            return outcome;
        adjacent = false;
    }
    if (run->parts == run->capacity && !make_room(run))
        return FAILED_ELSEWHERE;
    if (!adjacent) {
        run->start = offset;
        run->length = 0;
        runs->gathered++;
    }
    run->memory[run->parts++] = (struct iovec){memory, (size_t)length};
    run->length += length;
    return DONE;
}
