/* The components of a write replica. `components` is an array of descriptors; one is -1 until it is
 * needed. RATIONALE: CephFS lets a client keep written bytes in memory only while no other client
 * has the file open. */
#ifndef PDLA_COMPONENTS_H
#define PDLA_COMPONENTS_H

#include "storage.h"

/* NULL: the components cannot be used. */
int *components_make(const struct loaded_map *, const struct map_replica *, enum timeout);
void components_close(const struct loaded_map *, const struct map_replica *, int *components);
/* The descriptor of one component. -1: errno says why there is none. */
int components_descriptor(const struct loaded_map *, const struct map_replica *, int *components, uint32_t number,
                          enum timeout);
/* Opens one component with `access` (O_RDONLY or O_RDWR). -1: errno says why it cannot be used. */
int component_open(const struct loaded_map *, const struct map_component *, int access, enum timeout);
/* Discards the bytes of the components and keeps their space. RATIONALE: otherwise a write of a
 * part of a page first reads the page, with one request for each piece. Where the file system
 * cannot do this, writes work all the same. */
void components_drop(const struct loaded_map *, const struct map_replica *);
/* Writes the bytes of all open components from memory to their devices. With `begin` it only starts
 * that; otherwise they are durable afterwards. 0 or the errno of the first failure. */
int components_sync(const struct loaded_map *, const struct map_replica *, const int *components, bool begin);

#endif
