/* What the stub knows about an original in this process (struct source) and about one open MPI file (struct stub_file).
 * */
#ifndef PDLA_STUB_H
#define PDLA_STUB_H

#include <pthread.h>

#include "collective_consensus.h"
#include "interpose.h"
#include "loadedmap.h"
#include "read_coalescing.h"

enum { PASSED_REASONS = 24 };

/* Calls that were left to the original, for one reason. */
struct passed {
    const char *why; /* a literal; NULL: none */
    uint64_t calls, bytes;
};

struct source_replica {
    const char *refused; /* atomic; a literal, set once; NULL: this process has found nothing wrong with it */
    uint64_t bytes;      /* read from it */
};

/* A byte of a replica that is not the original's. */
struct difference {
    const char *call;       /* the name of the call that read it, a literal; NULL: there is none */
    uint64_t number;        /* of the redirected reads of the file, from 1 */
    uint64_t replica;       /* the catalog's */
    int64_t offset, start, bytes; /* of the byte, and of the call, which read `bytes` from `start` on */
    unsigned char original, got;
};

/* One per original and map; kept for the exit report. */
struct source {
    const struct loaded_map *map;
    const struct map_file *file;
    bool shared_by_nodes;  /* atomic; written by ranks on several nodes: no node knows all writes, so none is published */
    pthread_mutex_t lock;  /* of all that follows */
    uint64_t calls, bytes, nanoseconds; /* redirected */
    struct tally replica, original;
    struct passed passed[PASSED_REASONS];
    uint64_t compared, compared_bytes; /* redirected reads that were compared with the original */
    struct difference difference;      /* the first */
    struct source_replica *replicas; /* [file->replica_count] */
    struct source *next;
};

/* A replica as one open file sees it. */
struct opened_replica {
    int *components;  /* [servers] descriptors, -1 until one is needed; atomic; NULL: this file does not use the replica */
    struct progress *progress; /* [servers] */
    int64_t next;     /* where the previous request that it could have served ended; atomic */
    bool blind;       /* struct runs */
};

struct stub_file {
    struct source *source;
    int fd;               /* of the original; -1: could not be opened, or is not the same file on this rank */
    struct progress progress; /* of the stub's reads of the original */
    bool reads;           /* redirection was agreed: the same on all ranks */
    const char *why_not;  /* `reads` false: a literal */
    bool independent;     /* independent reads, too */
    mpi_handle comm;      /* `reads`: a duplicate of the file's communicator, MPI_COMM_NULL for a single rank */
    struct agreement agreement;
    int writes;           /* begun and not ended; atomic */
    struct opened_replica *replicas; /* [file->replica_count] */
};

struct stub_writer; /* writer.h */

/* Of one open file: handle->intercepted. */
struct redirection {
    struct stub_file *stub;     /* NULL: there are no replicas to read from or to mark */
    struct stub_writer *writer; /* NULL: writes go to the original */
};

static inline struct redirection *redirection_of(const struct file_handle *handle)
{
    return handle->intercepted;
}

static inline struct stub_file *stub_of(const struct file_handle *handle)
{
    return redirection_of(handle)->stub;
}

static inline struct stub_writer *writer_of(const struct file_handle *handle)
{
    return redirection_of(handle)->writer;
}

/* Replica `i` of an original. */
static inline const struct map_replica *replica_of(const struct source *source, uint32_t i)
{
    return &source->map->replicas[source->file->first_replica + i];
}

#endif
