#include "segment_requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "critical_requests.h"
#include "node_memory.h"
#include "published_map.h"
#include "report.h"
#include "storage.h"

enum {
    MOST_SECONDS = 60,    /* of a turn */
    PLACES = 4096,        /* segments that are remembered; of more, some push others out */
    LOOKED_EXTENTS = 4096 /* of a call: looking must cost less than the read */
};

/* A segment that was loaded. */
struct place {
    uint64_t segment; /* a hash of the file and the number; 0: none; atomic */
    int64_t used;     /* how many segments had been loaded when it was last used; atomic */
};

/* What the processes of a node have loaded. */
struct loads {
    int64_t loaded; /* segments, so far; atomic */
    int64_t read;   /* bytes that were requested of loaded segments; atomic */
    struct place place[PLACES];
};

struct segment_requests {
    int64_t head, body;
    int64_t buffer;  /* segments that the buffer has room for */
    double locality; /* the least share of a segment that is to be read */
    double per_byte; /* seconds that a byte of a head saves */
    int ranks;
    uint64_t file;
    struct loads *loads;
    int64_t *until; /* of all programs of the node: clock_ns() when the disks will have read what was loaded; atomic */
    const struct loaded_map *map;
    const struct map_file *lifted; /* in the map, by its path; NULL: it has no replicas */
};

/* False: PDLA_SEGMENTS is not the bytes of a head, of a body and of the buffer, and the locality. */
static bool sizes_read(struct segment_requests *segments)
{
    const char *text = getenv("PDLA_SEGMENTS");
    long long head, body, buffer;
    int read = 0;
    if (text == NULL || sscanf(text, "%lld %lld %lld %lf%n", &head, &body, &buffer, &segments->locality, &read) != 4
        || text[read] != '\0' || !(segments->locality >= 0) || head <= 0 || body <= 0 || buffer < 0
        || head > INT64_MAX / 4 || body > INT64_MAX / 4)
        return false;
    segments->head = head;
    segments->body = body;
    segments->buffer = buffer / (head + body) < PLACES ? buffer / (head + body) : PLACES;
    return true;
}

/* RATIONALE: what is lifted does not depend on the bytes: a program may make its file anew in each run. */
static const struct map_file *file_named(const struct loaded_map *map, const char *path)
{
    for (uint32_t i = 0; map != NULL && i < map->header->file_count; i++) {
        const struct map_file *file = map_file_at(map, i);
        if (file != NULL && strcmp(map_at(map, file->path), path) == 0)
            return file;
    }
    return NULL;
}

/* In the directory of the map, which is that of all programs of a user. */
static int64_t *shared_turn(const char *map)
{
    const char *end = map == NULL ? NULL : strrchr(map, '/');
    char *home = end == NULL ? NULL : strndup(map, (size_t)(end - map));
    int64_t *until = node_memory(home, "turn", sizeof *until);
    free(home);
    return until;
}

struct segment_requests *segment_requests_open(const char *path, int ranks, const struct ssd_costs *costs)
{
    struct segment_requests *segments = calloc(1, sizeof *segments);
    if (segments == NULL)
        return NULL;
    segments->per_byte = costs->model.disk.seconds_per_byte[CACHING_READ] / (double)costs->home_servers;
    const char *why;
    segments->map = published_map(&why);
    segments->lifted = file_named(segments->map, path);
    segments->ranks = ranks;
    segments->file = (uint64_t)crc32c(0, path, strlen(path)) << 32;
    segments->loads = sizes_read(segments)
        ? node_memory(getenv("PDLA_CRITICAL_LOG"), "loads", sizeof *segments->loads) : NULL;
    segments->until = segments->loads == NULL ? NULL : shared_turn(published_map_path(&why));
    if (segments->until != NULL)
        return segments;
    segment_requests_close(segments);
    return NULL;
}

void segment_requests_close(struct segment_requests *segments)
{
    if (segments != NULL && segments->loads != NULL)
        munmap(segments->loads, sizeof *segments->loads);
    if (segments != NULL && segments->until != NULL)
        munmap(segments->until, sizeof *segments->until);
    free(segments);
}

void segment_requests_sizes(const struct segment_requests *segments, int64_t *head, int64_t *body)
{
    *head = segments->head;
    *body = segments->body;
}

int64_t segment_requests_end(const struct segment_requests *segments, int64_t byte)
{
    const int64_t size = segments->head + segments->body, start = byte - byte % size;
    const int64_t length = byte - start < segments->head ? segments->head : size;
    return start < INT64_MAX - length ? start + length : INT64_MAX;
}

double segment_requests_saves(const struct segment_requests *segments, int64_t bytes)
{
    return (double)bytes * segments->per_byte;
}

/* Whether a replica has the head of the segment that begins here, and nothing of its body. RATIONALE: it does not
 * matter whether that replica can be read just now, or has old bytes. */
