/* Counters of redirected calls, and the exit report. */
#ifndef PDLA_REPORT_H
#define PDLA_REPORT_H

#include <stdio.h>

#include "replica_read.h"

/* The source of `file`, made at its first open. NULL: out of memory. */
struct source *report_source(const struct loaded_map *, const struct map_file *);
/* Notes that `rank` of a communicator opened an MPI file with the map at `path`. `refusal`: why the
 * map cannot be used, or NULL. Rank 0 of the program prints that once on standard error. `path`
 * NULL: nobody looked at a map. */
void report_opened(const struct loaded_map *map, const char *path, const char *refusal, int rank);
/* Prints one line on standard error with one write. Bytes that cannot be printed are escaped as by
 * pdla.units.shown(). */
void print_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts a call in a table of PASSED_REASONS. */
void add_passed(struct passed *, int64_t bytes, const char *why);
void report_passed(struct source *, int64_t bytes, const char *why);
/* Counts a redirected read that was compared with the original; `difference` may be empty. */
void report_compared(struct source *, int64_t bytes, const struct difference *difference);
void report_served(struct source *, int chosen, int64_t bytes, const struct served *, uint64_t nanoseconds);

void replica_refuse(struct source *, uint32_t replica, const char *why);
bool replica_refused(const struct source *, uint32_t replica);
/* JSON: a string, and the member "passed" with a table of reasons. */
void write_string(FILE *out, const char *string);
void write_passed(FILE *out, const struct passed *);
/* Writes the exit report, once, at the end of the process (MPI_Finalize or the destructor). */
void redirector_report(void);

#endif
