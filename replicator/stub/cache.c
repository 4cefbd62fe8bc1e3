#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache_marks.h"
#include "caching.h"
#include "node_peers.h"
#include "pool_room.h"
#include "reservations.h"
#include "storage.h"
#include "transfer.h"

enum {
    CHUNK = 8 << 20,
    MEMORY = 64 << 20,    /* of the core; a write that needs more goes to the original */
    PARTS = 256,          /* of the buffer, in a system call */
    AHEAD = 1 << 20,      /* bytes that are laid out at a time */
    FREE_SHARE = 10       /* of the free space one part is left */
};

static int64_t held_by_all; /* atomic; by the caches of this process */

/* Bytes of a call and where they are. */
struct placed {
    int fd;                        /* of the cache file or, in a read, of the original */
    int64_t place, offset, length; /* in that file, and in the original */
};

struct cache {
    int fd;
    char path[1024];
    bool on_close, keeps, coherent;
    struct cache_marks *marks; /* NULL: nobody needs them yet */
    struct caching_space space;
    struct caching *core;     /* NULL until cache_begin() */
    bool exhausted;           /* its memory is used up: it decides nothing more */
    int64_t held, limit;      /* bytes of the device: that this cache holds, and that all caches of the process may */
    int original;             /* its descriptor, if reads may take what is not in the cache from there; -1 */
    struct pool_room pool;    /* .directories NULL: the room is not for other programs, too */
    bool lays_out;            /* what is next in the file is written before bytes come: lay_out() */
    int64_t laid_out;         /* no byte from here on was ever written */
    uint64_t cleaning;        /* the core takes the first so many entries of the journal to be on their way; 0: none */
    int64_t *moves;           /* tokens of the moves that bring them home */
    size_t count, room;
    struct placed *placed;    /* of the present call */
    size_t pieces, most;
};

/* RATIONALE: they may be opened while the mover is at work. */
static struct cache_marks *marks_of(const struct cache *cache)
{
    return __atomic_load_n(&cache->marks, __ATOMIC_ACQUIRE);
}

