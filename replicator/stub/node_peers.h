/* The journals of the other ranks of the node, mapped into this process. So a rank sees at any time
 * which bytes they have redirected, as it would natively see what they wrote. A rank that reads or
 * writes such bytes does their write-back in place of the other rank. */
#ifndef PDLA_NODE_PEERS_H
#define PDLA_NODE_PEERS_H

#include "writer.h"

/* The ranks of a node bring home together what their caches have, in rounds. A round has the entries
 * that their journals listed when it began, as chunks of the original that any thread of any of the
 * ranks may take (node_home.c). It is in the memory of the lowest rank's journal. */
struct round {
    pthread_mutex_t mutex;
    uint64_t next;   /* atomic; upper half: the number of the round, odd while it is under way; lower: the next chunk */
    uint64_t done;   /* atomic; likewise, how many chunks are done */
    uint64_t chunks; /* atomic */
    uint64_t failed; /* atomic; the number of the last round that failed; 0: none did */
    int64_t error;   /* atomic; and its errno; ECANCELED: it was given up */
    uint32_t over;   /* atomic; how many rounds are over; a futex */
};

enum { KEPT_CALLS = 8 };

/* The last bytes of a journal's first page. */
struct shared {
    pthread_mutex_t mutex;
    int64_t low, high;    /* atomic; bytes of the original that contain all entries of the journal */
    uint64_t from, until; /* the journal's entries in the round */
    uint64_t calls;       /* collective calls so far whose bytes went to the cache, and how many entries */
    uint64_t after[KEPT_CALLS]; /* the journal had after call n: after[n % KEPT_CALLS] */
    uint64_t working;     /* atomic; threads of its process that may write to the original for a round */
    struct round round;
};

struct peer {
    struct journal journal;
    struct shared *shared;
    char *path;           /* of the journal */
    int cache;            /* descriptor of its cache file; -1: it has none */
};

struct peers {
    struct shared *own;
    struct round *round;
    int first, last; /* the lowest and the highest rank of the node */
    int nodes, most; /* how many nodes there are, and the most ranks of one */
    int count;
    struct peer each[];
};

/* Maps the journals; on all ranks, with the number of the open. NULL: there are no other ranks on the
 * node, and no cache, or this is not possible. */
struct peers *peers_open(const struct writer *, uint64_t open);
/* Whether the ranks of this node are as they are if each node has the next `most` ranks; the last one may
 * have fewer. */
bool peers_in_blocks(const struct peers *, int ranks);
static inline int peers_count(const struct peers *peers) { return peers == NULL ? 0 : peers->count; }
void shared_lock(pthread_mutex_t *);
void peers_close(struct peers *);
/* To be called around changes of this process's own journal, which other ranks may clear. */
void peers_lock(const struct writer *);
void peers_unlock(const struct writer *);
/* Writes back what the other ranks' journals list of a call's bytes (`call` NULL or not known: of
 * any bytes). The writer's mutex is held. *found: there was something. 0 or an errno; after an
 * error it is still in the journals. */
int peers_write_back(struct file_handle *, const struct io_call *call, bool *found);
/* Makes the original as long as they have written it. 0 or an errno. */
int peers_extend_original(struct file_handle *);

#endif
