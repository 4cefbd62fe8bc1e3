/* What is opened for one MPI file: its original, and components of its replicas. */
#ifndef PDLA_OPEN_H
#define PDLA_OPEN_H

#include "stub.h"

/* What an open notes from its beginning to its end: the program has the file open by other means, and is to find there
 * what it writes by MPI; and rank 0's lock of the journals of the file's writes, or -1. */
enum { NOTE_BESIDE, NOTE_LOCK };
/* On every rank, before a real MPI_File_open: what earlier writes left in replicas is brought home. Returns what
 * MPI_File_open is to return at once, 0 if it is to be made. */
int stub_opening(struct opening *);
/* After it, on every rank (the agreement is collective). Sets handle->intercepted when redirection is possible;
 * `handle` is NULL when the open failed on this rank. */
void stub_opened(struct opening *, struct file_handle *handle);
/* Or there is nothing to agree on. */
void stub_not_opened(struct opening *);
/* Before the real MPI_File_close; collective. Frees handle->intercepted. Returns what MPI_File_close is to return if it
 * succeeds. */
int stub_closing(struct file_handle *handle);

/* A descriptor of a component of a replica that this file uses. -1: it cannot be had; where the component is to blame
 * the replica is refused. RATIONALE: a rank opens what it reads from. Where each has a server of its own that is one of
 * many, and an open takes as long as a read where a metadata server is asked. */
int component_of(struct stub_file *, int replica, uint32_t number);

/* What is to be known of an original whose replicas are not read from: to mark them. NULL: it has none. */
struct stub_file *stub_known(const struct loaded_map *, const char *path);
void stub_forget(struct stub_file *);

#endif
