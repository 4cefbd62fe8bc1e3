#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "freshness.h"
#include "messages.h"
#include "node_directory.h"
#include "replica_read.h"
#include "redirection.h"
#include "transfer.h"
#include "write_stats.h"

static pthread_mutex_t sources_lock = PTHREAD_MUTEX_INITIALIZER;
static struct source *sources; /* the newest first; none is ever taken out */

static struct {
    pthread_mutex_t lock;
    pid_t pid; /* that opened a file first: a child of fork reports nothing */
    int rank, ranks;
    uint64_t generation;
    const char *refusal;
    char host[64], begun[4096], report[4096]; /* its names while it is written, and afterwards; "": no report */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .rank = -1};

struct source *report_source(const struct loaded_map *map, const struct map_file *file)
{
    pthread_mutex_lock(&sources_lock);
    struct source *source = sources;
    while (source != NULL && source->file != file)
        source = source->next;
    if (source == NULL && (source = calloc(1, sizeof *source)) != NULL) {
        source->map = map;
        source->file = file;
        pthread_mutex_init(&source->lock, NULL);
        if ((source->replicas = calloc(file->replica_count, sizeof *source->replicas)) == NULL) {
            free(source);
            source = NULL;
        } else {
            source->next = sources;
            sources = source;
        }
    }
    pthread_mutex_unlock(&sources_lock);
    return source;
}

enum { MOST_NAMES = 4096 /* that processes of the same host name and number may have taken */ };

/* Makes the report for a process's `number`-th try; -1 and EEXIST: another process has taken the names, or had them.
 * RATIONALE: containers may share a host name and have equal process numbers, and a kernel gives numbers again. */
