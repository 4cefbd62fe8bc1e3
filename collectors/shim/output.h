/* The recorder's files. A log begins with a header and a window, which are mapped; what follows is
 * appended. */
#ifndef PDLA_OUTPUT_H
#define PDLA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rawlog.h"

/* RATIONALE: the window stays in a core's cache. To map the whole log piece by piece costs two to
 * three times as much, since each page is cleared, faulted in and unmapped. */
enum { WINDOW_RECORDS = RAWLOG_WINDOW_SIZE / RAWLOG_RECORD_SIZE };

enum { LOG_START_SIZE = RAWLOG_HEADER_SIZE + RAWLOG_WINDOW_SIZE }; /* the mapped bytes */

struct output {
    int file;
    dev_t device;
    ino_t inode;
    off_t end;
    char *path;
};

/* Makes the file. False, with errno: not possible, or it exists already. */
bool output_create(struct output *output, const char *path);
/* Makes sure that the descriptor is of this file, and opens the file again if the program closed
 * it. */
bool output_keep(struct output *output);
/* The header and the window of a new log, or NULL. */
void *output_map(struct output *output);
/* False: it was not written, or only in part. */
bool output_append(struct output *output, const void *data, size_t size);

#endif
