/* What is in cache files of ended programs goes home. */
#ifndef PDLA_PENDING_CACHES_H
#define PDLA_PENDING_CACHES_H

#include "homeward.h"
#include "journal.h"
#include "redirection.h"

/* What all journals of an original list, and their cache files. The first source is the original. */
struct gathered {
    const char *path;     /* of the original */
    bool speaks;
    int64_t size;         /* of the original */
    uint64_t oldest;      /* stamp of an entry that waits */
    struct homeward home; /* to be sorted */
    int *sources;         /* [count] descriptors; -1: it cannot be opened */
    char **paths;         /* [count] */
    uint32_t count;
    int64_t low, high;    /* bytes of the original that contain all that wait */
};

/* This process has locked the journals alone. NULL, or why it is not possible: a literal, and, if it `speaks`, a
 * message where they are. To be freed in both cases. */
const char *pending_caches_gather(struct gathered *, const char *directory, const char *path,
                                  const struct original_state *, bool speaks);
void pending_caches_free(struct gathered *);
/* Brings home what the journals of the handle's writer list, under its intent, which is made here;
 * durably. This process has locked the journals alone. NULL, or a literal that says why not. */
const char *pending_caches_home(struct file_handle *, const struct original_state *);

#endif
