/* What libpdla-coherence.so calls in libpdla.so. The former wraps the C library's calls that open
 * and examine files (replicator/posix_coherence), the latter redirects writes. So a program finds
 * by POSIX calls what it, or an earlier program, has written by MPI. */
#ifndef PDLA_POSIX_COHERENCE_H
#define PDLA_POSIX_COHERENCE_H

#include <stdbool.h>
#include <stdint.h>

#define COHERENCE_INTERFACE __attribute__((weak, visibility("default")))

/* Before the program opens or changes the file at `path`, relative to `directory`: writes back
 * what this process has redirected of its writes and redirects no more of them, and writes back
 * what earlier programs left in replicas. 0, or an errno if the call is not to be made. errno
 * itself is left as it was. */
COHERENCE_INTERFACE int pdla_coherence_opening(int directory, const char *path);
/* Before a call that examines the file; the same, but redirection goes on. */
COHERENCE_INTERFACE int pdla_coherence_examining(int directory, const char *path);
/* Before and after a call that deletes the file or replaces it by another one. NULL: nothing is to be done. */
struct deletion;
COHERENCE_INTERFACE struct deletion *pdla_coherence_deleting(int directory, const char *path);
COHERENCE_INTERFACE void pdla_coherence_deleted(struct deletion *, bool done);
/* After a call that examined the file. True: the call is to be repeated, since the file is now as
 * long as it was written. */
COHERENCE_INTERFACE bool pdla_coherence_examined(uint64_t device, uint64_t inode);

/* Inside libpdla.so. */

/* Whether the process has the file open without MPI; `name` is MPI's name of it. */
bool coherence_is_open(const char *name);

#endif
