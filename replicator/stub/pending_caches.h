/* What is in cache files of ended programs goes home. */
#ifndef PDLA_PENDING_CACHES_H
#define PDLA_PENDING_CACHES_H

#include "journal.h"
#include "redirection.h"

/* Brings home what the journals of the handle's writer list, under its intent, which is made here;
 * durably. This process has locked the journals alone. NULL, or a literal that says why not. */
const char *pending_caches_home(struct file_handle *, const struct original_state *);

#endif
