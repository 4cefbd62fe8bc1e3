/* Journals of programs that have ended or have closed their file. Except for the first look, the
 * caller has locked the directory alone. The rules are in docs/formats.md ("Write-back"), and
 * replicator/sync.py has the same ones. */
#ifndef PDLA_STALE_JOURNALS_H
#define PDLA_STALE_JOURNALS_H

#include "intent.h"
#include "loadedmap.h"
#include "ranges.h"

enum { MOST_RANGES = 1 << 20 /* of all ranks, merged; more are too many to send to all ranks */ };

enum pending_state {
    PENDING_NONE,   /* no bytes wait */
    PENDING_OF_OTHERS, /* they are of other files */
    PENDING_BLOCKED,  /* pdla sync has to decide: struct pending says why */
    PENDING_READY    /* write-back is possible */
};

struct pending {
    struct range *ranges; /* of PENDING_READY: the entries of the journals, to be freed */
    uint64_t count;
    bool cached;          /* they are in caches: `ranges` has none of them */
    const char *why;      /* of PENDING_BLOCKED: a literal */
};

/* Whether a lookup failed, other than because the file does not exist or this user may not see it.
 * RATIONALE: where newest bytes may wait, "the lookup failed" must not be taken for "there are none". */
bool lookup_failed(int error);

/* Calls `each` with every journal in the directory that is of the original, until it returns a literal.
 * Returns that, or NULL. */
const char *stale_journals_each(const char *directory, const struct original_state *,
                                const char *(*each)(void *context, const struct journal_header *), void *context);
/* Whether there is any journal, or the lookup failed. Needs no lock. */
bool stale_journals_any(const char *directory);
/* Whether one of them is of a file of this inode, or may be. */
bool stale_journals_of(const char *directory, uint64_t inode);
/* What the journals in a directory say about the original. Those of other files stay as they are. `map` NULL: the
 * replicas are not known. `original` NULL: there is no such file. */
enum pending_state stale_journals_read(const struct loaded_map *map, const struct map_target *, const char *directory,
                                       const struct original_state *original, struct pending *);
/* While nobody writes: whether a process left a journal with entries. */
bool stale_journals_wait(const char *directory);
/* How many journals there are. UINT64_MAX: the lookup failed. */
uint64_t stale_journals_count(const char *directory);
/* Whether a process still has one of the journals open, except the one at `but`. */
bool stale_journals_in_use(const char *directory, const char *but);
/* While others write: whether an ended process left a journal with entries, or there are too many
 * journals to examine. */
bool stale_journals_pending(const char *directory);
/* Removes journals without entries that ended processes left. */
void stale_journals_remove_empty(const char *directory);
/* Removes the journals of an original that was deleted. */
void stale_journals_discard(const char *directory, const struct original_state *);
/* The original has all bytes, durably: removes its journals, then the intent. NULL: no journal has entries, and all
 * go. */
void stale_journals_remove(const char *directory, const struct original_state *);
/* Ends a removal that was interrupted. */
void stale_journals_finish(const char *directory);

#endif
