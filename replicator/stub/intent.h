/* The intent: a note that some process writes back bytes that other processes' journals list. It is
 * made before the first byte of the original is written, and removed after the last journal. While
 * it exists the original may be half old and half new, and the next process does the whole
 * write-back again. replicator/intent.py reads and writes it, too. */
#ifndef PDLA_INTENT_H
#define PDLA_INTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "journal.h"

#define INTENT_MAGIC "PDLAINT1"

enum intent_state {
    INTENT_FAILED, /* the write-back failed, and left the original as it is noted */
    INTENT_BUSY,   /* the original is being written */
    INTENT_DONE    /* the original has all bytes, durably; the journals are being removed */
};

/* The file system's time of a killed program's write is at most this much later than the program's
 * own note of it. */
static const int64_t STAMP_SLACK_NS = INT64_C(2000000000);

/* The file `intent` in the directory of the journals. It is replaced as a whole, by rename. */
struct intent {
    char magic[8];
    uint32_t checksum;  /* CRC32C of what follows */
    uint32_t busy;      /* enum intent_state */
    uint64_t inode;     /* of the original */
    int64_t size, mtime_ns, ctime_ns;
    int64_t until_ns;   /* no write to the original begins later than this, by CLOCK_REALTIME */
    int64_t pid;
    char host[64];
};
_Static_assert(sizeof(struct intent) == 128, "no padding");

enum intent_found { INTENT_NONE, INTENT_THERE, INTENT_DAMAGED };
enum intent_found intent_read(const char *directory, struct intent *);
/* Whether the work that an intent names explains why the original has this size and mtime. */
bool intent_covers(const struct intent *, int64_t size, int64_t mtime_ns);
/* Whether the original is as a write-back that failed left it. `explained`: see journal_explains_ctime(). */
bool intent_left_as(const struct intent *, const struct original_state *, bool explained);
/* What intent_begin() makes, without the file. */
struct intent intent_now(const struct original_state *);
/* Makes a durable intent before the first write to the original. 0 or an errno. */
int intent_begin(const char *directory, struct intent *, const struct original_state *);
/* Before each write to the original: moves `until_ns` on where that is needed. 0 or an errno. */
int intent_renew(const char *directory, struct intent *);
/* The write-back failed and left the original in this state. */
void intent_stop(const char *directory, struct intent *, const struct original_state *);
/* The original has all bytes of the journals, durably. 0 or an errno. */
int intent_end(const char *directory);
void intent_remove(const char *directory);

#endif
