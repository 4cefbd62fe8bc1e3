/* Brings home what the caches of a node's ranks have of one open file: all ranks' bytes together, in
 * large writes in the order of the file. Whoever needs that done begins a round (struct round) or
 * joins the one under way: the mover threads, and calls that must wait for the bytes. */
#ifndef PDLA_NODE_HOME_H
#define PDLA_NODE_HOME_H

#include "mover.h"
#include "node_peers.h"
#include "replica_choice.h"

/* Returns when the original has, durably, all that any rank of the node had listed in its journal
 * before the call. 0 or an errno. Makes no MPI call. */
int node_home_all(struct file_handle *);
/* The same, but the program does not wait for it. */
int node_home_rest(struct file_handle *);
/* The mover's turn: begins or joins a round, and does what it can get of it. There may be more to do in a
 * moment, for instance when the other ranks have made the same collective call. */
enum mover_next node_home_some(struct file_handle *);
/* Whether this rank, or others of the node, may have bytes of a range (NULL: any) that are not home. */
enum { HOME_OWN = 1, HOME_PEERS = 2 };
bool node_home_waits(const struct writer *, const struct view_range *, int whose);
/* Whether the original may have bytes of a range from this rank's cache file. Others, and this rank, may have written
 * newer ones to it since: what the file has is no longer known to be the newest. */
bool node_home_came(const struct writer *, const struct view_range *);
/* The newest byte of the original at `offset` that some rank of the node has. *held: whether one has it. Returns an
 * errno value if that cannot be known, or the byte cannot be read. */
int node_home_byte(const struct writer *, int64_t offset, char *byte, bool *held);
/* The end of what any rank of the node has. */
int64_t node_home_end(const struct writer *);

#endif
