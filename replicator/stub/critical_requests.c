#include "critical_requests.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_hints.h"
#include "fragment_requests.h"
#include "node_directory.h"
#include "staleness.h"
#include "transfer.h"

/* RATIONALE: what all ranks note of an open file is about as much as pdla keeps of a file. */
enum {
    ALL_TABLES = 64 << 20, /* bytes of memory, for the requests of an open file, of all ranks */
    TABLE = ALL_TABLES / 4, LEAST_TABLE = TABLE / 64, /* of one of them */
    CURVES = 4, /* of reads and writes, of disks and SSDs */
    MOST_POINTS = 4096,
    FEW_PARTS = 8,
    MOST_NAMES = 4096, /* that processes of the same host name and number may have taken */
    FINE_PIECES = 64, /* a call is taken to go on as it begins */
    PIECE_NS = 1000   /* that a piece takes in a cache or a replica, wherever its bytes are */
};

struct critical_requests {
    pthread_mutex_t mutex;
    struct caching_identifier *identifier; /* of S4D-Cache; of the others, its table only */
    struct fragment_requests *fragments;   /* of iBridge; or NULL */
    struct segment_requests *segments;     /* of LiU; or NULL */
    struct ssd_costs costs;
    char *path; /* of the original */
    int rank, ranks;
    int64_t sieved[2]; /* by enum caching_op: sieving_of() */
    uint64_t judged; /* since the last log */
    int more;        /* full tables that may be left before the close */
};

/* ---- the cost model ---------------------------------------------------------------------------------------------- */

/* The next number of a text. */
static bool next_number(const char **text, double *number)
{
    char *end;
    *number = strtod(*text, &end);
    const bool read = end != *text && isfinite(*number) && *number >= 0;
    *text = end;
    return read;
}

static bool next_integer(const char **text, int64_t least, int64_t *integer)
{
    double number;
    const bool read = next_number(text, &number) && number >= (double)least && number < 0x1p53;
    *integer = read ? (int64_t)number : 0;
    return read;
}

/* A curve takes as many numbers as there are: distances from `distances` on, seconds from `seconds` on. */
static bool next_curve(const char **text, struct caching_curve *curve, int64_t **distances, double **seconds)
{
    if (!next_integer(text, 1, &curve->points) || curve->points > MOST_POINTS)
        return false;
    curve->distance = *distances;
    curve->seconds = *seconds;
    for (int64_t i = 0; i < curve->points; i++)
        if (!next_integer(text, 0, (*distances)++) || !next_number(text, (*seconds)++))
            return false;
    return true;
}

static bool next_device(const char **text, struct caching_device *device, int64_t **distances, double **seconds)
{
    return next_number(text, &device->seconds_per_byte[CACHING_READ])
        && next_number(text, &device->seconds_per_byte[CACHING_WRITE])
        && next_curve(text, &device->startup[CACHING_READ], distances, seconds)
        && next_curve(text, &device->startup[CACHING_WRITE], distances, seconds);
}

bool ssd_costs_read(struct ssd_costs *costs)
{
    const char *text = getenv("PDLA_SSD_COSTS");
    *costs = (struct ssd_costs){.numbers = text == NULL ? NULL : calloc(CURVES * MOST_POINTS, 16)};
    int64_t *distances = costs->numbers;
    double *seconds = costs->numbers == NULL ? NULL : (double *)(distances + CURVES * MOST_POINTS);
    if (costs->numbers != NULL && next_integer(&text, 1, &costs->home_strip)
        && next_integer(&text, 1, &costs->home_servers) && next_integer(&text, 1, &costs->model.ssds)
        && next_number(&text, &costs->way_home)
        && next_device(&text, &costs->model.disk, &distances, &seconds)
        && next_device(&text, &costs->model.ssd, &distances, &seconds) && text[strspn(text, " ")] == '\0')
        return true;
    free(costs->numbers);
    costs->numbers = NULL;
    return false;
}

/* ---- an open file ------------------------------------------------------------------------------------------------ */

static int64_t table_of(int ranks)
{
    const int share = ALL_TABLES / ranks;
    return share > TABLE ? TABLE : share < LEAST_TABLE ? LEAST_TABLE : share;
}

