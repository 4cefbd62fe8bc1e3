/* The components of a replica for writes; `components` are their descriptors, -1 until one is needed. RATIONALE: CephFS lets a
 * client keep what it writes in memory only as long as no other client has the file open. */
#ifndef PDLA_COMPONENTS_H
#define PDLA_COMPONENTS_H

#include "loadedmap.h"

/* NULL: they cannot be used. */
int *components_make(const struct loaded_map *, const struct map_replica *);
void components_close(const struct map_replica *, int *components);
/* The descriptor of one. -1: errno says why there is none. */
int components_descriptor(const struct loaded_map *, const struct map_replica *, int *components, uint32_t number);
/* Drops what is in them; their space stays. RATIONALE: a page of which a part is written would else be read first, a request for
 * each piece of a program whose pieces are not whole pages. Where the file system cannot do this all goes on as before. */
void components_drop(const struct loaded_map *, const struct map_replica *);
/* Has the devices of those that were needed begin to write what is in memory. */
void components_start_sync(const struct map_replica *, const int *components);
/* What was written to them is durable. 0 or the errno of the first that failed. */
int components_sync(const struct map_replica *, const int *components);

#endif
