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

/* A write (not shared) on a handle that has a writer. True when it was redirected, or otherwise done: as for
 * stub_read(), but whoever joins does so whatever *rc is. */
bool stub_write(struct io_call *call, int *rc);
/* After MPI_File_set_view, on all ranks of a handle that has a writer. */
void stub_viewed(struct file_handle *handle);
/* Before a call that sees the contents of the file, on a handle that has a writer. Returns what stub_write_begin()
 * does. With STUB_TOGETHER (`call` may be NULL) all ranks make the call, and what any of them wrote is in the original
 * afterwards. Else that is what this rank wrote, and of the bytes that it reads what other ranks of its node did.
 * STUB_FOR_GOOD: and no more writes are redirected by this rank. */
enum stub_look { STUB_ALONE, STUB_TOGETHER, STUB_FOR_GOOD };
int stub_look(struct file_handle *handle, const struct io_call *call, enum stub_look how);
/* Before a call of one rank or of all `together` that sees the size of the file only, likewise: nothing is brought
 * back, but the original is made as long as it was written. */
int stub_look_at_size(struct file_handle *handle, bool together);

/* What MPI is to return for an errno, after its error handler; 0 for 0. */
int writer_raise(const struct file_handle *handle, int error);
/* This process redirects no more of the handle's writes: a literal says why. */
void writer_stop(struct stub_writer *, const char *why);
/* What this process has in its journal goes to the original; with the mutex held. 0 or an errno: then it stays in the
 * journal, for pdla sync. */
int writer_bring_back(struct file_handle *handle);
/* Before and after a write to the original by the MPI library. Not 0: stub_write_begin() is to return that. */
int writer_original_begin(struct file_handle *handle, const struct io_call *call);
/* Likewise, before a call that changes the file's size; with all ranks. */
int writer_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts);
void writer_original_end(struct file_handle *handle);

#endif
