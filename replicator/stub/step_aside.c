#define _GNU_SOURCE
#include "step_aside.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "read_verification.h"
#include "redirected_call.h"
#include "replica_choice.h"

enum {
    FIRST_WAIT = 4,       /* calls before the first trial */
    SMALLEST_BITS = 9,    /* calls of less than 512 bytes are of one size */
    EXAMINED_BYTES = 1 << 20, /* of a call, whether they are in memory */
    EXAMINED_PLACES = 32  /* of the original, of which three quarters must be */
};

/* The call that the thread makes. RATIONALE: the hook after a call does not get the call. */
static __thread struct {
    const struct reader *reader; /* NULL: none is measured */
    struct quicker_way *quicker;
    bool tried;
    int64_t start;
} measured __attribute__((tls_model("initial-exec")));

static bool wanted(void)
{
    static int known; /* 0: not yet; 1: no; 2: yes */
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (now == 0) {
        const char *value = getenv("PDLA_STEP_ASIDE");
        now = (value != NULL && *value == '0') || verification_wanted() ? 1 : 2;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

/* The time of the last tick: its cost is a quarter of the exact time's. */
static int64_t ticks(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return nanoseconds(time);
}

void step_aside_start(struct reader *reader)
{
    for (int i = 0; i < CALL_SIZES; i++)
        quicker_start(&reader->quicker[i], FIRST_WAIT);
}

static struct quicker_way *quicker_of(struct reader *reader, int64_t bytes)
{
    const int bits = 63 - __builtin_clzll((unsigned long long)bytes) - SMALLEST_BITS;
    return &reader->quicker[bits < 0 ? 0 : bits < CALL_SIZES ? bits : CALL_SIZES - 1];
}

/* Whether a call reads one run of bytes, which begins at *start. */
static bool is_one_run(const struct io_call *call, int64_t *start)
{
    const struct file_view *view = &call->handle->view;
    struct view_range range;
    struct typemap_cursor cursor;
    if (view_range_of(call, &range) != NULL)
        return false;
    if (typemap_is_contiguous(view->map)) {
        *start = range.displacement + range.position;
        return true;
    }
    typemap_cursor_init(&cursor, range.view, range.displacement, range.position);
    const struct extent first = typemap_cursor_next(&cursor, range.bytes);
    *start = first.offset;
    return first.length == range.bytes;
}

static bool all_in_memory(char *base, int64_t start, int64_t bytes, int64_t page)
{
    static const int64_t most = EXAMINED_BYTES;
    unsigned char found[EXAMINED_BYTES / 4096 + 2];
    const int64_t low = start / page * page, high = start + (bytes < most ? bytes : most);
    if (mincore(base + low, (size_t)(high - low), found) != 0)
        return false;
    for (int64_t i = 0; i < (high - low + page - 1) / page; i++)
        if (!(found[i] & 1))
            return false;
    return true;
}

/* RATIONALE: of the files of other users that the user may not write to, the kernel says that all of
 * them is in memory. */
static bool may_know(int fd)
{
    char name[32];
    struct stat found;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return fstat(fd, &found) == 0 && (found.st_uid == geteuid() || access(name, W_OK) == 0);
}

/* Whether these bytes of the original are in memory, and probably the next ones. */
static bool in_memory(const struct reader *reader, int64_t start, int64_t bytes)
{
    const int64_t size = reader->source->file->identity.size, page = sysconf(_SC_PAGESIZE);
    if (start < 0 || start + bytes > size || page < 4096 || !may_know(reader->fd))
        return false;
    char *base = mmap(NULL, (size_t)size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, reader->fd, 0);
    if (base == MAP_FAILED)
        return false;
    bool found = all_in_memory(base, start, bytes, page);
    int places = 0;
    for (int i = 0; found && i < EXAMINED_PLACES; i++)
        places += all_in_memory(base, size / EXAMINED_PLACES * i, 1, page);
    munmap(base, (size_t)size);
    return found && places >= EXAMINED_PLACES * 3 / 4;
}

/* The way of a call when a trial is due or under way. */
static enum way try(struct reader *reader, struct quicker_way *quicker, int64_t start, int64_t bytes)
{
    pthread_mutex_lock(&reader->source->lock);
    if (quicker_is_due(quicker)) {
        if (in_memory(reader, start, bytes))
            quicker_begin(quicker);
        else
            quicker_decline(quicker);
    }
    const enum way way = quicker->tried ? quicker_tries(quicker) : quicker->way;
    measured.tried = quicker->tried;
    pthread_mutex_unlock(&reader->source->lock);
    return way;
}

bool step_aside(struct reader *reader, const struct io_call *call)
{
    enum way way;
    int64_t start;
    measured.reader = NULL;
    if (call->bytes <= 0 || call->flags & (CALL_NONBLOCKING | CALL_COLLECTIVE) || !wanted()
        || !is_one_run(call, &start))
        return false;
    struct quicker_way *quicker = quicker_of(reader, call->bytes);
    measured.tried = false;
    if (!quicker_known(quicker, &way))
        way = try(reader, quicker, start, call->bytes);
    if (!measured.tried && way == REPLICA)
        return false;
    measured.reader = reader;
    measured.quicker = quicker;
    measured.start = measured.tried ? clock_ns() : ticks();
    if (way == ORIGINAL) {
        __atomic_add_fetch(&reader->source->aside_calls, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&reader->source->aside_bytes, (uint64_t)call->bytes, __ATOMIC_RELAXED);
    }
    return way == ORIGINAL;
}

static void timed(enum way way)
{
    struct source *source = measured.reader->source;
    const int64_t took = (measured.tried ? clock_ns() : ticks()) - measured.start;
    measured.reader = NULL;
    if (took == 0)
        return;
    pthread_mutex_lock(&source->lock);
    if (measured.tried)
        quicker_timed(measured.quicker, way, took);
    else
        quicker_ticked(measured.quicker, took);
    pthread_mutex_unlock(&source->lock);
}

void step_aside_read(const struct reader *reader)
{
    if (reader != NULL && measured.reader == reader)
        timed(ORIGINAL);
}

void step_aside_redirected(bool served)
{
    if (measured.reader != NULL && served)
        timed(REPLICA);
    measured.reader = NULL;
}
