/* Memory that the processes of a node share. */
#ifndef PDLA_NODE_MEMORY_H
#define PDLA_NODE_MEMORY_H

#include <stddef.h>

/* Bytes that are 0 at first, of the file <host>.<suffix> in a directory. Where there is no directory (NULL), or no room
 * in it, they are this process's own. NULL: no memory. To be unmapped. */
void *node_memory(const char *directory, const char *suffix, size_t size);

#endif
