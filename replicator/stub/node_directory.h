/* The directories of nodes, in one for all of a run or of a file. RATIONALE: a directory with an entry for each of
 * 100,000 ranks is slow on a parallel file system, and they would all wait for it. */
#ifndef PDLA_NODE_DIRECTORY_H
#define PDLA_NODE_DIRECTORY_H

#include <sys/types.h>

/* Makes the entries of a directory durable. 0 or an errno. */
int directory_sync(const char *directory);
/* Opens a file for writing that is made, with more `flags`, and so is its directory if it is missing, with the
 * permissions `mode`. -1: see errno; EPERM: the directory is not this user's, or others can write to it. */
int node_directory_open(const char *path, int flags, mode_t mode);
/* What tells this boot of this node from all others. Unchanged: not known. */
void node_boot(char boot[40]);

#endif