/* Why nothing can be judged: a literal; NULL: it can. */
static const char *why_unjudged(struct critical_requests *critical, enum cache_policy policy, const char *path)
{
    static const char no_memory[] = "out of memory";
    const char *why = NULL;
    if ((critical->path = strdup(path)) == NULL)
        return no_memory;
    if (!ssd_costs_read(&critical->costs))
        return "PDLA_SSD_COSTS has no cost model";
    if (policy == POLICY_IBRIDGE
        && (critical->fragments = fragment_requests_open(path, critical->ranks, &critical->costs, &why)) == NULL)
        return why != NULL ? why : no_memory;
    if (policy == POLICY_LIU
        && (critical->segments = segment_requests_open(path, critical->ranks, &critical->costs)) == NULL)
        return no_memory;
    critical->identifier = caching_identifier_new(&critical->costs.model, critical->costs.home_strip,
                                                  critical->costs.home_servers, table_of(critical->ranks));
    return critical->identifier != NULL ? NULL : no_memory;
}

struct critical_requests *critical_requests_open(const struct file_handle *handle, const char *path, int rank,
                                                 const char **why)
{
    const enum cache_policy policy = cache_policy(path);
    struct critical_requests *critical = policy_judges(policy) ? calloc(1, sizeof *critical) : NULL;
    *why = critical == NULL && policy_judges(policy) ? "out of memory" : NULL;
    if (critical == NULL)
        return NULL;
    pthread_mutex_init(&critical->mutex, NULL);
    critical->rank = rank;
    critical->ranks = handle->ranks;
    critical->more = critical->ranks < ALL_TABLES / TABLE ? ALL_TABLES / TABLE / critical->ranks - 1 : 0;
    sieving_of(handle->file, &critical->sieved[CACHING_READ], &critical->sieved[CACHING_WRITE]);
    if ((*why = why_unjudged(critical, policy, path)) == NULL)
        return critical;
    critical_requests_close(critical);
    return NULL;
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* Little endian, as all of pdla's files; replicator/critical_logs.py reads it. */
struct log_header {
    char magic[8];
    uint32_t checksum; /* CRC32C of all bytes after it and `rows` */
    uint32_t rows;
    uint64_t device, inode;
    int64_t size, mtime_ns;
    uint32_t path_bytes; /* of the path, after the rows */
    int32_t rank;
    uint64_t requests;   /* all that were judged */
    int64_t head, body;  /* of LiU's segments; 0: another policy */
};
_Static_assert(sizeof(struct log_header) == 80, "header");

struct log_row {
    int64_t start, stop;
    double benefit;
    int64_t reads;
};
_Static_assert(sizeof(struct log_row) == 32, "row");

static uint32_t rows_of(const struct critical_requests *critical, struct log_row *into)
{
    struct caching_critical found;
    uint32_t rows = 0;
    for (int64_t at = 0; caching_critical(critical->identifier, &at, &found);)
        if (found.reads > 0 || critical->segments != NULL) {
            if (into != NULL)
                into[rows] = (struct log_row){found.start, found.stop, found.benefit, found.reads};
            rows++;
        }
    return rows;
}

static bool name_of_log(char name[4096], const char *directory)
{
    static unsigned logs;
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    return snprintf(name, 4096, "%s/%s/%s-%ld-%u.cdt", directory, host, host, (long)getpid(),
                    __atomic_fetch_add(&logs, 1, __ATOMIC_RELAXED)) < 4096;
}

/* 0 or an errno. EEXIST: another process, such as one of the same number in another container, has or had the name. */
static int write_file(const char *name, const char *bytes, size_t size)
{
    char unfinished[4096 + 8];
    snprintf(unfinished, sizeof unfinished, "%s.new", name);
    const int fd = node_directory_open(unfinished, O_WRONLY | O_EXCL, 0700);
    if (fd < 0)
        return errno;
    int error = write_whole(fd, bytes, (int64_t)size, 0);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && link(unfinished, name) != 0)
        error = errno;
    unlink(unfinished);
    return error;
}

/* Writes a log of its own. */
static bool write_log(const char *directory, const char *bytes, size_t size)
{
    char name[4096];
    int error = EEXIST;
    for (int tries = 0; error == EEXIST && tries < MOST_NAMES; tries++)
        error = name_of_log(name, directory) ? write_file(name, bytes, size) : ENAMETOOLONG;
    return error == 0;
}

