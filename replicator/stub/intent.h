/* The intent: somebody is bringing home what journals in a directory tell, and they are not his own. It is made before
 * the first byte of the original is written, and removed after the last journal: as long as it is there the original
 * may be half old, half new, and who comes next does it all again. replicator/intent.py reads and writes it, too. */
#ifndef PDLA_INTENT_H
#define PDLA_INTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "journal.h"

#define INTENT_MAGIC "PDLAINT1"

/* The file `intent` in the directory; replaced whole, by rename. */
struct intent {
    char magic[8];
    uint32_t checksum;  /* CRC32C of what follows */
    uint32_t busy;      /* 1: the original is being written; 0: it is as said here, since that had to end */
    uint64_t inode;     /* of the original */
    int64_t size, mtime_ns, ctime_ns;
    int64_t until_ns;   /* no write to the original is begun later than this, by CLOCK_REALTIME */
    int64_t pid;
    char host[64];
};
_Static_assert(sizeof(struct intent) == 128, "no padding");

enum intent_found { INTENT_NONE, INTENT_THERE, INTENT_DAMAGED };
enum intent_found intent_read(const char *directory, struct intent *);
/* Makes durable which files a directory has. 0 or an errno. */
int directory_sync(const char *directory);
/* What intent_begin() makes. */
struct intent intent_now(const struct original_sight *);
/* Makes it, durably, before the original is written; 0 or an errno. */
int intent_begin(const char *directory, struct intent *, const struct original_sight *);
/* Before a write to the original: it still is before `until_ns`. 0 or an errno. */
int intent_renew(const char *directory, struct intent *);
/* It had to end before all was done, and left the original like this. */
void intent_stop(const char *directory, struct intent *, const struct original_sight *);
void intent_remove(const char *directory);

#endif