static int make_report(const char *directory, int number)
{
    char unique[16] = "";
    if (number > 0)
        snprintf(unique, sizeof unique, ".%d", number);
    snprintf(process.begun, sizeof process.begun, "%s/%s/.%ld%s.part", directory, process.host, (long)process.pid,
             unique);
    snprintf(process.report, sizeof process.report, "%s/%s/%ld%s.json", directory, process.host, (long)process.pid,
             unique);
    const int fd = node_directory_open(process.begun, O_WRONLY | O_EXCL, 0700);
    if (fd >= 0 && access(process.report, F_OK) == 0) {
        unlink(process.begun);
        close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}

/* RATIONALE: an empty report from the beginning shows that a process was killed before its exit. */
static void begin_report(void)
{
    const char *directory = getenv("PDLA_REPORT");
    int fd = -1;
    gethostname(process.host, sizeof process.host - 1);
    if (directory == NULL || strlen(directory) >= sizeof process.begun - sizeof process.host - 48)
        return;
    for (int number = 0; fd < 0 && number < MOST_NAMES; number++)
        if ((fd = make_report(directory, number)) < 0 && errno != EEXIST)
            break;
    if (fd < 0)
        process.begun[0] = '\0';
    else
        close(fd);
}

/* Prints once why nothing is redirected. RATIONALE: before the first pdla replicate there is no
 * map, and pdla run says so. */
static void print_refusal(const char *path, const char *refusal)
{
    static bool printed;
    bool none_yet = path != NULL && getenv("PDLA_REPORT") != NULL && access(path, F_OK) != 0 && errno == ENOENT;
    if (!printed && path == NULL)
        print_message("nothing is redirected, because %s", refusal);
    else if (!printed && !none_yet)
        print_message("nothing is redirected, because the map %s (PDLA_MAP) cannot be used: %s", path, refusal);
    printed = printed || !none_yet;
}

void report_opened(const struct loaded_map *map, const char *path, const char *refusal, int rank)
{
    const struct mpi *mpi = running_mpi();
    pthread_mutex_lock(&process.lock);
    if (process.pid == 0) {
        int world = 0;
        process.pid = getpid();
        begin_report();
        mpi->Initialized(&world); /* not with sessions */
        if (world) {
            mpi->Comm_rank(mpi->comm_world, &process.rank);
            mpi->Comm_size(mpi->comm_world, &process.ranks);
        }
    }
    process.refusal = refusal;
    if (refusal != NULL && (process.rank < 0 ? rank : process.rank) == 0)
        print_refusal(path, refusal);
    if (map != NULL)
        process.generation = map->header->generation;
    pthread_mutex_unlock(&process.lock);
}

static void add_calls(struct passed *passed, uint64_t calls, uint64_t bytes, const char *why)
{
    int i = 0;
    while (i < PASSED_REASONS - 1 && passed[i].why != NULL && strcmp(passed[i].why, why) != 0)
        i++;
    if (passed[i].why == NULL)
        passed[i].why = i < PASSED_REASONS - 1 ? why : "other reasons";
    passed[i].calls += calls;
    passed[i].bytes += bytes;
}

void add_passed(struct passed *passed, int64_t bytes, const char *why)
{
    add_calls(passed, 1, bytes > 0 ? (uint64_t)bytes : 0, why);
}

void report_passed(struct source *source, int64_t bytes, const char *why)
{
    pthread_mutex_lock(&source->lock);
    add_passed(source->passed, bytes, why);
    pthread_mutex_unlock(&source->lock);
}

static void add(struct tally *sum, const struct tally *more)
{
    sum->requests += more->requests;
    sum->contiguous += more->contiguous;
    sum->bytes += more->bytes;
}

void report_served(struct source *source, int chosen, int64_t bytes, const struct served *served, uint64_t nanoseconds)
{
    pthread_mutex_lock(&source->lock);
    source->calls++;
    source->bytes += (uint64_t)bytes;
    source->nanoseconds += nanoseconds;
    add(&source->replica, &served->replica);
    add(&source->original, &served->original);
    if (chosen >= 0)
        source->replicas[chosen].bytes += served->replica.bytes;
    pthread_mutex_unlock(&source->lock);
}

void report_compared(struct source *source, int64_t bytes, const struct difference *difference)
{
    pthread_mutex_lock(&source->lock);
    source->compared++;
    source->compared_bytes += (uint64_t)bytes;
    if (source->difference.call == NULL) {
        source->difference = *difference;
        source->difference.number = source->compared;
    }
    pthread_mutex_unlock(&source->lock);
}

void replica_refuse(struct source *source, uint32_t replica, const char *why)
{
    const char *nothing = NULL;
    __atomic_compare_exchange_n(&source->replicas[replica].refused, &nothing, why, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

bool replica_refused(const struct source *source, uint32_t replica)
{
    return __atomic_load_n(&source->replicas[replica].refused, __ATOMIC_ACQUIRE) != NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The length of the UTF-8 sequence at `text`; 0: it is none. */
static int utf8_length(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4)
        return 0;
    int length = text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    if ((text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F)
        || (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F))
        return 0;
    return length;
}

void print_message(const char *format, ...)
{
    enum { LONGEST = 8192, ESCAPED = 4 /* bytes of one that cannot be printed */ };
    char text[LONGEST], line[ESCAPED * LONGEST + 8] = "pdla: ";
    size_t length = strlen(line);
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        int bytes = utf8_length(at);
        bool printed = bytes > 0 && *at >= 0x20 && *at != 0x7F && !(bytes == 2 && at[0] == 0xC2 && at[1] < 0xA0);
        for (int i = 0; i < (bytes > 0 ? bytes : 1); i++, at++)
            length += (size_t)snprintf(line + length, ESCAPED + 1, printed ? "%c" : "\\x%02x", *at);
    }
    line[length++] = '\n';
    message_write(line, length);
}

/* Bytes that are not UTF-8 become lone surrogates, as in Python's file names. */
void write_string(FILE *out, const char *string)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)string; *at != '\0';) {
        int length = utf8_length(at);
        if (length == 0)
            fprintf(out, "\\udc%02x", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else
            fwrite(at, 1, (size_t)length, out);
        at += length == 0 ? 1 : length;
    }
    fputc('"', out);
}

static void write_tally(FILE *out, const char *name, const struct tally *tally)
{
    fprintf(out, ",\"%s\":{\"requests\":%llu,\"contiguous\":%llu,\"bytes\":%llu}", name,
            (unsigned long long)tally->requests, (unsigned long long)tally->contiguous,
            (unsigned long long)tally->bytes);
}

void write_passed(FILE *out, const struct passed *passed)
{
    fputs(",\"passed\":[", out);
    for (int i = 0; i < PASSED_REASONS && passed[i].why != NULL; i++) {
        fputs(i > 0 ? ",{\"why\":" : "{\"why\":", out);
        write_string(out, passed[i].why);
        fprintf(out, ",\"calls\":%llu,\"bytes\":%llu}", (unsigned long long)passed[i].calls,
                (unsigned long long)passed[i].bytes);
    }
    fputc(']', out);
}

