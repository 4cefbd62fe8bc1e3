/* What the redirector knows of an original in this process (struct source) and of one open MPI file
 * (struct redirection). */
#ifndef PDLA_STUB_H
#define PDLA_STUB_H

#include <pthread.h>

#include "collective_consensus.h"
#include "detours.h"
#include "interpose.h"
#include "loadedmap.h"
#include "quicker_way.h"
#include "read_coalescing.h"

enum { PASSED_REASONS = 24, CALL_SIZES = 22 /* each up to twice the one before */ };

/* Calls that were left to the MPI library, for one reason. */
struct passed {
    const char *why; /* a literal; NULL: none */
    uint64_t calls, bytes;
};

struct source_replica {
    const char *refused; /* atomic; why this process does not use it: a literal, set once; NULL: it does */
    uint64_t bytes;      /* read from it */
};

/* A byte of a replica that differs from the original. */
struct difference {
    const char *call;       /* the name of the call that read it, a literal; NULL: there is no difference */
    uint64_t number;        /* of the redirected reads of the file, from 1 */
    uint64_t replica;       /* the catalog's */
    int64_t offset, start, bytes; /* of the byte, and of the call, which read `bytes` from `start` on */
    unsigned char original, got;
};

/* One for each original and map; kept for the exit report. */
struct source {
    const struct loaded_map *map;
    const struct map_file *file;
    pthread_mutex_t lock;  /* of all that follows */
    uint64_t calls, bytes, nanoseconds; /* redirected */
    struct tally replica, original;
    struct passed passed[PASSED_REASONS];
    uint64_t aside_calls, aside_bytes; /* left to MPI, which was quicker; atomic */
    uint64_t compared, compared_bytes; /* redirected reads that were compared with the original */
    struct difference difference; /* the first */
    struct source_replica *replicas; /* [file->replica_count] */
    struct source *next;
};

/* A replica as one open file sees it. */
struct opened_replica {
    int *components;  /* [servers] descriptors, -1 until needed; atomic; NULL: this file does not use it */
    struct progress *progress; /* [servers] */
    int64_t next;     /* end of the previous call that it could have served; atomic */
    bool no_nowait;   /* struct runs */
};

struct reader {
    struct source *source;
    int fd;               /* of the original; -1: could not be opened, or is another file on this rank */
    struct progress progress; /* of the redirector's reads of the original */
    bool reads;           /* all ranks agreed to redirect reads */
    const char *why_not;  /* if not `reads`: a literal */
    bool independent;     /* independent reads, too */
    mpi_handle comm;      /* if `reads`: a duplicate of the file's communicator, MPI_COMM_NULL for a single rank */
    struct agreement agreement;
    struct opened_replica *replicas; /* [file->replica_count] */
    struct detours detours;
    struct quicker_way quicker[CALL_SIZES]; /* of independent reads; all but atomic members under source->lock */
};

struct writer; /* writer.h */
struct leased; /* leased_open.h */
struct critical_requests; /* critical_requests.h */

/* Of one open file: handle->intercepted. */
struct redirection {
    struct reader *reader;     /* NULL: there are no replicas to read from or to mark */
    struct writer *writer; /* NULL: writes go to the original */
    struct leased *leased; /* NULL: the original has its newest bytes */
    struct critical_requests *critical; /* of the policies s4d, ibridge and liu; NULL: nothing is judged */
    const char *unjudged; /* why nothing is judged: a literal; NULL: it is, or the policy is another one */
    bool measures; /* all ranks measure service times, and exchange them where MPI is collective */
};

static inline struct redirection *redirection_of(const struct file_handle *handle)
{
    return handle->intercepted;
}

static inline struct reader *reader_of(const struct file_handle *handle)
{
    return redirection_of(handle)->reader;
}

static inline struct writer *writer_of(const struct file_handle *handle)
{
    return redirection_of(handle)->writer;
}

/* Replica `i` of an original. */
static inline const struct map_replica *replica_of(const struct source *source, uint32_t i)
{
    return &source->map->replicas[source->file->first_replica + i];
}

#endif
