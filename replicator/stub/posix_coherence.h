/* Between libpdla-coherence.so, which stands in front of the C library's calls that open and examine files
 * (replicator/posix_coherence), and libpdla.so, which redirects writes: what a program has written by MPI it finds by
 * POSIX, too, and what earlier programs have. */
#ifndef PDLA_POSIX_COHERENCE_H
#define PDLA_POSIX_COHERENCE_H

#include <stdbool.h>
#include <stdint.h>

#define BESIDE_INTERFACE __attribute__((weak, visibility("default")))

/* Before the program opens or cuts off the file at `path`, relative to `directory`: what this process has redirected
 * of its writes is brought back, and no more of them are redirected; what earlier programs left in replicas is brought
 * home. 0, or an errno: the call is not to be made. errno is left alone. */
BESIDE_INTERFACE int pdla_coherence_opening(int directory, const char *path);
/* Before it is told about the file; likewise, but this process goes on. */
BESIDE_INTERFACE int pdla_coherence_looking(int directory, const char *path);
/* Before and after a call that deletes the file, or puts another one in its place: *inode, 0 where nothing is to be
 * done. */
BESIDE_INTERFACE void pdla_coherence_deleting(int directory, const char *path, uint64_t *inode);
BESIDE_INTERFACE void pdla_coherence_deleted(const char *path, uint64_t inode);
/* After the program was told about a file. True: it is to be told again, since the file is now as long as it was
 * written. */
BESIDE_INTERFACE bool pdla_coherence_examined(uint64_t device, uint64_t inode);

/* Within libpdla.so. */

/* The process has the file open that MPI knows by this name. */
bool coherence_open(const char *name);

#endif
