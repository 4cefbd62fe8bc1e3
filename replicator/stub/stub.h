/* What the stub knows about an original in this process (struct source) and about one open MPI file (struct stub_file). */
#ifndef PDLA_STUB_H
#define PDLA_STUB_H

#include <pthread.h>
#include <stdio.h>

#include "loadedmap.h"
#include "locate.h"
#include "read_coalescing.h"
#include "interpose.h"
#include "freshness.h"

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

/* What the ranks agreed on at a collective read or write, and for how many more it holds. */
struct agreement {
    bool redirects;
    unsigned views;      /* the handle's set_view calls at that time */
    int64_t span, calls; /* such calls that it was made for; left of them */
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

/* ---- what redirector.c hands to interposition ---------------------------------------------------------------------------- */

/* None raises an MPI error but those that return one, calls exit or abort, or leaves errno changed. */

/* What an open notes from its beginning to its end: the program has the file open by other means, and is to find there what it
 * writes by MPI; and rank 0's lock of the journals of the file's writes, or -1. */
enum { NOTE_BESIDE, NOTE_LOCK };
/* On every rank, before a real MPI_File_open: what earlier writes left in replicas is brought home. Returns what MPI_File_open
 * is to return at once, 0 if it is to be made. */
int stub_opening(struct opening *);
/* After it, on every rank (the agreement is collective). Sets handle->intercepted when redirection is possible; `handle` is NULL
 * when the open failed on this rank. */
void stub_opened(struct opening *, struct file_handle *handle);
/* Or there is nothing to agree on. */
void stub_not_opened(struct opening *);
/* Before the real MPI_File_close; collective. Frees handle->intercepted. Returns what MPI_File_close is to return if it
 * succeeds. */
int stub_closing(struct file_handle *handle);
/* A read (not shared), also through an opaque view or from an unknown position, since collective reads have to agree. True
 * when the stub served the whole call: *rc is then what the wrapper returns, and the status or request and the individual
 * file pointer have been set. False: nothing was touched, make the real call. Blocking collective reads agree on the answer
 * over the file's communicator. Nonblocking and split ones cannot, since they do not wait for the other ranks: the buffer is
 * filled, and `call->joins` set. */
bool stub_read(struct io_call *call, int *rc);
/* A write (not shared) on a handle that has a writer. True when it was redirected, or otherwise done: as for stub_read(), but
 * whoever joins does so whatever *rc is. */
bool stub_write(struct io_call *call, int *rc);
/* After MPI_File_set_view, on all ranks of a handle that has a writer. */
void stub_viewed(struct file_handle *handle);
/* Around every real writing call that MPI does not refuse. Nonblocking writes: begin only; stub_closing ends them. What begin
 * returns is not 0 when the call is not to be made, and then is its result. */
int stub_write_begin(struct file_handle *handle, const struct io_call *call);
void stub_write_end(struct file_handle *handle);
/* Before MPI_File_set_size, which `cuts` the file off, and MPI_File_preallocate, which does not; on all ranks. Returns what
 * stub_write_begin() does; stub_write_end() is the end. */
int stub_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);
/* Before a call that sees the contents of the file, on a handle that has a writer. Returns what stub_write_begin() does. With
 * STUB_TOGETHER (`call` may be NULL) all ranks make the call, and what any of them wrote is in the original afterwards. Else that is
 * what this rank wrote, and of the bytes that it reads what other ranks of its node did. STUB_FOR_GOOD: and no more writes are
 * redirected by this rank. */
enum stub_look { STUB_ALONE, STUB_TOGETHER, STUB_FOR_GOOD };
int stub_look(struct file_handle *handle, const struct io_call *call, enum stub_look how);
/* Before a call of one rank or of all `together` that sees the size of the file only, likewise: nothing is brought back, but the
 * original is made as long as it was written. */
int stub_look_at_size(struct file_handle *handle, bool together);
/* Before and after MPI_File_delete of the file at `path`: bytes of it that wait in replicas are deleted, too. *inode: 0 where
 * there are none, or the file stays. */
