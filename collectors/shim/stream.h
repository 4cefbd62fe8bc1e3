/* The entries of a log (rawlog.h), made in its mapped window. */
#ifndef PDLA_STREAM_H
#define PDLA_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "rawlog.h"

/* What COMPACT entries refer to. `call` is NO_CALL: there is no such template. */
struct template {
    uint32_t file, view;
    uint16_t call, flags;
    int64_t position, stride, length;
};

struct stream {
    unsigned char *window;
    uint64_t *committed;     /* of the header */
    uint64_t before;         /* bytes of the windows before this one */
    size_t used;             /* bytes of this one */
    uint64_t recorded;       /* records so far */
    int64_t latest;          /* ticks of the end of the previous record */
    struct template templates[RAWLOG_TEMPLATES];
};

/* An entry, or an anchor and an entry, fit if so many bytes are free. */
enum { STREAM_RESERVE = 128 };

/* Begins an empty log. */
void stream_begin(struct stream *, void *window, uint64_t *committed);
static inline bool stream_is_full(const struct stream *stream)
{
    return RAWLOG_WINDOW_SIZE - stream->used < STREAM_RESERVE;
}
/* Ends a full window, whose bytes can now be appended to the file. */
void stream_end_window(struct stream *);
/* Begins the next window, after the bytes of the last one are in the file. An anchor must follow. */
void stream_next_window(struct stream *);
/* There must be room for all of these. */
void stream_anchor(struct stream *, struct rawlog_pair now);
/* Returns the number of the record. `*place`: 1 + the bytes in all windows before its struct
 * rawlog_record, which may be changed; it is set only if the operation is pending. */
uint64_t stream_add(struct stream *, const struct rawlog_record *record, uint64_t *place);

#endif
