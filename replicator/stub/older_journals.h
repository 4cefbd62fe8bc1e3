/* Journals that pdla 0.2.0 left. They name the original by its number and its birth only. */
#ifndef PDLA_OLDER_JOURNALS_H
#define PDLA_OLDER_JOURNALS_H

#include <stdbool.h>
#include <stddef.h>

bool journal_is_older(const void *base, size_t size);
/* Makes such a journal one of the present format, in memory. False: it is damaged. */
bool journal_modernize(void *base, size_t size);

#endif
