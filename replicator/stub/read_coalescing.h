/* Reads of one request, gathered by descriptor into calls as large as possible. */
#ifndef PDLA_READ_COALESCING_H
#define PDLA_READ_COALESCING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct loaded_map;

struct tally {
    uint64_t requests, contiguous, bytes;
};

/* Reads of a descriptor that continue others or leave small holes. All members are atomic, and
 * hints. */
struct stream {
    int64_t end;   /* of the last read, or -1 */
    int64_t ahead; /* end of what the kernel was asked to fetch */
    int holes;     /* in a row */
};

/* The latest reads of a descriptor. RATIONALE: two streams, since a rank may read its own bytes and
 * those of another rank in turns. */
struct progress {
    int64_t end;        /* of the previous one, or -1 */
    struct stream streams[2];
    int latest;
    bool abandoned;     /* atomic; an abandoned call uses the descriptor, which is not to be closed */
    const char *remote; /* atomic; the path of a component whose storage may not answer (storage.h), or NULL */
};

/* A read that still grows: adjacent bytes of one descriptor, and the places in memory for them. */
struct run {
    int fd;
    int64_t start, length;
    bool fetched;        /* the kernel was asked to fetch it */
    int parts, capacity;
    struct iovec *memory, single; /* `memory` is `single`, NULL or allocated */
    struct progress *progress;
    struct tally *tally;
};

/* The runs of one request: one for each component of the replica, and the last for the original. */
struct runs {
    const struct loaded_map *map;
    uint32_t components, gathered; /* all; those that have something to read */
    struct run *each;
    bool *no_nowait;                   /* their file system does not know RWF_NOWAIT; atomic */
};

/* FAILED_ELSEWHERE: nothing is wrong with the file. */
enum outcome { DONE, FAILED, FAILED_ELSEWHERE };

/* Adds bytes to be read into `memory`. If they do not continue the run, what it had gathered is
 * read first. */
enum outcome run_add(struct runs *, struct run *, int64_t offset, int64_t length, char *memory);
/* Reads what a run has gathered: one request, in as many calls as it takes. */
enum outcome run_flush(struct runs *, struct run *);
void run_free(struct run *);

#endif
