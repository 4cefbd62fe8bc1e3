/* Counters of redirected writes, for the exit report. */
#include "write_stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache_hints.h"
#include "report.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct write_stats *all; /* the newest first; none is ever taken out */

struct write_stats *write_stats_of(const char *path, bool cached)
{
    pthread_mutex_lock(&all_lock);
    struct write_stats *written = all;
    while (written != NULL && (written->cached != cached || strcmp(written->path, path) != 0))
        written = written->next;
    if (written == NULL && (written = calloc(1, sizeof *written)) != NULL) {
        if ((written->path = strdup(path)) == NULL) {
            free(written);
            written = NULL;
        } else {
            written->cached = cached;
            pthread_mutex_init(&written->lock, NULL);
            written->next = all;
            all = written;
        }
    }
    pthread_mutex_unlock(&all_lock);
    return written;
}

void write_stats_passed(struct write_stats *written, int64_t bytes, const char *why)
{
    pthread_mutex_lock(&written->lock);
    add_passed(written->passed, bytes, why);
    pthread_mutex_unlock(&written->lock);
}

void write_stats_peer_read(struct write_stats *written)
{
    pthread_mutex_lock(&written->lock);
    written->peer_reads++;
    pthread_mutex_unlock(&written->lock);
}

void write_stats_leased(struct write_stats *written, uint64_t bytes)
{
    if (bytes == 0)
        return;
    pthread_mutex_lock(&written->lock);
    *(written->cached ? &written->hits : &written->leased_reads) += 1;
    *(written->cached ? &written->hit_bytes : &written->leased_bytes) += bytes;
    pthread_mutex_unlock(&written->lock);
}

void write_stats_hit(struct write_stats *written, int64_t bytes)
{
    pthread_mutex_lock(&written->lock);
    written->hits++;
    written->hit_bytes += (uint64_t)bytes;
    pthread_mutex_unlock(&written->lock);
}

void write_stats_refuse(struct write_stats *written, const char *why)
{
    pthread_mutex_lock(&written->lock);
    free(written->refused);
    written->refused = why == NULL ? NULL : strdup(why);
    pthread_mutex_unlock(&written->lock);
}

void write_stats_kept(struct write_stats *written, const char *path)
{
    pthread_mutex_lock(&written->lock);
    if (written->kept != NULL)
        unlink(written->kept);
    free(written->kept);
    written->kept = strdup(path);
    pthread_mutex_unlock(&written->lock);
}

void write_stats_left(struct write_stats *written, uint64_t bytes, const char *path)
{
    if (bytes == 0)
        return;
    pthread_mutex_lock(&written->lock);
    free(written->left_in);
    written->left_in = strdup(path);
    written->left = bytes;
    pthread_mutex_unlock(&written->lock);
}

/* RATIONALE: whichever process writes the bytes back removes the journal. */
static uint64_t still_left(const struct write_stats *written)
{
    return written->left_in != NULL && access(written->left_in, F_OK) == 0 ? written->left : 0;
}

uint64_t write_stats_waits(struct write_stats *written)
{
    pthread_mutex_lock(&written->lock);
    uint64_t waits = still_left(written);
    pthread_mutex_unlock(&written->lock);
    return waits;
}

void write_stats_earlier(struct write_stats *written, const struct write_stats *before, int64_t nanoseconds)
{
    pthread_mutex_lock(&written->lock);
    written->earlier_bytes += written->back_bytes - before->back_bytes;
    written->earlier_requests += written->back_requests - before->back_requests;
    written->earlier_ns += (uint64_t)nanoseconds;
    written->back_bytes = before->back_bytes;
    written->back_requests = before->back_requests;
    pthread_mutex_unlock(&written->lock);
}

