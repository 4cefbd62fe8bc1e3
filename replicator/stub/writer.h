/* Redirected writes (PDLA_WRITES=close or lease). A write that a write replica of its file covers
 * goes there, in the order of the accesses. Write-back copies it to the original, in the original's
 * order, before anybody is to see it.
 *
 * One rule keeps this right: what the journal of a process lists is newer than the original, and
 * that process writes it back before it does anything else with these bytes. All ranks make the
 * write-back together where MPI makes bytes visible to other ranks: in MPI_File_sync and
 * MPI_File_close, in collective reads, and before the file's size or mode changes. */
#ifndef PDLA_WRITER_H
#define PDLA_WRITER_H

#include "stale_journals.h"
#include "redirection.h"

enum { MOST_REPLICAS = 64 /* of a target; more are not used */ };

struct writer {
    const struct loaded_map *map;
    const struct map_target *target; /* of a cache: one without replicas */
    char *path;           /* of the original */
    char *journals;       /* their directory */
    struct cache *cache;  /* where writes go; NULL: to the replicas */
    bool watched;         /* of a cache or a lease: the mover looks after it */
    struct exchange *exchange; /* of a cache on several nodes; NULL: pieces stay where they are written */
    struct deferred_close *deferred; /* of a cache; NULL: the close waits until the bytes are home */
    struct cache_gain *gain; /* of a cache; NULL: what it gains is not measured */
    bool straight;        /* of a cache: on all ranks, collective writes go to the original, since it gains nothing */
    bool judges;          /* of a cache: each call for itself, by S4D-Cache, iBridge or LiU */
    bool divides;         /* of a cache: calls into what it takes (fragments, by iBridge; heads, by LiU) and the rest */
    bool coherent;        /* of a cache: a rank sees at once what others of its node wrote */
    int64_t request;      /* of a cache: bytes that are written to the original at a time, at most; 0: no limit */
    struct write_stats *written;
    struct file_handle *handle; /* of the open file */
    bool lease;
    int64_t share;        /* of a lease: this rank's of the replicas' bytes */
    const char *why_not;  /* atomic; why this process redirects no more writes: a literal */
    bool opened_again;    /* this process has the file open in another way, too */
    int fd;               /* of the original */
    uint64_t device, inode;
    int lock;             /* descriptor of the journals' lock file, locked */
    mpi_handle comm;      /* a duplicate, MPI_COMM_NULL for a single rank */
    int rank, ranks;
    struct agreement agreement;
    bool joins;           /* nonblocking and split collectives: each rank writes alone, then joins with no bytes */
    bool library_wrote;   /* of several ranks: in this view the MPI library made a blocking collective write */
    int **components;     /* [target->replica_count][servers] descriptors; NULL: not used */
    pthread_mutex_t mutex; /* of all that follows: calls of other threads wait for a write-back */
    bool passing;         /* a collective write that is measured was left to the MPI library */
    struct journal journal;
    struct peers *peers;  /* NULL: there are no other ranks on the node */
    struct intent *intent; /* in recovery, which has no journal of its own; NULL: the journal serves instead */
    int64_t low, high;    /* bytes of the original that contain all entries of the journal */
    int64_t ahead;        /* of a lease: bytes that were written since the last ones were durable */
    int error;            /* errno of the first failed write-back; there is no second attempt */
    struct writer *next;  /* of this process */
};

static inline const struct map_replica *target_replica(const struct writer *writer, uint32_t i)
{
    return &writer->map->replicas[writer->target->first_replica + i];
}

/* A write (not shared) on a handle that has a writer. True: it was redirected or otherwise done, as
 * for redirector_read(). A call that joins does so whatever *rc is. */
bool redirector_write(struct io_call *call, int *rc);
/* An independent read on a handle that has a writer. True: it was served, from this process's cache. */
bool redirector_read_cached(struct io_call *call);
/* After MPI_File_set_view, on all ranks of a handle that has a writer. */
void redirector_viewed(struct file_handle *handle);
/* Before a call that sees the contents of the file, on a handle that has a writer. VISIBLE_BY_ALL:
 * all ranks make the call (`call` may be NULL), and afterwards the original has what any of them
 * wrote. Otherwise it has what this rank wrote and, of the bytes that this rank reads, what other
 * ranks of its node wrote. VISIBLE_FOR_GOOD: this rank also redirects no more writes. Returns what
 * redirector_write_begin() does. */
enum make_visible { VISIBLE_BY_ONE, VISIBLE_BY_ALL, VISIBLE_FOR_GOOD };
int make_visible(struct file_handle *handle, const struct io_call *call, enum make_visible how);
/* Before a call of one rank, or of all `together`, that sees only the size of the file. Nothing is
 * written back, but the original becomes as long as it was written. */
int make_size_visible(struct file_handle *handle, bool together);

/* What MPI is to return for an errno, after calling its error handler; 0 for 0. */
int writer_raise(const struct file_handle *handle, int error);
/* This process redirects no more of the handle's writes; `why` is a literal. */
void writer_stop(struct writer *, const char *why);
/* Writes back what the journal lists, if it is full. 0 or an errno. */
int writer_make_room(struct file_handle *);
/* Writes back what this process has in its journal. The mutex is held. 0 or an errno; after an
 * error it stays in the journal, for pdla sync. */
int writer_write_back(struct file_handle *handle);
/* To be called around a write to the original by the MPI library. If not 0,
 * redirector_write_begin() returns the result. */
int writer_original_begin(struct file_handle *handle, const struct io_call *call);
/* Likewise, before a call that changes the file's size; with all ranks. */
int writer_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);
void writer_original_end(struct file_handle *handle);
/* Where all ranks are: they exchange how long the home servers take. */
void writer_exchange_service_times(struct file_handle *handle);

#endif
