/* How the bytes of an original are spread over its home servers. */
#ifndef PDLA_STRIPING_H
#define PDLA_STRIPING_H

#include <stdint.h>

/* Of bytes [start, stop) of a file, `strip` are on a server before the next one's turn; after the last server it is the
 * first one's again. Strips count from the file's first byte. Servers have numbers from `first` on. */
struct striping {
    int64_t start, stop, strip, servers, first;
};

enum { MOST_STRIPINGS = 8 };

/* The parts of a file that are striped in their own ways, in order. How other bytes are striped is not known. */
struct striped {
    int count; /* at least 1 */
    struct striping part[MOST_STRIPINGS];
};

/* The striping of the file at `path`: what its file system says (CephFS, Lustre, OrangeFS, BeeGFS), or that of [home]
 * of a cluster.toml on others. NULL, or why it is not known: a literal. */
const char *striping_of(const char *path, int64_t home_strip, int64_t home_servers, struct striped *);

#endif
