/* Journals of programs that have ended, or of files that they have closed. Their directory is to be locked alone, but
 * for the first glance. The rules are those of docs/formats.md, "Write-back", which replicator/sync.py has, too. */
#ifndef PDLA_STALE_JOURNALS_H
#define PDLA_STALE_JOURNALS_H

#include "intent.h"
#include "loadedmap.h"

enum { MOST_RANGES = 1 << 20 /* of all ranks; more are too many to tell all ranks of */ };
/* Bytes [start, stop) of replica `replica` of the target. */
struct range {
    int64_t replica, start, stop;
};

enum leftover {
    LEFTOVER_NONE,   /* no bytes wait */
    LEFTOVER_OTHERS, /* of another file that had this name */
    LEFTOVER_WAITS,  /* that is for pdla sync to judge: struct leftovers says why */
    LEFTOVER_GOOD    /* they can be brought home */
};

struct leftovers {
    struct range *ranges; /* of LEFTOVER_GOOD: what the journals tell, to be freed */
    uint64_t count;
    const char *why;      /* of LEFTOVER_WAITS: a literal */
};

/* A glance without a lock: whether there may be something. */
bool stale_journals_seen(const char *directory);
/* What the journals in a directory tell of the original. `map` NULL: nobody knows the replicas. `original` NULL: there
 * is no such file. */
enum leftover stale_journals_read(const struct loaded_map *map, const struct map_target *, const char *directory,
                                  const struct original_sight *original, struct leftovers *);
/* How many journals there are. */
uint64_t stale_journals_count(const char *directory);
/* While others write: whether a process that has ended left a journal that tells of bytes, or there are too many to
 * look at. */
bool stale_journals_waits(const char *directory);
/* Removes those that ended processes left and that tell of no bytes. */
void stale_journals_tidy(const char *directory);
/* Removes those of an original that was deleted. */
void stale_journals_discard(const char *directory, uint64_t inode);
/* All is durable in the original: removes the journals, then the intent. */
void stale_journals_remove(const char *directory);

#endif
