/* The recorder (PDLA_TRACE): an observer of the calls on MPI files. */
#ifndef PDLA_RECORDER_H
#define PDLA_RECORDER_H

#include "interpose.h"
#include "rawlog.h"

/* ---- clocks.c ---------------------------------------------------------------------------------------------------- */

/* At the end of MPI_Init, on all ranks: compares the clocks of their nodes. */
void clocks_align(void);
/* What is known of this process's clock. */
struct rawlog_clock clocks_own(void);

/* ---- recorder.c -------------------------------------------------------------------------------------------------- */

/* True: PDLA_TRACE is set and the log is open. It is opened at MPI_Init or at the first use of a
 * file. */
bool recorder_on(void);
/* After MPI_Init. */
void recorder_start(void);
/* At MPI_Finalize or MPI_Session_finalize. */
void recorder_finalize(void);
/* Whether calls on the file of this absolute path are recorded. PDLA_TRACE_INCLUDE and
 * PDLA_TRACE_EXCLUDE, globs one a line, may exclude it. */
bool recorder_wants(const char *path);
/* Names a file that was opened on `comm`. Returns its id for the records; 0 when not recording. */
uint32_t recorder_file(const char *path, int amode, mpi_handle comm);
/* Names a file that was deleted. 0: not recording. */
uint32_t recorder_deleted_file(const char *path);
/* Names a file that was not opened through MPI. 0: not recording, or a signal handler is in the
 * way. */
struct stat;
uint32_t recorder_posix_file(const char *path, const struct stat *status);
/* Names a view. Returns its id for the records; 0 when not recording, for the plain view, and for
 * one that could not be flattened. */
uint32_t recorder_view(const struct file_view *view);
/* Appends a copy of `record`. `seq` does not count, and it ends no earlier than it starts. */
struct recorded {
    uint64_t number; /* its `seq`; 0: it was dropped */
    uint64_t place;  /* of a pending operation, for recorder_end(); otherwise 0 */
};
struct recorded recorder_append(const struct rawlog_record *record);
/* Ends the operation whose record is at `place`, with that error class; `moved` < 0: not known.
 * Returns the number of the record, or 0. */
uint64_t recorder_end(uint64_t place, int64_t moved, int error);
/* Counts a call that is not recorded. */
void recorder_passed(enum call call);

/* ---- posix.c: POSIX calls ---------------------------------------------------------------------------------------- */

/* They are to be recorded. */
bool posix_wanted(void);
/* Their log is this new file. */
struct output;
void posix_start(const struct output *made);
/* The POSIX calls in the MPI call that the thread is in were made for the recorded operation. */
void posix_link(uint64_t operation);
/* Around the real MPI_File_open: what it opens is of interest. `id` is the recorder's; 0: the file
 * is not recorded. */
void posix_opening(const char *name);
void posix_opened(const char *path, uint32_t id);

/* ---- learning.c -------------------------------------------------------------------------------------------------- */

/* Heeds PDLA_LEARN, when the library is loaded, before anything else looks at the environment. */
void learn_unasked(void);

#endif
