/* Files that the program has closed before their bytes were home (the hint deferred_close). Their
 * writers stay, and the movers bring the bytes home. Until all ranks' bytes are there, rank 0 keeps
 * the lock of the journals, as in any other close, so whoever opens the file waits. */
#ifndef PDLA_DEFERRED_CLOSE_H
#define PDLA_DEFERRED_CLOSE_H

#include "cache_hints.h"
#include "mover.h"
#include "writer.h"

struct deferred_close;

/* What the close of a writer needs in order to be deferred, made at its open. `handle`: the program's
 * handle of the file. NULL: the close is not to be deferred, or memory is used up. */
struct deferred_close *deferred_close_make(struct writer *, const struct file_handle *handle, uint32_t guard);
void deferred_close_free(struct deferred_close *);
/* The handle for the mover, which the program does not free, and what the mover does with it. */
struct file_handle *deferred_close_handle(struct deferred_close *);
enum mover_next deferred_close_move(struct file_handle *);
/* The program has closed the file on all ranks. */
void deferred_close_begin(struct deferred_close *);
/* Waits until files that this process has closed are home: the one at `path`, and all with the same
 * `guard` (0: none). `path` NULL: all files. */
void deferred_close_await(const char *path, uint32_t guard);
/* The errno of a deferred close that failed, once; 0: there is none. The next call of MPI on a file says it. */
int deferred_close_error(void);
#define DEFERRED_CLOSE_FAILED "a file that was closed before could not be brought home"

#endif
