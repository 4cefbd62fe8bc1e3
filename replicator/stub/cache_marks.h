/* Marks of exchanged pieces, and of the hint e10_cache=coherent: the parts of a file of which caches have
 * bytes that the original does not have yet. Other processes wait for them. A mark is a shared lock of
 * these bytes in a file beside the journals: it counts on all nodes, and ends with its process. */
#ifndef PDLA_CACHE_MARKS_H
#define PDLA_CACHE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

struct cache_marks;

/* The end of all ranges. RATIONALE: the byte there is locked by those who wait. */
#define CACHE_MARKS_END (INT64_MAX - 1)

/* Of the journals in a directory. NULL: the files cannot be made, or memory is used up. */
struct cache_marks *cache_marks_open(const char *journals);
void cache_marks_close(struct cache_marks *);
/* Removes their files. Nobody has them open. */
void cache_marks_remove(const char *journals);
/* Before bytes in [low, high) are written to the cache. False: they cannot be marked. */
bool cache_mark(struct cache_marks *, int64_t low, int64_t high);
/* The journal lists what was marked: it has `count` entries. */
void cache_marks_listed(struct cache_marks *, uint64_t count);
/* The original has the first `home` entries of the journal. */
void cache_unmark(struct cache_marks *, uint64_t home);
/* Whether other processes have marked any byte in [low, high). */
bool cache_marked(const struct cache_marks *, int64_t low, int64_t high);
/* Waits until what they have marked there is home. False: it was not in five minutes. */
bool cache_marks_await(const struct cache_marks *, int64_t low, int64_t high);
/* Whether some process waits for bytes of the file. */
bool cache_marks_asked(const struct cache_marks *);

#endif
