/* A file that was opened for reading only while its newest bytes lie in replicas under a lease. Its
 * reads take these bytes from there (ADR 27): nothing is written back before. Each rank has the same
 * merged ranges, which rank 0 read from the journals.
 *
 * The bytes in the replicas change no more: as long as any rank shares a byte of the lock of the
 * journals, nobody redirects writes to the replicas. Others may write the bytes back meanwhile. */
#ifndef PDLA_LEASED_OPEN_H
#define PDLA_LEASED_OPEN_H

#include "intent.h"
#include "leased_walk.h"
#include "redirection.h"

struct write_stats;

struct leased {
    struct leased_bytes bytes;
    bool cached;             /* in cache files; the map is this file's own (cached_index.c) */
    char *path;              /* of the original when it was opened */
    char *journals;          /* their directory */
    uint64_t device, inode;  /* of the original, as this process sees it, */
    int64_t size, mtime_ns;  /* and how it was when its bytes were known to wait */
    int fd;                  /* of the original; -1: it cannot be read here */
    struct progress progress;
    mpi_handle comm;         /* a duplicate of the file's; MPI_COMM_NULL for a single rank */
    int rank, ranks;
    bool agrees;             /* the ranks can agree in collective calls */
    struct opened_replica *replicas; /* [target->replica_count] */
    bool no_nowait;          /* struct runs */
    struct write_stats *written;
    pthread_rwlock_t reading; /* shared by calls that read the replicas */
    int lock;                /* -1: `ended` */
    bool ended;              /* atomic; the original has the bytes, and the replicas may change */
};

/* Before the open, on rank 0, which has locked the journals alone. Merges the ranges, and makes the
 * original as long as it was written. False: the bytes must be written back. *original: the file
 * afterwards. `published`: the map of replicas for reading; NULL: there is none. */
bool leased_prepare(const struct loaded_map *published, const struct loaded_map *, const struct map_target *,
                    const char *directory, const char *path, struct original_state *original,
                    struct range *ranges, uint64_t *count);
/* On each rank, while rank 0 has the lock. Takes the ranges over and, unless the result is NULL, the map of `cached`
 * bytes. NULL: this rank cannot read them. */
struct leased *leased_make(const struct loaded_map *, bool cached, const struct map_target *, const char *path,
                           const struct original_state *original, struct range *ranges, uint64_t count);
void leased_free(struct leased *);
/* After the open, on all ranks; `handle` NULL: it failed here. */
void leased_opened(struct leased *, struct file_handle *handle, mpi_handle comm, int rank, int ranks);

/* Whether the bytes in the replicas are still the newest ones. *size: that of the original. RATIONALE:
 * the bytes of a write-back that is under way are in the replicas, too. */
bool leased_holds(const struct leased *, int64_t *size);
/* The original gets the bytes, unless it has them already, and the replicas are read no more. By one
 * rank, or by all `together`. 0 or an errno; then reads by the MPI library would see older bytes. */
int leased_bring_home(struct leased *, bool together);
/* The descriptor of a component. -1: it cannot be used. */
int leased_component(struct leased *, uint32_t replica, uint32_t number);

#endif
