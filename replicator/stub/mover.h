/* The mover: a thread of this process that brings home what the caches of its open files have, while
 * the program runs. It makes no MPI call, takes no signals, and yields to all other I/O. */
#ifndef PDLA_MOVER_H
#define PDLA_MOVER_H

#include "redirection.h"

/* The file is open and its cache flushes by itself. */
void mover_watch(struct file_handle *);
/* Before the file's close: returns when the thread has let go of it. */
void mover_leave(struct file_handle *);
/* Something was written to a watched file. Begins the thread at the first call. */
void mover_wake(void);
/* Before MPI ends: returns when the thread has ended. */
void mover_end(void);

#endif
