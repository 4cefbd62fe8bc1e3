/* Where the bytes are that ended programs left in cache files: an index in the form of a map, in which
 * each cache file is a replica with a table of extents. So reads take them from there as they take
 * leased bytes from write replicas (ADR 27). */
#ifndef PDLA_CACHED_INDEX_H
#define PDLA_CACHED_INDEX_H

#include "journal.h"
#include "loadedmap.h"
#include "ranges.h"

/* The index of the journals in a directory, which this process has locked alone: *size bytes, to be freed, the same
 * for all ranks. NULL: the bytes must be brought home before they are read. */
void *cached_index_make(const char *directory, const char *path, const struct original_state *, int64_t *size);
/* The index as a map with one target. Takes it over. NULL: out of memory. */
struct loaded_map *cached_index_map(void *index);
/* All that the cache files have, *count ranges, to be freed. NULL: out of memory. */
struct range *cached_index_ranges(const struct loaded_map *, uint64_t *count);
void cached_index_free(struct loaded_map *);

#endif
