/* Redirected writes (PDLA_WRITES=close or lease): a write that a write replica of its file covers goes there, in the order of
 * the accesses, and is brought back to the original in the original's order before anybody is to see it.
 *
 * One rule keeps this right: what is in the journal of a process is newer than the original, and that process brings it back
 * before it does anything else with these bytes. All ranks bring back together where MPI makes the bytes visible to the others:
 * MPI_File_sync and MPI_File_close, collective reads, and what changes the file's size or mode.
 */
#ifndef PDLA_WRITER_H
#define PDLA_WRITER_H

#include "stale_journals.h"
#include "stub.h"

enum { MOST_REPLICAS = 64 /* of a target; more are not used */ };

/* Counters of a target, for the exit report. */
struct write_stats {
    const struct loaded_map *map;
    const struct map_target *target;
    pthread_mutex_t lock;  /* of all that follows */
    const char *refused;   /* why the file's writes were not redirected when it was last opened; a literal or NULL */
    uint64_t calls, bytes, requests;       /* redirected, and contiguous accesses to components for them */
    uint64_t back_bytes, back_requests;    /* brought back, and contiguous writes to the original for it */
    uint64_t earlier_bytes, earlier_requests, earlier_ns; /* likewise of what an earlier run had left, and how long that took */
    uint64_t left;                         /* bytes that the last close of the file left, */
    char *left_in;                         /* in this journal; NULL: none */
    char *kept;                            /* the journal that the last close kept, though it was empty; NULL: none */
    uint64_t neighbours;                   /* reads of bytes that other ranks of the node had in replicas */
    int error;                             /* errno of the last failure to bring back */
    struct passed passed[PASSED_REASONS];
    struct write_stats *next;
};

struct stub_writer {
    const struct loaded_map *map;
    const struct map_target *target;
    struct write_stats *written;
    struct file_handle *handle; /* whose writer it is */
    bool lease;
    const char *why_not;  /* atomic; this process redirects no more writes: a literal */
    bool again;           /* this process has the file open in another way, too */
    int fd;               /* of the original */
    uint64_t device, inode;
    int lock;             /* descriptor of the journals' lock file, locked */
    mpi_handle comm;      /* a duplicate, MPI_COMM_NULL for a single rank */
    int rank, ranks;
    struct agreement agreement;
    bool joins;           /* all ranks make nonblocking and split collective writes apart, and join the library's with nothing */
    int **components;     /* [target->replica_count][servers] descriptors; NULL: not used */
    pthread_mutex_t mutex; /* of all that follows: a call that another thread makes waits until bytes are brought back */
    struct journal journal;
    struct neighbours *neighbours; /* NULL: there are no other ranks on the node */
    struct intent *intent; /* of who brings home what others' journals tell, and has none of its own; NULL: the journal's is meant */
    int64_t low, high;    /* what the journal tells of is in these bytes of the original */
    int error;            /* errno of the first failure to bring back, after which it is not tried any more */
    struct stub_writer *next; /* of this process */
};

static inline const struct map_replica *target_replica(const struct stub_writer *writer, uint32_t i)
{
    return &writer->map->replicas[writer->target->first_replica + i];
}

/* ---- writer.c ----------------------------------------------------------------------------------------------------------- */

/* What MPI is to return for an errno, after its error handler; 0 for 0. */
int writer_raise(const struct file_handle *handle, int error);
/* This process redirects no more of the handle's writes: a literal says why. */
void writer_stop(struct stub_writer *, const char *why);
/* What this process has in its journal goes to the original; with the mutex held. 0 or an errno: then it stays in the journal,
 * for pdla sync. */
int writer_bring_back(struct file_handle *handle);
/* Before and after a write to the original by the MPI library. Not 0: stub_write_begin() is to return that. */
int writer_original_begin(struct file_handle *handle, const struct io_call *call);
/* Likewise, before a call that changes the file's size; with all ranks. */
int writer_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);
void writer_original_end(struct file_handle *handle);

/* ---- write_open.c ----------------------------------------------------------------------------------------------------------- */

/* Writes of a file opened in this way may be redirected. */
bool writer_wanted(int amode);
/* On all ranks of `comm`, or a single one, after an open; `handle` NULL: it failed on this rank; `map` NULL: this one has none.
 * `target`: rank 0 has found that there are replicas for writes to it. */
void writer_open(struct file_handle *handle, mpi_handle comm, int rank, int ranks, const struct loaded_map *map,
                 struct opening *opening, bool target);
/* Before the close. Returns what MPI_File_close is to return if it succeeds. */
int writer_close(struct file_handle *handle);
/* There are open files in this process whose writes are redirected. */
bool writers_any(void);
/* What is redirected of this file's writes by this process is brought back, and no more are redirected: a literal says why. Whether
 * the process has it open. */
bool writers_settle(uint64_t device, uint64_t inode, const char *why);
/* The file becomes as long as this process has written it. True: it may have become another one. */
bool writers_lengthen(uint64_t device, uint64_t inode);

/* ---- posix_coherence.c ------------------------------------------------------------------------------------------------------------ */

/* The process has the file open that MPI knows by this name. */
bool coherence_open(const char *name);

/* ---- writeback.c -------------------------------------------------------------------------------------------------------- */

/* What a journal tells of, in bytes [low, high) of the original, goes there. 0 or an errno, and then it is still in the journal. */
int bring_back_journal(struct file_handle *handle, struct journal *journal, int64_t low, int64_t high);
/* What this process has in its journal, likewise. */
int bring_back_own(struct file_handle *handle);
/* The original becomes as long as this process has written it; with the mutex held. 0 or an errno. */
int lengthen(struct file_handle *handle);
/* Up to byte `high`, which a replica has. */
int lengthen_to(struct file_handle *handle, int64_t high);
/* What any rank has, by all of them. */
int bring_back_together(struct file_handle *handle);
/* What journals told that were left; with all ranks. */
int bring_back_left(struct file_handle *handle, struct range *ranges, uint64_t count);
/* Makes what is in the journals durable where it is. 0 or an errno, the same on all ranks. */
int keep_together(struct file_handle *handle);
/* The worst error of any rank. */
int agree_error(const struct stub_writer *, int error);

/* ---- write_stats.c ---------------------------------------------------------------------------------------------------------- */

struct write_stats *write_stats_of(const struct loaded_map *, const struct map_target *); /* NULL: out of memory */
void write_stats_passed(struct write_stats *, int64_t bytes, const char *why);
/* Closing the file left so many bytes in the journal at `path`. */
void write_stats_left(struct write_stats *, uint64_t bytes, const char *path);
/* The close kept an empty journal. What that tells of the original is newer than what the one before told. */
void write_stats_kept(struct write_stats *, const char *path);
/* How many of these still wait. */
uint64_t write_stats_waits(struct write_stats *);
/* What was brought back since `before` an earlier run had left. */
void write_stats_earlier(struct write_stats *, const struct write_stats *before, int64_t nanoseconds);
void write_stats_neighbours(struct write_stats *);
void write_stats_refuse(struct write_stats *, const char *why); /* when the file is opened; NULL: its writes are redirected */
void write_stats_report(FILE *out);

#endif
