/* Opening and closing files whose writes may be redirected. */
#ifndef PDLA_WRITE_OPEN_H
#define PDLA_WRITE_OPEN_H

#include "writer.h"

/* Writes of a file opened in this way may be redirected. */
bool writer_wanted(int amode);
/* On all ranks of `comm`, or a single one, after an open; `handle` NULL: it failed on this rank; `map` NULL: this one
 * has none. `target`: rank 0 has found that there are replicas for writes to it. */
void writer_open(struct file_handle *handle, mpi_handle comm, int rank, int ranks, const struct loaded_map *map,
                 struct opening *opening, bool target);
/* Before the close. Returns what MPI_File_close is to return if it succeeds. */
int writer_close(struct file_handle *handle);
/* There are open files in this process whose writes are redirected. */
bool writers_any(void);
/* What is redirected of this file's writes by this process is brought back, and no more are redirected: a literal says
 * why. Whether the process has it open. */
bool writers_settle(uint64_t device, uint64_t inode, const char *why);
/* The file becomes as long as this process has written it. True: it may have become another one. */
bool writers_lengthen(uint64_t device, uint64_t inode);
/* Before and after MPI_File_delete of the file at `path`: bytes of it that wait in replicas are deleted, too. *inode: 0
 * where there are none, or the file stays. */
void stub_deleting(const char *path, uint64_t *inode);
void stub_deleted(const char *path, uint64_t inode);
/* Before MPI or a session ends, and when the process is `over`: what it has redirected of files that are still open is
 * brought back. Makes no MPI call, and does not wait for other threads. Says on stderr what cannot be brought back. */
void stub_ending(bool over);

#endif
