/* How the bytes of an original are spread over its home servers. */
#ifndef PDLA_STRIPING_H
#define PDLA_STRIPING_H

#include <stdint.h>

/* `strip` bytes are on a server before the next one's turn; after the last server it is the first one's again. */
struct striping {
    int64_t strip, servers;
};

/* The striping of the file at `path`: what its file system says (CephFS, Lustre, OrangeFS, BeeGFS), or that of [home]
 * of a cluster.toml on others. NULL, or why it is not known: a literal. *opened: -1, or a descriptor of the file by
 * which it was asked. The caller closes it where MPI closes the file: a close ends the program's fcntl locks (H38). */
const char *striping_of(const char *path, const struct striping *home, struct striping *, int *opened);

#endif