static void write_compared(FILE *out, const struct source *source)
{
    const struct difference *found = &source->difference;
    fprintf(out, ",\"compared\":{\"calls\":%llu,\"bytes\":%llu}", (unsigned long long)source->compared,
            (unsigned long long)source->compared_bytes);
    if (found->call != NULL)
        fprintf(out,
                ",\"difference\":{\"call\":\"%s\",\"number\":%llu,\"replica\":%llu,\"offset\":%lld,\"start\":%lld,"
                "\"bytes\":%lld,\"original\":%d,\"got\":%d}",
                found->call, (unsigned long long)found->number, (unsigned long long)found->replica,
                (long long)found->offset, (long long)found->start, (long long)found->bytes, found->original,
                found->got);
}

static void write_source(FILE *out, struct source *source)
{
    const uint64_t aside = __atomic_load_n(&source->aside_calls, __ATOMIC_RELAXED);
    pthread_mutex_lock(&source->lock);
    if (aside > 0)
        add_calls(source->passed, aside, __atomic_load_n(&source->aside_bytes, __ATOMIC_RELAXED),
                  "the original is in memory and quicker");
    fputs("{\"path\":", out);
    write_string(out, map_at(source->map, source->file->path));
    fprintf(out, ",\"redirected\":{\"calls\":%llu,\"bytes\":%llu}", (unsigned long long)source->calls,
            (unsigned long long)source->bytes);
    write_tally(out, "replica", &source->replica);
    write_tally(out, "original", &source->original);
    write_passed(out, source->passed);
    write_compared(out, source);
    fputs(",\"replicas\":[", out);
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        const struct map_replica *replica = replica_of(source, i);
        uint8_t stale = freshness_stale(source->map, replica);
        const char *refused = __atomic_load_n(&source->replicas[i].refused, __ATOMIC_ACQUIRE);
        fprintf(out, "%s{\"id\":%llu,\"bytes\":%llu,\"state\":", i > 0 ? "," : "", (unsigned long long)replica->id,
                (unsigned long long)source->replicas[i].bytes);
        char state[160];
        snprintf(state, sizeof state, "refused: %s", refused == NULL ? "" : refused);
        write_string(out, stale == STALE_WRITTEN ? "written"
            : stale != STALE_NOT ? "changed" : refused ? state : "valid");
        fputc('}', out);
    }
    fputs("]}", out);
    pthread_mutex_unlock(&source->lock);
}

static void write_report(FILE *out)
{
    uint64_t nanoseconds = 0;
    for (struct source *source = sources; source != NULL; source = source->next)
        nanoseconds += source->nanoseconds;
    fprintf(out, "{\"version\":1,\"rank\":%d,\"ranks\":%d,\"host\":", process.rank, process.ranks);
    write_string(out, process.host);
    fprintf(out, ",\"pid\":%ld,\"map\":", (long)process.pid);
    write_string(out, process.refusal == NULL ? "ok" : process.refusal);
    fprintf(out, ",\"generation\":%llu,\"seconds\":%llu.%09llu,\"files\":[", (unsigned long long)process.generation,
            (unsigned long long)nanoseconds / 1000000000, (unsigned long long)nanoseconds % 1000000000);
    for (struct source *source = sources; source != NULL; source = source->next) {
        write_source(out, source);
        if (source->next != NULL)
            fputc(',', out);
    }
    fputs("],\"writes\":[", out);
    write_stats_report(out, false);
    fputs("],\"caches\":[", out);
    write_stats_report(out, true);
    fputs("]}\n", out);
}

void redirector_report(void)
{
    if (process.pid != getpid())
        return;
    int error = errno, fd = process.begun[0] == '\0' ? -1 : open(process.begun, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    char *text = NULL;
    size_t length = 0;
    FILE *out = fd < 0 ? NULL : open_memstream(&text, &length);
    if (out != NULL) {
        write_report(out);
        const bool complete = ferror(out) == 0;
        if (fclose(out) == 0 && complete && write_whole(fd, text, (int64_t)length, 0) == 0)
            rename(process.begun, process.report);
        free(text);
    }
    if (fd >= 0)
        close(fd);
    errno = error;
}