void stub_deleting(const char *path, uint64_t *inode);
void stub_deleted(const char *path, uint64_t inode);
/* A read that is not handed over (shared) and passed through: counted under `why`, a literal. */
void stub_passed(struct file_handle *handle, int64_t bytes, const char *why);
/* Before MPI or a session ends, and when the process is `over`: what it has redirected of files that are still open is brought back.
 * Makes no MPI call, and does not wait for other threads. Says on stderr what cannot be brought back. */
void stub_ending(bool over);
/* Once, at the end of the process (MPI_Finalize or the destructor): writes the exit report. */
void stub_report(void);

/* ---- request.c: a call as a request, and ending it in the place of the MPI library --------------------------------------- */

struct request;
/* NULL: `request` is what the call reads or writes; else why that is not known or not to be redirected, a literal. */
const char *request_of(const struct io_call *, struct request *);
/* *memory: how the call's buffer is laid out, to be released; NULL: contiguous. False when that is not known. */
bool memory_of(const struct io_call *, struct typemap **memory);
/* NULL: this MPI can be told how many bytes the call moved; else why not. */
const char *result_fits(const struct io_call *);
/* Sets the status or the request, and the individual file pointer, as if MPI had done all of the call. False when that
 * could not be done; then nothing was changed. */
bool result_give(const struct io_call *);
/* A collective call's request by the MPI library's independent call, after the ranks have agreed that nobody makes the
 * collective one. Returns what that returned. */
int make_alone(const struct io_call *);

/* ---- read_plan.c: what a request would read ---------------------------------------------------------------------------------- */

/* A request as a stream of bytes of the original. */
struct request {
    const struct typemap *view;
    int64_t displacement, position, bytes;
};

/* Walks a request as pieces: contiguous in the original and, where covered, in the replica. */
struct walk {
    const struct loaded_map *map;
    const struct map_replica *replica; /* NULL: nothing is covered */
    struct typemap_cursor cursor;
    int64_t left;         /* bytes of the request that the cursor has not passed */
    struct extent extent; /* what is left of the cursor's last extent */
    struct piece found;   /* looked-ahead covered piece, length 0 when there is none */
    uint64_t extents;     /* taken from the cursor */
};

void walk_start(struct walk *, const struct loaded_map *, const struct map_replica *, const struct request *);
/* The next piece in the order of the stream; replica_offset -1 where not covered. False at the end. */
bool walk_next(struct walk *, struct piece *);

/* Chooses among the opened and valid replicas: its index in the file's, or -1, and then *why says what was wrong with the best of them.
 * *covered: bytes of the request that the choice holds, estimated from its beginning. */
int plan_choose(struct stub_file *, const struct request *, int64_t *covered, const char **why);

/* Whether its places in the file are numbers. To be asked first. */
bool request_fits(const struct request *);

/* The last byte of a request in the original. */
int64_t request_last(const struct request *);

/* Whether a write of these bytes can touch the replica. */
bool request_touches(const struct loaded_map *, const struct map_replica *, const struct request *);

/* ---- open.c: components ------------------------------------------------------------------------------------------------- */

/* A descriptor of a component of a replica that this file uses. -1: it cannot be had; where the component is to blame the replica
 * is refused. RATIONALE: a rank opens what it reads from. Where each has a server of its own that is one of many, and an open takes
 * as long as a read where a metadata server is asked. */
int component_of(struct stub_file *, int replica, uint32_t number);

/* What is to be known of an original whose replicas are not read from: to mark them. NULL: it has none. */
struct stub_file *stub_known(const struct loaded_map *, const char *path);
void stub_forget(struct stub_file *);

/* ---- replica_read.c: reading it ----------------------------------------------------------------------------------------------- */

struct served {
    struct tally replica, original;
};

/* Reads a request from replica `chosen` (-1: none) and, where that has nothing, from the original of `size` bytes, into
 * `buffer`, laid out as `memory` (NULL: contiguous). False when that could not be done; the buffer's contents are then
 * undefined, and the replica is refused if it is to blame. */
