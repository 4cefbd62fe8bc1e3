/* Reads of one request, gathered by descriptor into calls as large as possible. */
#ifndef PDLA_READ_COALESCING_H
#define PDLA_READ_COALESCING_H

#include <stdbool.h>
#include <stdint.h>

struct iovec;
struct loaded_map;

struct tally {
    uint64_t requests, contiguous, bytes;
};

/* Reads of a descriptor that go on where others ended, or leave small holes. All of it is atomic, and hints. */
struct stream {
    int64_t end;   /* of the last one, or -1 */
    int64_t ahead; /* of what the kernel was asked for */
    int holes;     /* in a row */
};

/* How far the reads of a descriptor have come: a rank may read its own bytes and a neighbour's in turns. */
struct progress {
    int64_t end; /* of the previous one, or -1 */
    struct stream streams[2];
    int latest;
    bool left;          /* atomic; a call that was left behind has the descriptor, and it is not closed */
    const char *remote; /* atomic; the path of a component whose storage may not answer (storage.h), or NULL */
};

/* A read that still grows: bytes that are adjacent in one descriptor, with the places in memory where they go. */
struct run {
    int fd;
    int64_t start, length;
    bool fetched;        /* the kernel was asked to fetch it */
    int parts, capacity;
    struct iovec *memory;
    struct progress *progress;
    struct tally *tally;
};

/* The runs of one request: one for each component of the replica, and the last for the original. */
struct runs {
    const struct loaded_map *map;
    uint32_t components, gathered; /* all; those that have something to read */
    struct run *each;
    bool *blind;                   /* their file system cannot say what is in memory; atomic */
};

/* OURS: nothing is wrong with the file. */
enum outcome { DONE, FAILED, OURS };

/* Adds bytes to be read into `memory`; what does not follow on from what had gathered is read then. */
enum outcome run_add(struct runs *, struct run *, int64_t offset, int64_t length, char *memory);
/* Reads what has gathered in a run, one request in as many calls as it takes. */
enum outcome run_flush(struct runs *, struct run *);

#endif
