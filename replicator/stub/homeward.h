/* Bytes of an original that are in cache files, on their way home: in large writes, in the order of
 * the original. Where several are for one byte, the newest counts. */
#ifndef PDLA_HOMEWARD_H
#define PDLA_HOMEWARD_H

#include "journal.h"
#include "writer.h"

enum { HOME_CHUNK = 8 << 20 /* bytes of the original, of which one thread brings home at a time what there is */ };

/* Bytes that are contiguous in the original and in cache file number `source`; none crosses a
 * multiple of HOME_CHUNK. */
struct homeward_piece {
    int64_t offset, place;
    uint64_t stamp;
    uint32_t length, source;
    uint64_t number; /* of the entry in its journal */
};

struct homeward {
    struct homeward_piece *pieces;
    size_t count, room;
    size_t *chunks; /* [chunk_count + 1] the first piece of each chunk that has any */
    size_t chunk_count;
};

/* Takes memory for so many pieces. False: out of memory. */
bool homeward_reserve(struct homeward *, size_t pieces);
/* Adds entry `number` of a journal. False: out of memory. */
bool homeward_add(struct homeward *, uint32_t source, uint64_t number, const struct journal_entry *, int64_t length);
/* Of two pieces with the same byte: whether the first counts. */
bool homeward_is_newer(const struct homeward_piece *, const struct homeward_piece *);
/* Sorts the pieces by their offsets, and into chunks, the same way in every process. False: out of memory. */
bool homeward_sort(struct homeward *);
/* HOME_CHUNK bytes of memory for chunks that are moved one after another. NULL: out of memory. */
char *homeward_buffer(void);
void homeward_buffer_free(char *buffer); /* may be NULL */
/* Writes one chunk to the original, once; `sources` are the descriptors of the cache files, and `buffer` is a
 * homeward_buffer(). Counts what it does. 0 or an errno; ENODATA: a cache file is too short. */
int homeward_move(struct writer *, const struct homeward *, size_t chunk, const int *sources, char *buffer);
/* Without pieces again, but with its memory. */
void homeward_clear(struct homeward *);
void homeward_free(struct homeward *);

#endif