/* RATIONALE: without the log later reads are as they were; a program is not to hear of that. */
static bool leave_log(const struct critical_requests *critical)
{
    const char *directory = getenv("PDLA_CRITICAL_LOG");
    struct stat found;
    const uint32_t rows = rows_of(critical, NULL);
    const size_t length = strlen(critical->path);
    const size_t size = sizeof(struct log_header) + rows * sizeof(struct log_row) + length;
    if (rows == 0 || directory == NULL || *directory == '\0' || stat(critical->path, &found) != 0)
        return false;
    char *bytes = calloc(1, size);
    if (bytes == NULL)
        return false;
    struct log_header *header = (struct log_header *)bytes;
    *header = (struct log_header){.magic = "PDLACDT2", .rows = rows, .device = found.st_dev, .inode = found.st_ino,
                                  .size = found.st_size, .mtime_ns = nanoseconds(found.st_mtim),
                                  .path_bytes = (uint32_t)length, .rank = critical->rank, .requests = critical->judged};
    if (critical->segments != NULL)
        segment_requests_sizes(critical->segments, &header->head, &header->body);
    rows_of(critical, (struct log_row *)(header + 1));
    memcpy(bytes + size - length, critical->path, length);
    header->checksum = crc32c(0, &header->device, size - offsetof(struct log_header, device));
    const bool left = write_log(directory, bytes, size);
    free(bytes);
    return left;
}

/* Before a request is noted: leaves what a full table has, and begins an empty one. */
static void make_room(struct critical_requests *critical)
{
    const int error = errno;
    if (critical->more == 0 || !caching_identifier_full(critical->identifier))
        return;
    if (leave_log(critical)) {
        critical->judged = 0;
        critical->more--;
    }
    caching_identifier_empty(critical->identifier);
    errno = error;
}

/* ---- the requests ------------------------------------------------------------------------------------------------ */

/* What the MPI library moves by one request: a piece of the file, or several pieces with the gaps between them. */
struct request {
    int64_t start, stop, pieces, bytes; /* `bytes`: without the gaps */
    int64_t position;                   /* of its first byte in the view's data */
};

/* Each piece saves its share of what the request saves. */
static void add_pieces(struct critical_requests *critical, const struct view_range *range,
                       const struct request *request, double saved)
{
    struct typemap_cursor cursor;
    typemap_cursor_init(&cursor, range->view, range->displacement, request->position);
    for (int64_t left = request->bytes; left > 0;) {
        const struct extent piece = typemap_cursor_next(&cursor, left);
        make_room(critical);
        caching_add(critical->identifier,
                    &(struct caching_request){.op = CACHING_READ, .start = piece.offset,
                                              .stop = piece.offset + piece.length},
                    saved * (double)piece.length / (double)request->bytes);
        left -= piece.length;
    }
}

/* Whether the ranks together leave no gaps in what each of them accesses like this one. RATIONALE: otherwise what is
 * sieved natively would come home from the cache piece by piece. */
static bool ranks_fill(const struct critical_requests *critical, const struct request *request)
{
    const double gaps = (double)(request->stop - request->start - request->bytes) / (double)(request->pieces - 1);
    return (critical->ranks - 1) * ((double)request->bytes / (double)request->pieces) >= gaps;
}

/* Of a write. RATIONALE: the close waits for the way home, which costs the disks as much for a write that saves no
 * start-up. */
static bool is_worth_its_way_home(struct critical_requests *critical, const struct request *request)
{
    const struct caching_request whole = {.op = CACHING_WRITE, .start = request->start, .stop = request->stop};
    return caching_benefit(critical->identifier, &whole) > (double)request->bytes * critical->costs.way_home;
}

static bool is_critical(struct critical_requests *critical, enum caching_op op, const struct view_range *range,
                        const struct request *request)
{
    const struct caching_request whole = {.op = op, .start = request->start, .stop = request->stop};
    const bool has_gaps = request->bytes < request->stop - request->start;
    critical->judged++;
    make_room(critical);
    if (op == CACHING_READ && !has_gaps)
        return caching_identify(critical->identifier, &whole);
    if (op == CACHING_WRITE)
        return is_worth_its_way_home(critical, request) && (!has_gaps || ranks_fill(critical, request));
    const double saved = caching_benefit(critical->identifier, &whole);
    if (saved > 0)
        add_pieces(critical, range, request, saved);
    return saved > 0;
}

