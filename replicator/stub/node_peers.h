/* What the other ranks of the node have in their journals: mapped, so that a rank sees at any time what they have
 * redirected, as it would natively see what they wrote. A rank that reads or writes such bytes brings them home in the
 * place of the rank whose they are. */
#ifndef PDLA_NODE_PEERS_H
#define PDLA_NODE_PEERS_H

#include "writer.h"

/* Maps them; on all ranks. NULL: there are none. */
struct neighbours *peers_open(const struct stub_writer *);
void peers_close(struct neighbours *);
/* Around what this process does to its own journal beside other ranks, which may clear it. */
void peers_lock(const struct stub_writer *);
void peers_unlock(const struct stub_writer *);
/* What they have of a call's bytes (`call` NULL, or not known: anything) goes to the original; with the writer's mutex
 * held. 0 or an errno, and then it is still in their journals; *found: there was any. */
int peers_bring_back(struct file_handle *, const struct io_call *call, bool *found);
/* The original gets as long as they have written it. 0 or an errno. */
int peers_lengthen(struct file_handle *);

#endif
