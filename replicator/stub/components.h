/* What is done with all components of a replica for writes at once; `components` are their descriptors. */
#ifndef PDLA_COMPONENTS_H
#define PDLA_COMPONENTS_H

#include "loadedmap.h"

/* Drops what is in them; their space stays. RATIONALE: a page of which a part is written would else be read first, a request for
 * each piece of a program whose pieces are not whole pages. Where the file system cannot do this all goes on as before. */
void components_drop(const struct loaded_map *, const struct map_replica *, const int *components);
/* Has their devices begin to write what is in memory. */
void components_start_sync(const struct map_replica *, const int *components);
/* What was written to them is durable. 0 or the errno of the first that failed. */
int components_sync(const struct map_replica *, const int *components);

#endif