/* Whether the pieces of a call are so small that redirecting them takes longer than the disks need for all that lies
 * between the first and the last one. RATIONALE: MPI libraries read that at once, by data sieving or collective
 * buffering. */
static bool is_too_fine(const struct critical_requests *critical, enum caching_op op, const struct view_range *range)
{
    const struct caching_device *disk = &critical->costs.model.disk;
    const struct caching_curve *startup = &disk->startup[op];
    struct typemap_cursor cursor;
    int64_t bytes = 0, span = 0, stop = -1;
    int pieces = 0;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    while (pieces < FINE_PIECES && bytes < range->bytes) {
        const struct extent piece = typemap_cursor_next(&cursor, range->bytes - bytes);
        span += piece.length + (stop >= 0 ? llabs(piece.offset - stop) : 0);
        stop = piece.offset + piece.length;
        bytes += piece.length;
        pieces++;
    }
    const double all = (double)range->bytes / (double)bytes; /* as much as these pieces so many times */
    return pieces == FINE_PIECES
        && all * pieces * PIECE_NS * 1e-9 > startup->seconds[startup->points - 1]
               + all * (double)span * disk->seconds_per_byte[op] / (double)critical->costs.home_servers;
}

/* Walks the requests that the MPI library would make for a call. */
struct walk_of_requests {
    const struct view_range *range;
    int64_t at_once; /* bytes of sieved pieces and their gaps */
    struct typemap_cursor cursor;
    struct extent piece; /* looked ahead; length 0: there is none */
    int64_t left;        /* bytes after it */
};

static struct walk_of_requests walk_requests(const struct critical_requests *critical, const struct io_call *call,
                                             enum caching_op op, const struct view_range *range)
{
    struct walk_of_requests walk = {.range = range, .left = range->bytes,
                                    .at_once = call->flags & CALL_COLLECTIVE ? 0 : critical->sieved[op]};
    typemap_cursor_init(&walk.cursor, range->view, range->displacement, range->position);
    return walk;
}

/* False: there are no more. */
static bool next_request(struct walk_of_requests *walk, struct request *request)
{
    *request = (struct request){0};
    while (walk->piece.length > 0 || walk->left > 0) {
        struct extent *piece = &walk->piece;
        if (piece->length == 0) {
            *piece = typemap_cursor_next(&walk->cursor, walk->left);
            walk->left -= piece->length;
        }
        const int64_t stop = piece->offset + piece->length;
        if (request->pieces > 0 && (piece->offset < request->stop || stop - request->start > walk->at_once))
            break;
        if (request->pieces == 0)
            *request = (struct request){.start = piece->offset, .position = walk->range->position + walk->range->bytes
                                                                            - walk->left - piece->length};
        request->stop = stop;
        request->pieces++;
        request->bytes += piece->length;
        piece->length = 0;
    }
    return request->pieces > 0;
}

/* ---- iBridge ----------------------------------------------------------------------------------------------------- */

/* A call of one request, from its judgement until it has been served. */
static __thread struct {
    struct critical_requests *by; /* NULL: there is none */
    int64_t start, stop, began;
    struct fragment_choice choice; /* of a read: bytes that a replica may have */
} timed;

static void begin_to_time(struct critical_requests *critical, const struct io_call *call, const struct request *request,
                          const struct fragment_choice *choice)
{
    const bool alone = !(call->flags & (CALL_COLLECTIVE | CALL_NONBLOCKING)) && request->bytes == call->bytes;
    timed.by = alone && request->bytes == request->stop - request->start ? critical : NULL;
    timed.start = request->start;
    timed.stop = request->stop;
    timed.choice = *choice;
    timed.began = clock_ns();
}

bool critical_requests_measures(const struct critical_requests *critical)
{
    return critical != NULL && critical->fragments != NULL;
}

static void time_served(struct critical_requests *critical, int64_t start, int64_t stop, bool on_ssd,
                        int64_t nanoseconds)
{
    if (on_ssd)
        service_times_add_ssd(fragment_requests_times(critical->fragments), (double)nanoseconds / 1e9);
    else
        fragment_requests_served(critical->fragments, start, stop, (double)nanoseconds / 1e9);
}

