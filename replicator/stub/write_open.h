/* Opening and closing of files whose writes may be redirected. */
#ifndef PDLA_WRITE_OPEN_H
#define PDLA_WRITE_OPEN_H

#include "writer.h"

/* Writes to the file at `path`, opened in this mode, may be redirected. */
bool writer_wanted(const char *path, int amode);
/* Whether they have a place, and its directory of journals: that of the target for them, or of a
 * cache of the file at `path`. */
bool writer_place(const struct loaded_map *, const char *path, char journals[4096]);
/* After an open, on all ranks of `comm` or on a single one. `handle` NULL: the open failed on this
 * rank; `map` NULL: this rank has no map. `target`: rank 0 has found replicas for writes to the
 * file. */
void writer_open(struct file_handle *handle, mpi_handle comm, int rank, int ranks, const struct loaded_map *map,
                 struct opening *opening, bool target);
/* Before the close. Returns what MPI_File_close is to return if it succeeds. */
int writer_close(struct file_handle *handle);
/* Ends the writer of a file whose close was deferred, without the other ranks. On rank 0 these have
 * ended theirs. */
void writer_end(struct writer *);
/* Whether this process has open files with redirected writes. */
bool writers_any(void);
/* Writes back what this process has redirected of the file, and redirects no more of its writes:
 * `why` is a literal. Whether the process has the file open. */
bool writers_end_redirection(uint64_t device, uint64_t inode, const char *why);
/* Makes the file as long as this process has written it. True: its length may have changed. */
bool writers_extend_original(uint64_t device, uint64_t inode);
/* Before MPI or a session ends, and when the process is `over`: writes back what the process has
 * redirected of files that are still open. Makes no MPI call and does not wait for other threads.
 * Prints on standard error which files it could not write back. `interrupts`: it writes nothing back. */
void redirector_ending(bool over, bool interrupts);

#endif
