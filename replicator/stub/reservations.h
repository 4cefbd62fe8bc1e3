/* What processes have reserved in a directory of an SSD server, which is for all of them. The size of a cache file is
 * what its process has reserved, so that what a killed one holds counts until it is home.
 *
 * The cache files of a user's processes on one node are in a directory of their own there. RATIONALE: processes with
 * mounts of their own, such as a ceph-fuse each, are nodes of their own. A directory stays when it is empty:
 * where several clients of CephFS (16.2.15) remove or make directories anew at the same time, each of its own, most of
 * them wait for up to 5 s. `pdla run` removes what nobody has used for a day.
 *
 * A symbolic link in the directory says how many bytes and files they are together: RATIONALE: so that with 100,000
 * ranks a process that counts looks at each node, and not at each file, and a link is replaced in one step. Where there
 * is no link the files count. The processes of the node replace it one at a time, before anything is written to what
 * they have reserved. */
#ifndef PDLA_RESERVATIONS_H
#define PDLA_RESERVATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reserved {
    int64_t bytes, files;
    int64_t looks; /* at files and at links */
};

/* The directory for this node in that of a server. False: it has no name of at most `size` bytes. */
bool reservations_name(char *path, size_t size, const char *server);
/* Makes a cache file, and its node's directory. -1: see errno; EPERM: that is another user's, or others can write to
 * it. */
int reservations_open(const char *cache);
/* Opens a cache file for reading that a process of this user made, in whichever directory it is. `inode` 0: any of that
 * name. -1: see errno; EPERM: it or its node's directory is not this user's, or it is another file. */
int reservations_reopen(const char *cache, uint64_t inode);
/* Changes what an open cache file reserves. False: nothing has changed. */
bool reservations_change(const char *cache, int fd, int64_t from, int64_t to);
/* Removes a cache file, in whichever directory it is. */
void reservations_remove(const char *cache);
/* Adds what all have reserved in the directory of a server. False: it cannot be read. */
bool reservations_count(const char *server, struct reserved *);

#endif