struct cache *cache_open(struct journal *journal, const struct cache_hints *hints, int *error)
{
    struct stat found;
    struct cache *cache = calloc(1, sizeof *cache);
    *error = ENOMEM;
    if (cache == NULL)
        return NULL;
    strcpy(cache->path, journal->header->cache);
    cache->on_close = hints->on_close;
    cache->keeps = hints->keeps;
    cache->coherent = hints->coherent;
    cache->fd = policy_judges(hints->policy) ? reservations_open(cache->path)
        : open(cache->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    *error = cache->fd >= 0 && fstat(cache->fd, &found) == 0 ? 0 : errno;
    if (*error == 0) {
        journal_set_cache(journal, found.st_ino);
        return cache;
    }
    if (cache->fd >= 0)
        close(cache->fd);
    free(cache);
    return NULL;
}

/* Bytes of the device that this process may use. */
static int64_t share(const struct cache *cache, const struct cache_hints *hints, int processes)
{
    struct statvfs found;
    int64_t bytes = hints->bytes;
    if (hints->pool != NULL)
        return bytes;
    if (bytes == 0 && fstatvfs(cache->fd, &found) == 0)
        bytes = (int64_t)(found.f_bavail - found.f_bavail / FREE_SHARE) * (int64_t)found.f_frsize;
    return bytes / processes;
}

/* A new core, which knows of no bytes. */
static bool renew_core(struct cache *cache)
{
    const struct caching_setup setup = {.home_servers = 1, .home_strip = CHUNK, .spaces = 1, .levels = 1,
                                        .space = &cache->space, .limit = MEMORY, .tokens_only = 1};
    const struct caching_e10 e10 = {.flush_on_close = 1, .discard = 1};
    caching_free(cache->core);
    cache->core = caching_new(&setup);
    cache->exhausted = cache->core == NULL || caching_use_e10(cache->core, &e10) != CACHING_DONE;
    cache->cleaning = 0;
    cache->count = 0;
    return !cache->exhausted;
}

bool cache_begin(struct writer *writer, const struct cache_hints *hints)
{
    struct cache *cache = writer->cache;
    cache->space = (struct caching_space){.name = "device", .server = 0, .on_nodes = 1, .chunk = CHUNK, .reads = 1,
                                          .capacity = share(cache, hints, peers_count(writer->peers) + 1),
                                          .writes = 1};
    cache->limit = hints->bytes > 0 ? cache->space.capacity : INT64_MAX;
    /* RATIONALE: a network file system may show old bytes to a descriptor that other nodes' writes do not refresh. */
    cache->original = peers_count(writer->peers) + 1 == writer->ranks ? writer->fd : -1;
    if (hints->coherent && !cache_marks_all(writer))
        return false;
    if (hints->pool != NULL && !pool_room_begin(&cache->pool, hints->pool, cache->path, cache->fd, hints->bytes))
        return false;
    struct statvfs found;
    cache->lays_out = policy_judges(hints->policy) && fstatvfs(cache->fd, &found) == 0
        && (found.f_flag & MS_SYNCHRONOUS) != 0;
    return renew_core(cache);
}

void cache_abandon(struct writer *writer)
{
    if (journal_waiting(&writer->journal) == 0 && !writer->cache->keeps)
        reservations_remove(writer->cache->path);
}

void cache_close(struct writer *writer)
{
    struct cache *cache = writer->cache;
    if (cache == NULL)
        return;
    cache_abandon(writer);
    __atomic_sub_fetch(&held_by_all, cache->held, __ATOMIC_ACQ_REL);
    close(cache->fd);
    pool_room_end(&cache->pool);
    caching_free(cache->core);
    cache_marks_close(cache->marks);
    free(cache->moves);
    free(cache->placed);
    free(cache);
    writer->cache = NULL;
}

bool cache_flushes(const struct cache *cache) { return !cache->on_close; }
bool cache_is_coherent(const struct cache *cache) { return cache->coherent; }
bool cache_is_asked(const struct cache *cache) { return marks_of(cache) != NULL && cache_marks_asked(marks_of(cache)); }
int cache_descriptor(const struct cache *cache) { return cache->fd; }

bool cache_marks_all(const struct writer *writer)
{
    struct cache *cache = writer->cache;
    if (marks_of(cache) == NULL)
        __atomic_store_n(&cache->marks, cache_marks_open(writer->journals), __ATOMIC_RELEASE);
    return marks_of(cache) != NULL;
}

/* ---- what the original has by now -------------------------------------------------------------------------------- */

static bool remember(struct cache *cache, const struct caching_step *step)
{
    if (cache->count + (size_t)step->moves > cache->room) {
        const size_t room = 2 * (cache->count + (size_t)step->moves);
        int64_t *moves = realloc(cache->moves, room * sizeof *moves);
        if (moves == NULL)
            return false;
        cache->moves = moves;
        cache->room = room;
    }
    for (int64_t i = 0; i < step->moves; i++)
        cache->moves[cache->count++] = step->move[i].token;
    return true;
}

/* Tells the core that what the journal lists now is on its way home. RATIONALE: what is written from
 * now on stays dirty, even to the same bytes. */
static void begin_moves(struct writer *writer)
{
    struct cache *cache = writer->cache;
    struct caching_step step;
    cache->exhausted = caching_close(cache->core, 0, 0, &step) != CACHING_DONE || !remember(cache, &step);
    cache->cleaning = cache->exhausted ? 0 : journal_count(&writer->journal);
}

/* Counts what the cache holds. */
static void count_held(struct cache *cache)
{
    const int64_t held = cache->core == NULL ? 0 : cache->space.capacity - caching_room(cache->core, 0);
    __atomic_add_fetch(&held_by_all, held - cache->held, __ATOMIC_ACQ_REL);
    cache->held = held;
}

static void end_moves(struct cache *cache)
{
    struct caching_step step;
    while (!cache->exhausted && cache->count > 0)
        cache->exhausted = caching_finished(cache->core, cache->moves[--cache->count], 0, &step) != CACHING_DONE
            || !remember(cache, &step);
    cache->cleaning = 0;
    count_held(cache);
}

/* For further writes. */
static int64_t room(struct cache *cache)
{
    const int64_t here = cache->exhausted ? 0 : caching_room(cache->core, 0);
    const int64_t left = cache->pool.directories != NULL
        ? pool_room_left(&cache->pool, cache->held)
        : cache->limit - __atomic_load_n(&held_by_all, __ATOMIC_ACQUIRE);
    return left < 0 ? 0 : here < left ? here : left;
}

bool cache_is_short(struct cache *cache)
{
    return cache->pool.directories != NULL ? cache->held > cache->pool.share / 2
                                           : room(cache) < cache->space.capacity / 2;
}

struct fragment_room cache_room(struct writer *writer)
{
    struct cache *cache = writer->cache;
    cache_follow(writer);
    return (struct fragment_room){.bytes = cache->pool.directories != NULL ? cache->pool.share : cache->space.capacity,
                                  .short_of = cache_is_short(cache), .empty = cache->held == 0};
}

void cache_settle(struct writer *writer)
{
    if (marks_of(writer->cache) == NULL)
        return;
    peers_lock(writer); /* the journal may be cleared, and its entries are counted anew */
    cache_unmark(marks_of(writer->cache), journal_home(&writer->journal));
    peers_unlock(writer);
}

void cache_follow(struct writer *writer)
{
    struct cache *cache = writer->cache;
    struct journal *journal = &writer->journal;
    cache_settle(writer);
    if (cache->cleaning != 0 && journal_home(journal) >= cache->cleaning)
        end_moves(cache);
    if (journal_waiting(journal) > 0) {
        /* RATIONALE: the core needs memory for each move, which pays only where room gets short. */
        if (cache->cleaning == 0 && !cache->exhausted && cache_is_short(cache))
            begin_moves(writer);
        return;
    }
    if (journal_count(journal) == 0 && !cache->exhausted)
        return;
    renew_core(cache);
    count_held(cache);
    if (cache->pool.directories != NULL)
        pool_room_give_back(&cache->pool);
    peers_lock(writer);
    if (marks_of(cache) != NULL)
        cache_unmark(marks_of(cache), journal_count(journal));
    journal_clear(journal);
    memset(writer->peers->own->after, 0, sizeof writer->peers->own->after);
    writer->low = INT64_MAX;
    writer->high = 0;
    peers_unlock(writer);
}

void cache_rest(struct writer *writer)
{
    if (writer->cache->pool.directories == NULL || pthread_mutex_trylock(&writer->mutex) != 0)
        return;
    cache_follow(writer);
    pthread_mutex_unlock(&writer->mutex);
}

int64_t cache_fits(struct writer *writer, int64_t bytes)
{
    struct cache *cache = writer->cache;
    if (bytes <= 0)
        return INT64_MAX;
    if (room(cache) < bytes)
        cache_follow(writer);
    const int64_t missing = bytes - room(cache);
    if (missing > 0 && cache->pool.directories != NULL)
        pool_room_reserve(&cache->pool, missing);
    return room(cache) / bytes;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int place_at(struct cache *cache, int fd, int64_t place, int64_t offset, int64_t length)
{
    struct placed *last = cache->pieces > 0 ? &cache->placed[cache->pieces - 1] : NULL;
    if (last != NULL && last->fd == fd && last->place + last->length == place
        && last->offset + last->length == offset) {
        last->length += length;
        return 0;
    }
    if (cache->pieces == cache->most) {
        const size_t most = 2 * cache->most + PARTS;
        struct placed *placed = realloc(cache->placed, most * sizeof *placed);
        if (placed == NULL)
            return ENOMEM;
        cache->placed = placed;
        cache->most = most;
    }
    cache->placed[cache->pieces++] = (struct placed){fd, place, offset, length};
    return 0;
}

/* Asks the core where bytes of the original are, or are to be written. 0 or an errno; ENOSPC: not
 * all of them in the cache, nor read from the original; ENOMEM: the core can say no more. */
static int ask(struct cache *cache, enum caching_op op, int64_t offset, int64_t length)
{
    const struct caching_request request = {.op = op, .start = offset, .stop = offset + length, .collective = 1};
    struct caching_step step;
    cache->exhausted = cache->exhausted || caching_serve(cache->core, &request, &step) != CACHING_DONE;
    int error = cache->exhausted ? ENOMEM : 0;
    for (int64_t i = 0; error == 0 && i < step.transfers; i++) {
        const struct caching_transfer *one = &step.foreground[i];
        const int fd = one->level >= 0 ? cache->fd : op == CACHING_READ ? cache->original : -1;
        error = fd >= 0 ? place_at(cache, fd, one->start, one->first, one->stop - one->start) : ENOSPC;
    }
    return error;
}

/* Where the bytes of a range are, in the order of the call. */
static int place_range(struct cache *cache, enum caching_op op, const struct view_range *range)
{
    struct typemap_cursor cursor;
    int error = 0;
    cache->pieces = 0;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int64_t left = range->bytes; error == 0 && left > 0;) {
        const struct extent extent = typemap_cursor_next(&cursor, left);
        error = ask(cache, op, extent.offset, extent.length);
        left -= extent.length;
    }
    return error;
}

/* The parts of a buffer, gathered until the place in the file jumps. */
struct gathering {
    bool writing;
    struct iovec parts[PARTS];
    int count, fd;
    int64_t place, bytes; /* of all parts */
    uint64_t requests;
};

static int flush(struct gathering *gathering)
{
    const int count = gathering->count;
    gathering->requests += count > 0;
    gathering->count = 0;
    return count == 0 ? 0 : move_parts(gathering->fd, gathering->writing, gathering->parts, count, gathering->place);
}

static int gather(struct gathering *gathering, int fd, int64_t place, char *memory, int64_t length)
{
    struct iovec *last = gathering->count > 0 ? &gathering->parts[gathering->count - 1] : NULL;
    const bool follows = last != NULL && gathering->fd == fd && gathering->place + gathering->bytes == place;
    if (follows && (char *)last->iov_base + last->iov_len == memory) {
        last->iov_len += (size_t)length;
        gathering->bytes += length;
        return 0;
    }
    int error = follows && gathering->count < PARTS ? 0 : flush(gathering);
    if (gathering->count == 0) {
        gathering->fd = fd;
        gathering->place = place;
        gathering->bytes = 0;
    }
    gathering->parts[gathering->count++] = (struct iovec){memory, (size_t)length};
    gathering->bytes += length;
    return error;
}

/* Before small pieces are written behind all others, writes zeros there, as far as room is reserved. RATIONALE: a
 * synchronous file system writes its journal with each write to a new place, but not to one that was written before. */
static void lay_out(struct cache *cache)
{
    static char zeros[AHEAD];
    int64_t stop = 0, bytes = 0;
    struct stat found;
    for (size_t i = 0; i < cache->pieces; i++) {
        const struct placed *piece = &cache->placed[i];
        stop = piece->place + piece->length > stop ? piece->place + piece->length : stop;
        bytes += piece->length;
    }
    if (stop <= cache->laid_out)
        return;
    const int64_t start = cache->laid_out;
    cache->laid_out = stop;
    if (!cache->lays_out || bytes > AHEAD / 4 || stop - start > AHEAD)
        return;
    if (cache->pool.directories != NULL && (fstat(cache->fd, &found) != 0 || found.st_size < start + AHEAD))
        return;
    if (write_whole(cache->fd, zeros, AHEAD, start) == 0)
        cache->laid_out = start + AHEAD;
}

/* Moves the bytes of a call between its buffer and their places. */
static int move(const struct cache *cache, bool writing, char *buffer, const struct typemap *memory,
                uint64_t *requests)
{
    struct gathering gathering = {.writing = writing};
    struct typemap_cursor cursor;
    int64_t moved = 0;
    int error = 0;
    if (memory != NULL)
        typemap_cursor_init(&cursor, memory, 0, 0);
    for (size_t i = 0; error == 0 && i < cache->pieces; i++) {
        const struct placed *piece = &cache->placed[i];
        for (int64_t done = 0; error == 0 && done < piece->length;) {
            const struct extent part = memory != NULL ? typemap_cursor_next(&cursor, piece->length - done)
                                                      : (struct extent){moved, piece->length - done};
            error = gather(&gathering, piece->fd, piece->place + done, buffer + part.offset, part.length);
            done += part.length;
            moved += part.length;
        }
    }
    error = error != 0 ? error : flush(&gathering);
    *requests += gathering.requests;
    return error;
}

static int note(struct writer *writer)
{
    const struct cache *cache = writer->cache;
    const uint64_t stamp = (uint64_t)clock_ns();
    int error = 0;
    peers_lock(writer);
    for (size_t i = 0; error == 0 && i < cache->pieces; i++) {
        const struct placed *piece = &cache->placed[i];
        const struct journal_entry entry = {.place = (uint64_t)piece->place, .start = piece->offset, .stamp = stamp};
        error = journal_add(&writer->journal, &entry, piece->length);
        writer->low = piece->offset < writer->low ? piece->offset : writer->low;
        writer->high = piece->offset + piece->length > writer->high ? piece->offset + piece->length : writer->high;
    }
    peers_unlock(writer);
    return error;
}

/* The bytes of the original that contain a range; all of them, if it is not known. */
static void span_of(const struct view_range *range, int64_t *low, int64_t *high)
{
    struct typemap_cursor cursor;
    *low = 0;
    *high = CACHE_MARKS_END;
    if (range == NULL)
        return;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    *low = typemap_cursor_next(&cursor, 1).offset;
    *high = view_range_last(range) + 1;
}

static bool mark(const struct cache *cache, const struct view_range *range)
{
    int64_t low, high;
    span_of(range, &low, &high);
    return marks_of(cache) == NULL || cache_mark(marks_of(cache), low, high);
}

bool cache_is_behind(const struct writer *writer, const struct view_range *range)
{
    int64_t low, high;
    span_of(range, &low, &high);
    return marks_of(writer->cache) != NULL && cache_marked(marks_of(writer->cache), low, high);
}

int cache_await(const struct writer *writer, const struct view_range *range)
{
    int64_t low, high;
    span_of(range, &low, &high);
    return marks_of(writer->cache) == NULL || cache_marks_await(marks_of(writer->cache), low, high) ? 0 : EIO;
}

int cache_write(struct writer *writer, const struct view_range *range, const char *buffer,
                const struct typemap *memory, uint64_t *requests)
{
    struct cache *cache = writer->cache;
    cache_follow(writer);
    int error = mark(cache, range) ? place_range(cache, CACHING_WRITE, range) : ENOLCK;
    if (error == 0) {
        lay_out(cache);
        error = move(cache, true, (char *)(uintptr_t)buffer, memory, requests);
    }
    count_held(cache);
    if (error == 0)
        error = note(writer);
    /* RATIONALE: a file that may not become longer is a full cache. */
    error = error == EFBIG ? ENOMEM : error;
    /* RATIONALE: the core may take bytes to be there that are not. */
    cache->exhausted = cache->exhausted || error == ENOMEM;
    if (marks_of(cache) != NULL)
        cache_marks_listed(marks_of(cache), journal_count(&writer->journal));
    if (error != 0)
        cache_settle(writer);
    return error;
}

void cache_called(struct writer *writer)
{
    struct shared *own = writer->peers->own;
    peers_lock(writer);
    own->calls++;
    own->after[own->calls % KEPT_CALLS] = journal_count(&writer->journal);
    peers_unlock(writer);
}

/* The bytes of a call that are in the cache. The disks begin with the others, so that both work at the same time. */
static int64_t fetch_others(const struct cache *cache)
{
    int64_t here = 0;
    for (size_t i = 0; i < cache->pieces; i++) {
        const struct placed *piece = &cache->placed[i];
        if (piece->fd == cache->fd)
            here += piece->length;
        else
            hint_give(&(struct hint){.fd = piece->fd, .start = piece->place, .length = piece->length});
    }
    return here;
}

int64_t cache_read(struct writer *writer, const struct view_range *range, char *buffer, const struct typemap *memory)
{
    uint64_t requests = 0;
    cache_follow(writer);
    if (place_range(writer->cache, CACHING_READ, range) != 0)
        return 0;
    const int64_t here = fetch_others(writer->cache);
    return here > 0 && move(writer->cache, false, buffer, memory, &requests) == 0 ? here : 0;
}
