/* The files that the recorder makes: a log begins with a header and a window, which are mapped; what follows is appended. */
#ifndef PDLA_OUTPUT_H
#define PDLA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rawlog.h"

/* RATIONALE: a window that stays in a core's cache. Mapping the whole log piece by piece instead costs two to three times as
 * much: each page is cleared, faulted in and unmapped. */
enum { WINDOW_SIZE = 1 << 18, WINDOW_RECORDS = WINDOW_SIZE / RAWLOG_RECORD_SIZE };

enum { LOG_START_SIZE = RAWLOG_HEADER_SIZE + WINDOW_SIZE }; /* what is mapped */

struct output {
    int file;
    off_t end;
};

/* The header and the window of a new log, or NULL. */
void *output_map(int file);
/* False: it could not be written, or only in part. */
bool output_append(struct output *output, const void *data, size_t size);

#endif