void critical_requests_served(struct critical_requests *critical, bool redirected)
{
    if (!critical_requests_measures(critical))
        return;
    if (timed.by != critical) {
        if (!redirected)
            service_times_use(fragment_requests_times(critical->fragments));
        return;
    }
    const int64_t start = timed.start + (redirected ? timed.choice.head : 0);
    const int64_t stop = timed.stop - (redirected ? timed.choice.tail : 0);
    time_served(critical, start, stop, start >= stop, clock_ns() - timed.began);
    timed.by = NULL;
}

void critical_requests_part_served(struct critical_requests *critical, const struct view_range *range, bool on_ssd,
                                   int64_t nanoseconds)
{
    struct typemap_cursor cursor;
    if (!critical_requests_measures(critical))
        return;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    const int64_t start = typemap_cursor_next(&cursor, 1).offset;
    if (view_range_last(range) - start + 1 == range->bytes)
        time_served(critical, start, start + range->bytes, on_ssd, nanoseconds);
    else if (!on_ssd)
        service_times_use(fragment_requests_times(critical->fragments));
}

static void add_fragment(struct critical_requests *critical, int64_t start, int64_t bytes, double saved)
{
    if (bytes == 0)
        return;
    make_room(critical);
    caching_add(critical->identifier,
                &(struct caching_request){.op = CACHING_READ, .start = start, .stop = start + bytes}, saved);
}

/* What is sieved is read and written with its gaps: its ends are no fragments. */
static bool is_sieved(const struct request *request)
{
    return request->bytes < request->stop - request->start;
}

/* The fragments that a read would have an SSD server have. */
static void judge_fragments(struct critical_requests *critical, const struct io_call *call,
                            const struct view_range *range)
{
    struct walk_of_requests walk = walk_requests(critical, call, CACHING_READ, range);
    struct request request;
    timed.by = NULL;
    /* RATIONALE: of collective calls the aggregators make other requests. */
    while (!(call->flags & CALL_COLLECTIVE) && next_request(&walk, &request)) {
        critical->judged++;
        if (is_sieved(&request))
            continue;
        const struct fragment_choice choice =
            fragment_requests_judge(critical->fragments, CACHING_READ, request.start, request.stop, NULL);
        add_fragment(critical, request.start, choice.head, choice.head_returns);
        add_fragment(critical, request.stop - choice.tail, choice.tail, choice.tail_returns);
        begin_to_time(critical, call, &request, &choice);
    }
}

/* Adds bytes to the parts; those that follow others of the same kind belong to them. False: out of memory. */
static bool add_part(struct call_parts *parts, int64_t position, int64_t bytes, bool on_ssd)
{
    struct call_part *last = parts->count > 0 ? &parts->each[parts->count - 1] : NULL;
    parts->on_ssd += on_ssd ? bytes : 0;
    if (bytes == 0)
        return true;
    if (last != NULL && last->on_ssd == on_ssd) {
        last->bytes += bytes;
        return true;
    }
    if (parts->count == parts->room) {
        const int64_t room = 2 * parts->room + FEW_PARTS;
        struct call_part *each = realloc(parts->each, (size_t)room * sizeof *each);
        if (each == NULL)
            return false;
        parts->each = each;
        parts->room = room;
    }
    parts->each[parts->count++] = (struct call_part){position, bytes, on_ssd};
    return true;
}

static const char *divide_fragments(struct critical_requests *critical, const struct io_call *call,
                                    const struct view_range *range, const struct fragment_room *room,
                                    struct call_parts *parts)
{
    struct walk_of_requests walk = walk_requests(critical, call, CACHING_WRITE, range);
    struct request request;
    timed.by = NULL;
    while (next_request(&walk, &request)) {
        critical->judged++;
        if (is_sieved(&request))
            return "data sieving";
        const struct fragment_choice choice =
            fragment_requests_judge(critical->fragments, CACHING_WRITE, request.start, request.stop, room);
        const int64_t middle = request.bytes - choice.head - choice.tail;
        if (!add_part(parts, request.position, choice.head, true)
            || !add_part(parts, request.position + choice.head, middle, false)
            || !add_part(parts, request.position + choice.head + middle, choice.tail, true))
            return "out of memory";
        begin_to_time(critical, call, &request, &(struct fragment_choice){0});
    }
    return parts->on_ssd > 0 ? NULL : "no fragment";
}

bool critical_requests_idle(const struct critical_requests *critical)
{
    return !critical_requests_measures(critical)
        || service_times_are_idle(fragment_requests_times(critical->fragments));
}

