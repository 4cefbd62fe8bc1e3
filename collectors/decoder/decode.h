/* Reads the windows of a log (collectors/shim/rawlog.h). Python calls it; nothing preloads it. */
#ifndef PDLA_DECODE_H
#define PDLA_DECODE_H

#include "rawlog.h"

#define DECODE_API __attribute__((visibility("default")))

/* The records in one window, in their order, of which the first has the number `next`.
 *
 *   bytes, size   what is left of the window
 *   records       room for size / 2 records; their times are ticks, their `seq` are numbers
 *   pairs, found  room for size / 25 pairs, in the order of the anchors; how many there are
 *
 * An entry that is cut off ends the window, as does its end. Returns the number of records. -1: the
 * window is damaged. */
DECODE_API int64_t rawlog_decode(const unsigned char *bytes, int64_t size, uint64_t next, struct rawlog_record *records,
                                 struct rawlog_pair *pairs, int64_t *found);

/* Converts the times of records from ticks to nanoseconds of CLOCK_MONOTONIC. Between two pairs a
 * tick has the length that they say; before the first and after the last, that of all together.
 * `count` of `pairs` is at least 1; both their numbers rise. */
DECODE_API void rawlog_convert(struct rawlog_record *records, int64_t number, const struct rawlog_pair *pairs,
                               int64_t count);

#endif
