/* The mover: a thread of this process that brings home what the caches of its open files have, while
 * the program runs. It makes no MPI call, takes no signals, and yields to all other I/O. */
#ifndef PDLA_MOVER_H
#define PDLA_MOVER_H

#include "redirection.h"

/* Whether there is more to do for a file: not before the next write to a file; later, since it failed; in
 * a moment; or never, and the handle is gone. */
enum mover_next { MOVER_WAITS, MOVER_LATER, MOVER_AGAIN, MOVER_LEFT };

/* The thread is to call `move` with the handle when something was written. False: out of memory; the bytes go
 * home when the file is synchronized or closed. */
bool mover_watch(struct file_handle *, enum mover_next (*move)(struct file_handle *));
/* Before the file's close: returns when the thread has let go of it. */
void mover_leave(struct file_handle *);
/* Something was written to a watched file. Begins the thread at the first call. */
void mover_wake(void);
/* Whether the thread runs; begins it. */
bool mover_runs(void);
/* The program waits for what the thread does, until it says that it does not. */
void mover_hurry(bool waits);
/* Before MPI ends: returns when the thread has ended. */
void mover_end(void);

#endif
