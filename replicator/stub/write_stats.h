/* Counters of redirected writes, for the exit report. */
#ifndef PDLA_WRITE_STATS_H
#define PDLA_WRITE_STATS_H

#include <stdio.h>

#include "caching.h"
#include "redirection.h"

/* Counters of a file whose writes go to replicas or to a cache, for the exit report. */
struct write_stats {
    char *path;
    bool cached;
    pthread_mutex_t lock;                  /* of all that follows */
    char *refused;         /* why writes were not redirected at the last open of the file, or NULL */
    uint64_t calls, bytes, requests;       /* redirected, and contiguous accesses to components for them */
    uint64_t back_bytes, back_requests;    /* written back, and contiguous writes to the original for it */
    uint64_t earlier_bytes, earlier_requests, earlier_ns; /* the same of an earlier run, and how long that took */
    uint64_t left;                         /* bytes that the last close of the file left, */
    char *left_in;                         /* in this journal; NULL: none */
    char *kept;                            /* the empty journal that the last close kept; NULL: none */
    uint64_t peer_reads;                   /* reads of bytes that other ranks of the node had in replicas */
    uint64_t leased_reads, leased_bytes;   /* reads of bytes under a lease, and those that came from the replicas */
    uint64_t hits, hit_bytes;              /* reads from the cache */
    uint64_t exchanged, exchanged_bytes;   /* collective calls whose pieces were exchanged, and their bytes */
    struct caching_exchange exchange;      /* the last decision about that; all 0: there was none */
    uint64_t moving_ns, waited_ns;         /* spent on bringing bytes home, and by the program in waiting for that */
    int error;                             /* errno of the last failed write-back */
    struct passed passed[PASSED_REASONS];
    struct write_stats *next;
};

struct write_stats *write_stats_of(const char *path, bool cached); /* NULL: out of memory */
void write_stats_passed(struct write_stats *, int64_t bytes, const char *why);
/* The close of the file left so many bytes in the journal at `path`. */
void write_stats_left(struct write_stats *, uint64_t bytes, const char *path);
/* The close kept an empty journal. Its state of the original is newer than that of the one before.
 */
void write_stats_kept(struct write_stats *, const char *path);
/* How many of the bytes left still wait. */
uint64_t write_stats_waits(struct write_stats *);
/* What was written back since `before` was of an earlier run. */
void write_stats_earlier(struct write_stats *, const struct write_stats *before, int64_t nanoseconds);
void write_stats_peer_read(struct write_stats *);
/* A read, of which so many bytes came from the replicas of a lease, or from cache files of an ended program. */
void write_stats_leased(struct write_stats *, uint64_t bytes);
void write_stats_hit(struct write_stats *, int64_t bytes);
void write_stats_refuse(struct write_stats *, const char *why); /* at an open; NULL: writes are redirected */
/* Members of the JSON arrays "writes" and "caches". */
void write_stats_report(FILE *out, bool cached);

#endif
