/* Directories and files of this user in places that others can write, such as the directory of a pool.
 *
 * What is not this user's is not used: another user may have made it, and may replace what is in it. Directories above
 * may be anybody's, and links. RATIONALE: one part of a path is this user's at a time, so that O_NOFOLLOW is all that
 * openat2() would do. */
#ifndef PDLA_OWN_FILES_H
#define PDLA_OWN_FILES_H

#include <stdint.h>

/* Opens a directory of this user to which no other can write. -1: see errno; EPERM: it is not such a one. */
int own_directory_open(const char *path);
/* Opens a regular file of this user that has this one name only, below the directory `at`. `inode` 0: any of that name.
 * -1: see errno; EPERM: it is not such a one, or it is another file. */
int own_file_open(int at, const char *name, int flags, uint64_t inode);

#endif