void critical_requests_exchange(struct critical_requests *critical, mpi_handle comm)
{
    if (critical_requests_measures(critical))
        service_times_exchange(fragment_requests_times(critical->fragments), comm);
}

/* ---- LiU --------------------------------------------------------------------------------------------------------- */

struct segment_requests *critical_requests_segments(const struct critical_requests *critical)
{
    return critical == NULL ? NULL : critical->segments;
}

/* Notes what is requested of each head and of each body. */
static void note_segments(struct critical_requests *critical, enum caching_op op, int64_t start, int64_t stop)
{
    critical->judged++;
    for (int64_t end; start < stop; start = end) {
        end = segment_requests_end(critical->segments, start);
        end = end < stop ? end : stop;
        make_room(critical);
        caching_add(critical->identifier, &(struct caching_request){.op = op, .start = start, .stop = end},
                    segment_requests_saves(critical->segments, end - start));
    }
}

/* What reaches the servers: with the gaps, where the MPI library reads them, too. */
static void judge_segments(struct critical_requests *critical, const struct io_call *call,
                           const struct view_range *range)
{
    struct walk_of_requests walk = walk_requests(critical, call, CACHING_READ, range);
    struct request request;
    if (!is_too_fine(critical, CACHING_READ, range)) {
        while (next_request(&walk, &request))
            note_segments(critical, CACHING_READ, request.start, request.stop);
    } else if (next_request(&walk, &request)) {
        note_segments(critical, CACHING_READ, request.start, view_range_last(range) + 1);
    }
}

/* RATIONALE: a head comes home before the close ends. So only those writes are worth it that S4D-Cache takes. */
static const char *divide_segments(struct critical_requests *critical, const struct io_call *call,
                                   const struct view_range *range, struct call_parts *parts)
{
    struct walk_of_requests walk = walk_requests(critical, call, CACHING_WRITE, range);
    struct request request;
    while (next_request(&walk, &request)) {
        note_segments(critical, CACHING_WRITE, request.start, request.stop);
        if (is_sieved(&request))
            return "data sieving";
        const bool worth = is_worth_its_way_home(critical, &request);
        for (int64_t start = request.start, end; start < request.stop; start = end) {
            end = segment_requests_end(critical->segments, start);
            end = end < request.stop ? end : request.stop;
            const bool on_ssd = worth && segment_requests_lifted(critical->segments, start);
            if (!add_part(parts, request.position + start - request.start, end - start, on_ssd))
                return "out of memory";
        }
    }
    return parts->on_ssd > 0 ? NULL : "no head of a lifted segment";
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

const char *critical_requests_divide(struct critical_requests *critical, const struct io_call *call,
                                     const struct view_range *range, const struct fragment_room *room,
                                     struct call_parts *parts)
{
    pthread_mutex_lock(&critical->mutex);
    const char *why = critical->segments != NULL ? divide_segments(critical, call, range, parts)
                                                 : divide_fragments(critical, call, range, room, parts);
    pthread_mutex_unlock(&critical->mutex);
    if (why == NULL)
        timed.by = NULL; /* its parts are */
    return why;
}

bool critical_requests_judge(struct critical_requests *critical, const struct io_call *call, enum caching_op op,
                             const struct view_range *range)
{
    struct walk_of_requests walk = walk_requests(critical, call, op, range);
    struct request request;
    int64_t bytes = 0;
    if (critical->fragments == NULL && critical->segments == NULL && is_too_fine(critical, op, range))
        return false;
    pthread_mutex_lock(&critical->mutex);
    if (critical->segments != NULL)
        judge_segments(critical, call, range);
    else if (critical->fragments != NULL)
        judge_fragments(critical, call, range);
    else
        while (next_request(&walk, &request))
            bytes += is_critical(critical, op, range, &request) ? request.bytes : 0;
    pthread_mutex_unlock(&critical->mutex);
    return bytes > range->bytes / 2;
}

void critical_requests_close(struct critical_requests *critical)
{
    if (critical == NULL)
        return;
    if (critical->identifier != NULL)
        leave_log(critical);
    caching_identifier_free(critical->identifier);
    fragment_requests_close(critical->fragments);
    segment_requests_close(critical->segments);
    free(critical->costs.numbers);
    pthread_mutex_destroy(&critical->mutex);
    free(critical->path);
    free(critical);
}
