/* The map of replicas that is published for this program. */
#ifndef PDLA_PUBLISHED_MAP_H
#define PDLA_PUBLISHED_MAP_H

#include "loadedmap.h"

/* Where it is: PDLA_MAP, otherwise in pdla's directory (home.h). It is found at the first call. NULL: *why says in a
 * line why there is no such place. */
const char *published_map_path(const char **why);
/* NULL: *why says in a line why it cannot be used. */
const struct loaded_map *published_map(const char **why);

#endif
