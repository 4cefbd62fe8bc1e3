/* What is opened for one MPI file: its original, and components of its replicas. */
#ifndef PDLA_OPEN_H
#define PDLA_OPEN_H

#include "redirection.h"

/* The notes of an open. NOTE_OPEN_BY_POSIX: the program also has the file open without MPI, and
 * must find there what it writes by MPI. NOTE_LOCK: rank 0's lock of the journals of the file's
 * writes, or -1. NOTE_LEASED: the struct leased of the file, or 0. NOTE_NATIVE: rank 0 redirects
 * nothing, so no rank does; the same on all ranks. */
enum { NOTE_OPEN_BY_POSIX, NOTE_LOCK, NOTE_LEASED, NOTE_NATIVE };
/* Before a real MPI_File_open, on every rank: writes back what earlier writes left in replicas.
 * Returns 0 if the call is to be made, otherwise what it is to return at once. */
int redirector_opening(struct opening *);
/* After the open, on every rank (the agreement is collective). Sets handle->intercepted if
 * redirection is possible. `handle` is NULL if the open failed on this rank. */
void redirector_opened(struct opening *, struct file_handle *handle);
/* Instead, if there is nothing to agree on. */
void redirector_not_opened(struct opening *);
/* Before the real MPI_File_close; collective. Frees handle->intercepted. Returns what
 * MPI_File_close is to return if it succeeds. */
int redirector_closing(struct file_handle *handle);

/* The descriptor of a component of a replica that this file uses. -1: there is none; if the
 * component is to blame, the replica is refused. RATIONALE: a rank opens only what it reads from.
 * Ranks may have a server each of many, and with a metadata server an open takes as long as a read.
 */
int component_of(struct reader *, int replica, uint32_t number);

/* Prepares a replica to be read from. False: out of memory. */
bool replica_prepare(const struct map_replica *, struct opened_replica *);

/* The reader of an original whose replicas are not read but may have to be marked as stale. NULL:
 * the file has no replicas. */
struct reader *reader_to_mark(const struct loaded_map *, const char *path);
void reader_free(struct reader *);

#endif