static bool is_lifted(const struct segment_requests *segments, int64_t start)
{
    const struct map_file *file = segments->lifted;
    struct piece piece;
    if (file == NULL || start >= file->identity.size)
        return false;
    const int64_t left = file->identity.size - start; /* of the file of which the replica was made */
    for (uint32_t i = 0; i < file->replica_count; i++)
        if (locate_piece(segments->map, &segments->map->replicas[file->first_replica + i], start, file->identity.size,
                         &piece)
            && piece.offset == start && piece.length == (segments->head < left ? segments->head : left))
            return true;
    return false;
}

bool segment_requests_lifted(const struct segment_requests *segments, int64_t byte)
{
    const int64_t start = byte - byte % (segments->head + segments->body);
    return byte - start < segments->head && is_lifted(segments, start);
}

/* Whether this node has read enough of what it has loaded. RATIONALE: ranks on other nodes may read the rest of a
 * segment, and this node would fetch it in vain. Each rank may have begun one. */
static bool is_worth_it(const struct segment_requests *segments, int64_t loaded)
{
    const int64_t read = __atomic_load_n(&segments->loads->read, __ATOMIC_RELAXED);
    return (double)read >= segments->locality * (double)(loaded - segments->ranks)
               * (double)(segments->head + segments->body);
}

/* One process loads at a time: the disks would seek between what several ask for. A load is a turn as long as the disks
 * read: the start-up of a body takes them as long as its head would. `mine`: this call has a turn, which lasts longer
 * by a second load. RATIONALE: nobody gives a turn back, since a process may be stopped or killed at any time. One that
 * lasts longer than it may is not of this clock. */
static bool take_turn(const struct segment_requests *segments, bool *mine)
{
    /* RATIONALE: the clock is read afterwards. A turn that another process took in between would seem to last longer
     * than it may. */
    int64_t until = __atomic_load_n(segments->until, __ATOMIC_ACQUIRE);
    const int64_t now = clock_ns(), latest = now + MOST_SECONDS * INT64_C(1000000000);
    const double length = 1e9 * segment_requests_saves(segments, segments->head + segments->body);
    const bool taken = until > now && until <= latest;
    if (taken && !*mine)
        return false;
    const int64_t begin = taken ? until : now;
    const int64_t end = length < (double)(latest - begin) ? begin + (int64_t)length : latest;
    *mine = __atomic_compare_exchange_n(segments->until, &until, end, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED);
    return *mine;
}

/* RATIONALE: the kernel begins to read, in requests of its own (II-C: sections), and this returns. */
static void load(const struct segment_requests *segments, const struct reader *reader, int64_t number, int64_t size)
{
    const int64_t start = number * (segments->head + segments->body) + segments->head, left = size - start;
    if (left > 0)
        hint_give(&(struct hint){reader->fd, start, segments->body < left ? segments->body : left});
}

/* Uses a lifted segment, and loads it if nobody on this node did so, or so many others were loaded since it was last
 * used that the buffer has no room for it any more (LRU). False: it is not loaded. RATIONALE: a process that stops
 * before it notes a load may let another one load it again, which costs nothing. */
static bool use_segment(const struct segment_requests *segments, const struct reader *reader, int64_t number,
                        int64_t size, bool *mine)
{
    struct loads *loads = segments->loads;
    const uint64_t segment = (segments->file ^ ((uint64_t)number * UINT64_C(0x9e3779b97f4a7c15))) | 1;
    struct place *place = &loads->place[(segment >> 20) % PLACES];
    const int64_t loaded = __atomic_load_n(&loads->loaded, __ATOMIC_RELAXED);
    const int64_t used = __atomic_load_n(&place->used, __ATOMIC_RELAXED);
    if (__atomic_load_n(&place->segment, __ATOMIC_RELAXED) == segment && loaded - used < segments->buffer) {
        if (used != loaded)
            __atomic_store_n(&place->used, loaded, __ATOMIC_RELAXED);
        return true;
    }
    if (segments->buffer == 0 || !is_worth_it(segments, loaded) || !take_turn(segments, mine))
        return false;
    __atomic_store_n(&place->used, __atomic_add_fetch(&loads->loaded, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    __atomic_store_n(&place->segment, segment, __ATOMIC_RELAXED);
    load(segments, reader, number, size);
    return true;
}

void segment_requests_load(struct segment_requests *segments, const struct reader *reader,
                           const struct view_range *range, int64_t size)
{
    struct typemap_cursor cursor;
    const int64_t segment = segments->head + segments->body;
    int64_t last = -1;
    bool loaded = false, mine = false;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int64_t left = range->bytes, looked = 0; left > 0 && looked < LOOKED_EXTENTS; looked++) {
        const struct extent extent = typemap_cursor_next(&cursor, left);
        left -= extent.length;
        for (int64_t done = 0, part; done < extent.length; done += part) {
            const int64_t start = extent.offset + done, number = start / segment, rest = segment - start % segment;
            part = extent.length - done < rest ? extent.length - done : rest;
            if (number != last)
                loaded = is_lifted(segments, number * segment)
                    && use_segment(segments, reader, number, size, &mine);
            last = number;
            if (loaded)
                __atomic_add_fetch(&segments->loads->read, part, __ATOMIC_RELAXED);
        }
    }
}
