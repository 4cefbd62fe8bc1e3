/* The journals of the other ranks of the node, mapped into this process. So a rank sees at any time
 * which bytes they have redirected, as it would natively see what they wrote. A rank that reads or
 * writes such bytes does their write-back in place of the other rank. */
#ifndef PDLA_NODE_PEERS_H
#define PDLA_NODE_PEERS_H

#include "writer.h"

/* Maps the journals; on all ranks. NULL: there are no other ranks on the node. */
struct peers *peers_open(const struct writer *);
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