static void write_one(FILE *out, const struct write_stats *written)
{
    fputs("{\"path\":", out);
    write_string(out, written->path);
    fprintf(out, ",\"redirected\":{\"calls\":%llu,\"bytes\":%llu,\"requests\":%llu}",
            (unsigned long long)written->calls, (unsigned long long)written->bytes,
            (unsigned long long)written->requests);
    fprintf(out, ",\"brought_back\":{\"bytes\":%llu,\"requests\":%llu}", (unsigned long long)written->back_bytes,
            (unsigned long long)written->back_requests);
    fprintf(out, ",\"earlier\":{\"bytes\":%llu,\"requests\":%llu,\"seconds\":%llu.%09llu},\"left\":%llu,",
            (unsigned long long)written->earlier_bytes, (unsigned long long)written->earlier_requests,
            (unsigned long long)written->earlier_ns / 1000000000, (unsigned long long)written->earlier_ns % 1000000000,
            (unsigned long long)still_left(written));
    fprintf(out, "\"leased\":{\"calls\":%llu,\"bytes\":%llu},", (unsigned long long)written->leased_reads,
            (unsigned long long)written->leased_bytes);
    fprintf(out, "\"neighbours\":%llu,\"refused\":", (unsigned long long)written->peer_reads);
    write_string(out, written->refused == NULL ? "" : written->refused);
    fputs(",\"error\":", out);
    write_string(out, written->error == 0 ? "" : strerror(written->error));
    write_passed(out, written->passed);
    fputc('}', out);
}

static void write_seconds(FILE *out, const char *name, uint64_t nanoseconds)
{
    fprintf(out, "\"%s\":%llu.%09llu", name, (unsigned long long)nanoseconds / 1000000000,
            (unsigned long long)nanoseconds % 1000000000);
}

static void write_cached(FILE *out, const struct write_stats *written)
{
    const enum cache_policy policy = cache_policy(written->path);
    fputs("{\"path\":", out);
    write_string(out, written->path);
    fprintf(out, ",\"policy\":\"%s\",\"written\":{\"calls\":%llu,\"bytes\":%llu,\"requests\":%llu}",
            cache_policy_name(policy), (unsigned long long)written->calls,
            (unsigned long long)written->bytes, (unsigned long long)written->requests);
    fprintf(out, ",\"hits\":{\"calls\":%llu,\"bytes\":%llu}", (unsigned long long)written->hits,
            (unsigned long long)written->hit_bytes);
    fprintf(out, ",\"home\":{\"bytes\":%llu,\"requests\":%llu},\"dirty\":%llu,",
            (unsigned long long)written->back_bytes, (unsigned long long)written->back_requests,
            (unsigned long long)still_left(written));
    const struct caching_exchange *exchange = &written->exchange;
    fprintf(out, "\"exchange\":{\"calls\":%llu,\"bytes\":%llu,\"unit\":%lld,\"requests\":[%lld,%lld,%lld],"
                 "\"seconds\":[%.9f,%.9f,%.9f]},",
            (unsigned long long)written->exchanged, (unsigned long long)written->exchanged_bytes,
            (long long)exchange->unit, (long long)exchange->requests[0], (long long)exchange->requests[1],
            (long long)exchange->requests[2], exchange->seconds[0], exchange->seconds[1], exchange->seconds[2]);
    fputs("\"seconds\":{", out);
    write_seconds(out, "moving", written->moving_ns);
    fputc(',', out);
    write_seconds(out, "waited", written->waited_ns);
    fputs("},\"refused\":", out);
    write_string(out, written->refused == NULL ? "" : written->refused);
    fputs(",\"error\":", out);
    write_string(out, written->error == 0 ? "" : strerror(written->error));
    write_passed(out, written->passed);
    fputc('}', out);
}

void write_stats_report(FILE *out, bool cached)
{
    const char *separator = "";
    pthread_mutex_lock(&all_lock);
    for (struct write_stats *written = all; written != NULL; written = written->next) {
        if (written->cached != cached)
            continue;
        fputs(separator, out);
        pthread_mutex_lock(&written->lock);
        (cached ? write_cached : write_one)(out, written);
        pthread_mutex_unlock(&written->lock);
        separator = ",";
    }
    pthread_mutex_unlock(&all_lock);
}
