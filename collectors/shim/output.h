/* The files that the recorder makes: a log begins with a header and a window, which are mapped; what follows is
 * appended. */
#ifndef PDLA_OUTPUT_H
#define PDLA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rawlog.h"

/* RATIONALE: a window that stays in a core's cache. Mapping the whole log piece by piece instead costs two to three
 * times as much: each page is cleared, faulted in and unmapped. */
enum { WINDOW_SIZE = 1 << 18, WINDOW_RECORDS = WINDOW_SIZE / RAWLOG_RECORD_SIZE };

enum { LOG_START_SIZE = RAWLOG_HEADER_SIZE + WINDOW_SIZE }; /* what is mapped */

struct output {
    int file;
    dev_t device;
    ino_t inode;
    off_t end;
    char *path;
};

/* Makes the file; false, with errno, when it cannot or there is one. */
bool output_create(struct output *output, const char *path);
/* The descriptor means the file, opened again if the program closed it. */
bool output_keep(struct output *output);
/* The header and the window of a new log, or NULL. */
void *output_map(struct output *output);
/* False: it could not be written, or only in part. */
bool output_append(struct output *output, const void *data, size_t size);

#endif
