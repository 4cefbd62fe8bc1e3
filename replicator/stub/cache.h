/* A cache of redirected writes (PDLA_POLICY): the bytes that a process writes to an open file go to a
 * cache file of its own, on the node's own device, and later home to the original. pdla/caching
 * decides where they lie; this file does it. The journal lists them, and node_home.c brings them
 * home, together with those of the other ranks of the node.
 *
 * The writer's mutex is held by whoever calls these functions. */
#ifndef PDLA_CACHE_H
#define PDLA_CACHE_H

#include "cache_hints.h"
#include "fragment_requests.h"
#include "replica_choice.h"
#include "writer.h"

struct cache;

/* The cache of an open file whose journal names its cache file, which is made here. *error: an
 * errno, if the result is NULL. */
struct cache *cache_open(struct journal *, const struct cache_hints *, int *error);
/* Once the peers of the writer are known, which share the space: how many bytes it may hold. False:
 * out of memory. */
bool cache_begin(struct writer *, const struct cache_hints *);
/* Removes the cache file unless bytes of it wait. */
void cache_close(struct writer *);
/* The process ends with the file open: the same, but nothing is freed. */
void cache_abandon(struct writer *);

/* How often a write of so many bytes certainly fits. */
int64_t cache_fits(struct writer *, int64_t bytes);
/* The room of the cache, for iBridge to share between its kinds of requests. */
struct fragment_room cache_room(struct writer *);
/* Writes the bytes of a call, which fit, to the cache and lists them in the journal. `memory` NULL: the
 * buffer is contiguous. 0 or an errno; after an error none of them count, and neither cache_write()
 * nor cache_read() may be called again. Except after ENOMEM: the cache is full, until its bytes are home. */
int cache_write(struct writer *, const struct view_range *, const char *buffer, const struct typemap *memory,
                uint64_t *requests);
/* A collective call has been done, even if it wrote nothing on this rank. */
void cache_called(struct writer *);
/* Reads the bytes of a call: those that are not in this process's cache from the original, if all ranks are on its
 * node. What the cache has is not home (node_home_came()). Returns how many bytes the cache had; 0: nothing is read. */
int64_t cache_read(struct writer *, const struct view_range *, char *buffer, const struct typemap *memory);
/* What the original has by now needs no space in the cache any more. */
void cache_follow(struct writer *);
/* All bytes are home: gives back room that is borrowed, unless a call is under way. Without the mutex. */
void cache_rest(struct writer *);
/* Nobody has to wait any more for what the original has. Any thread may call this. */
void cache_settle(struct writer *);
/* Whether bytes go home without being asked for. */
bool cache_flushes(const struct cache *);
/* Whether less than half of its room is left for further writes. */
bool cache_is_short(struct cache *);
bool cache_is_coherent(const struct cache *); /* e10_cache=coherent */
/* From now on what this process writes to the cache is marked, as with that hint. False: not possible. */
bool cache_marks_all(const struct writer *);
/* Whether some process waits for marked bytes of the file. */
bool cache_is_asked(const struct cache *);
/* With marks: whether other processes have bytes of the range (NULL: of the file) that are not home; waits
 * until they are home: 0, or an errno if that takes too long. */
bool cache_is_behind(const struct writer *, const struct view_range *);
int cache_await(const struct writer *, const struct view_range *);
int cache_descriptor(const struct cache *);

#endif
