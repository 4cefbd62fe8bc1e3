/* The components of a replica for writes; `components` are their descriptors, -1 until one is needed. RATIONALE:
 * CephFS lets a client keep what it writes in memory only as long as no other client has the file open. */
#ifndef PDLA_COMPONENTS_H
#define PDLA_COMPONENTS_H

#include "storage.h"

/* NULL: they cannot be used. */
int *components_make(const struct loaded_map *, const struct map_replica *, enum patience);
void components_close(const struct loaded_map *, const struct map_replica *, int *components);
/* The descriptor of one. -1: errno says why there is none. */
int components_descriptor(const struct loaded_map *, const struct map_replica *, int *components, uint32_t number,
                          enum patience);
/* Drops what is in them; their space stays. RATIONALE: a page of which a part is written would else be read first, a
 * request for each piece of a program whose pieces are not whole pages. Where the file system cannot do this all goes
 * on as before. */
void components_drop(const struct loaded_map *, const struct map_replica *);
/* Has the devices of those that were needed write what is in memory. 0 or the errno of the first that failed. `begin`:
 * they only begin it; else it is durable. */
int components_sync(const struct loaded_map *, const struct map_replica *, const int *components, bool begin);

#endif
