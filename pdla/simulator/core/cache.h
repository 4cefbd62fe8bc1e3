/* The page caches of client nodes. */
#ifndef CACHE_H
#define CACHE_H

#include "engine.h"

/* An access reads or writes [start, stop) through its node's pages: of its file (place -1), or of a component. It has one more
 * request under way, which ends with access_ends_request. */
void cache_serves(struct engine *engine, struct access *access, int64_t place, bool write, int64_t start, int64_t stop);

/* What had to be read has come. */
void cache_fetched(struct engine *engine, struct fetch *fetched);

/* What is dirty of an access's file (of all files, if it has none) goes to the storage, by requests of the access. */
void cache_flush(struct engine *engine, struct access *access);
void cache_flushed(struct engine *engine, struct flush *flush);

#endif