bool replica_read(struct stub_file *, int chosen, const struct request *, int64_t size, char *buffer,
                 const struct typemap *memory, struct served *);

/* ---- read_verification.c: comparing what a replica has with the original ------------------------------------------------------------- */

/* Redirected reads are to be compared (PDLA_VERIFY=1). */
bool compare_wanted(void);
/* Reads a request from replica `chosen` and from the original. NULL: the same; else why it is to be left to the MPI library. A
 * difference is reported, and the replica refused from then on. */
const char *compare_read(struct stub_file *, const char *call, int chosen, const struct request *, int64_t size);

/* ---- staleness.c: the marks of writes to the original -------------------------------------------------------------------------- */

/* Around a write, or (`call` of no bytes) bringing back: replicas that it touches become stale, all of them where its place is
 * not known, and the others learn the original's new identity. */
void replicas_write_begin(struct file_handle *, const struct io_call *);
/* Replicas that have bytes of [low, high) become stale. */
void replicas_mark(struct file_handle *, int64_t low, int64_t high);
void replicas_write_end(struct file_handle *);

/* ---- collective_consensus.c: deciding together ----------------------------------------------------------------------------------------- */

/* Reductions of 8-byte words, broadcasts from rank 0, and gathering bytes, as many of every rank (`counts` NULL) or not;
 * MPI_COMM_NULL is a single rank. False when MPI failed. */
bool agree_reduce(const void *mine, void *all, int words, mpi_handle op, mpi_handle comm);
bool agree_broadcast(void *data, int bytes, mpi_handle comm);
bool agree_gather(const void *mine, int bytes, void *all, const int *counts, const int *places, mpi_handle comm);

/* For collective reads and writes, on all ranks alike. Whether the last agreement is good for this call, which then counts. It
 * is not after a set_view, nor for reads of a file that ranks on several nodes may write to. */
bool agreement_holds(struct agreement *, unsigned views);
/* Whether all ranks redirect this collective call, because none has an objection (a literal; NULL: none): those that do not
 * make the library's collective call either, but read or write by themselves. With `lasting` it holds the longer the more
 * often the answer was the same, but not beyond the calls that any rank has left before the end of the file: what is read
 * there is for the MPI library to say, by all ranks together. */
bool agreement_make(struct agreement *, mpi_handle comm, bool lasting, unsigned views, const char *objection,
                    int64_t calls_left);
/* Why a collective call is not redirected, which was agreed on now or (`held`) before: this rank's own reason, where it has one. */
const char *agreement_why(bool held, const char *objection);

/* ---- report.c: counters and the exit report ----------------------------------------------------------------------------- */

/* The source of `file`, made at its first open. NULL: out of memory. */
struct source *report_source(const struct loaded_map *, const struct map_file *);
/* An MPI file was opened by `rank` of its communicator, with the map at `path`; `refusal` says why there is none, NULL when `map`
 * was used. Rank 0 of the program says that once on standard error. */
void report_opened(const struct loaded_map *map, const char *path, const char *refusal, int rank);
/* One line on standard error, written at once. What cannot be printed is escaped, as pdla.units.shown() does. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts a call in a table of PASSED_REASONS. */
void add_passed(struct passed *, int64_t bytes, const char *why);
void report_passed(struct source *, int64_t bytes, const char *why);
/* A redirected read was compared with the original; `difference` may have none. */
void report_compared(struct source *, int64_t bytes, const struct difference *difference);
void report_served(struct source *, int chosen, int64_t bytes, const struct served *, uint64_t nanoseconds);

void replica_refuse(struct source *, uint32_t replica, const char *why);
bool replica_refused(const struct source *, uint32_t replica);
/* JSON: a string, and the member "passed" with a table of reasons. */
void write_string(FILE *out, const char *string);
void write_passed(FILE *out, const struct passed *);

#endif
