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
#include "staleness.h"
#include "transfer.h"

/* RATIONALE: what all ranks note of an open file is about as much as pdla keeps of a file. */
enum {
    ALL_TABLES = 64 << 20, /* bytes of memory, for the requests of an open file, of all ranks */
    TABLE = ALL_TABLES / 4, LEAST_TABLE = TABLE / 64, /* of one of them */
    MOST_POINTS = 4096,
    FINE_PIECES = 64, /* a call is taken to go on as it begins */
    PIECE_NS = 1000   /* that a piece takes in a cache or a replica, wherever its bytes are */
};

struct critical_requests {
    pthread_mutex_t mutex;
    struct caching_identifier *identifier;
    struct s4d_costs costs;
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

/* A device takes as many numbers as there are: distances from `distances` on, seconds from `seconds` on. */
static bool next_device(const char **text, struct caching_device *device, int64_t **distances, double **seconds)
{
    if (!next_number(text, &device->seconds_per_byte[CACHING_READ])
        || !next_number(text, &device->seconds_per_byte[CACHING_WRITE]) || !next_integer(text, 1, &device->points)
        || device->points > MOST_POINTS)
        return false;
    device->distance = *distances;
    device->seconds = *seconds;
    for (int64_t i = 0; i < device->points; i++)
        if (!next_integer(text, 0, (*distances)++) || !next_number(text, (*seconds)++))
            return false;
    return true;
}

bool s4d_costs_read(struct s4d_costs *costs)
{
    const char *text = getenv("PDLA_S4D");
    *costs = (struct s4d_costs){.numbers = text == NULL ? NULL : calloc(2 * MOST_POINTS, 16)};
    int64_t *distances = costs->numbers;
    double *seconds = costs->numbers == NULL ? NULL : (double *)(distances + 2 * MOST_POINTS);
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

struct critical_requests *critical_requests_open(const struct file_handle *handle, const char *path, int rank)
{
    struct critical_requests *critical = cache_policy() != POLICY_S4D ? NULL : calloc(1, sizeof *critical);
    if (critical == NULL)
        return NULL;
    pthread_mutex_init(&critical->mutex, NULL);
    critical->rank = rank;
    critical->ranks = handle->ranks;
    critical->more = critical->ranks < ALL_TABLES / TABLE ? ALL_TABLES / TABLE / critical->ranks - 1 : 0;
    sieving_of(handle->file, &critical->sieved[CACHING_READ], &critical->sieved[CACHING_WRITE]);
    if ((critical->path = strdup(path)) != NULL && s4d_costs_read(&critical->costs))
        critical->identifier = caching_identifier_new(&critical->costs.model, critical->costs.home_strip,
                                                      critical->costs.home_servers, table_of(critical->ranks));
    if (critical->identifier != NULL)
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
};
_Static_assert(sizeof(struct log_header) == 64, "header");

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
        if (found.reads > 0) {
            if (into != NULL)
                into[rows] = (struct log_row){found.start, found.stop, found.benefit, found.reads};
            rows++;
        }
    return rows;
}

/* The name of a log that nobody else writes. */
static bool name_of_log(char name[4096])
{
    static unsigned logs;
    const char *directory = getenv("PDLA_S4D_LOG");
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    return directory != NULL && *directory != '\0'
        && snprintf(name, 4096, "%s/%s-%ld-%u.cdt", directory, host, (long)getpid(),
                    __atomic_fetch_add(&logs, 1, __ATOMIC_RELAXED)) < 4096;
}

static bool write_file(const char *name, const char *bytes, size_t size)
{
    char unfinished[4096 + 8];
    snprintf(unfinished, sizeof unfinished, "%s.new", name);
    const int fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write_whole(fd, bytes, (int64_t)size, 0) == 0;
    if (fd >= 0)
        written = close(fd) == 0 && written && rename(unfinished, name) == 0;
    if (fd >= 0 && !written)
        unlink(unfinished);
    return written;
}

/* RATIONALE: without the log later reads are as they were; a program is not to hear of that. */
static bool leave_log(const struct critical_requests *critical)
{
    char name[4096];
    struct stat found;
    const uint32_t rows = rows_of(critical, NULL);
    const size_t length = strlen(critical->path);
    const size_t size = sizeof(struct log_header) + rows * sizeof(struct log_row) + length;
    if (rows == 0 || !name_of_log(name) || stat(critical->path, &found) != 0)
        return false;
    char *bytes = calloc(1, size);
    if (bytes == NULL)
        return false;
    struct log_header *header = (struct log_header *)bytes;
    *header = (struct log_header){.magic = "PDLACDT1", .rows = rows, .device = found.st_dev, .inode = found.st_ino,
                                  .size = found.st_size, .mtime_ns = nanoseconds(found.st_mtim),
                                  .path_bytes = (uint32_t)length, .rank = critical->rank, .requests = critical->judged};
    rows_of(critical, (struct log_row *)(header + 1));
    memcpy(bytes + size - length, critical->path, length);
    header->checksum = crc32c(0, &header->device, size - offsetof(struct log_header, device));
    const bool left = write_file(name, bytes, size);
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

static bool is_critical(struct critical_requests *critical, enum caching_op op, const struct view_range *range,
                        const struct request *request)
{
    const struct caching_request whole = {.op = op, .start = request->start, .stop = request->stop};
    const bool has_gaps = request->bytes < request->stop - request->start;
    critical->judged++;
    make_room(critical);
    if (op == CACHING_READ && !has_gaps)
        return caching_identify(critical->identifier, &whole);
    const double saved = caching_benefit(critical->identifier, &whole);
    /* RATIONALE: the close waits for the way home, which costs the disks as much for a write that saves no start-up. */
    if (op == CACHING_WRITE)
        return saved > (double)request->bytes * critical->costs.way_home
            && (!has_gaps || ranks_fill(critical, request));
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
        && all * pieces * PIECE_NS * 1e-9 > disk->seconds[disk->points - 1]
               + all * (double)span * disk->seconds_per_byte[op] / (double)critical->costs.home_servers;
}

bool critical_requests_judge(struct critical_requests *critical, const struct io_call *call, enum caching_op op,
                             const struct view_range *range)
{
    const int64_t at_once = call->flags & CALL_COLLECTIVE ? 0 : critical->sieved[op];
    struct typemap_cursor cursor;
    int64_t bytes = 0;
    if (is_too_fine(critical, op, range))
        return false;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    pthread_mutex_lock(&critical->mutex);
    struct request request = {0};
    for (int64_t left = range->bytes; left > 0;) {
        const struct extent piece = typemap_cursor_next(&cursor, left);
        const int64_t stop = piece.offset + piece.length;
        const bool joins = request.pieces > 0 && piece.offset >= request.stop && stop - request.start <= at_once;
        if (!joins && request.pieces > 0)
            bytes += is_critical(critical, op, range, &request) ? request.bytes : 0;
        if (!joins)
            request = (struct request){.start = piece.offset, .position = range->position + range->bytes - left};
        request.stop = stop;
        request.pieces++;
        request.bytes += piece.length;
        left -= piece.length;
    }
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
    free(critical->costs.numbers);
    pthread_mutex_destroy(&critical->mutex);
    free(critical->path);
    free(critical);
}
