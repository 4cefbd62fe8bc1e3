/* Counters of redirected calls, and the exit report. */
#ifndef PDLA_REPORT_H
#define PDLA_REPORT_H

#include <stdio.h>

#include "replica_read.h"

/* The source of `file`, made at its first open. NULL: out of memory. */
struct source *report_source(const struct loaded_map *, const struct map_file *);
/* An MPI file was opened by `rank` of its communicator, with the map at `path`; `refusal` says why there is none, NULL
 * when `map` was used. Rank 0 of the program says that once on standard error. */
void report_opened(const struct loaded_map *map, const char *path, const char *refusal, int rank);
/* One line on standard error, written at once. What cannot be printed is escaped, as pdla.units.shown() does. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts a call in a table of PASSED_REASONS. */
void add_passed(struct passed *, int64_t bytes, const char *why);
void report_passed(struct source *, int64_t bytes, const char *why);
/* A redirected read was compared with the original; `difference` may have none. */
void report_compared(struct source *, int64_t bytes, const struct difference *difference);
void report_served(struct source *, int chosen, int64_t bytes, const struct served *, uint64_t nanoseconds);

void replica_refuse(struct source *, uint32_t replica, const char *why);
bool replica_refused(const struct source *, uint32_t replica);
/* JSON: a string, and the member "passed" with a table of reasons. */
void write_string(FILE *out, const char *string);
void write_passed(FILE *out, const struct passed *);
/* Once, at the end of the process (MPI_Finalize or the destructor): writes the exit report. */
void stub_report(void);

#endif
