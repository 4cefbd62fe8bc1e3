/* A call that removes a name of a file, or gives the name to another file. The bytes that wait for the file go with its
 * last name, and only with that: a link, another name or a call that failed leaves them. */
#ifndef PDLA_DELETION_H
#define PDLA_DELETION_H

#include <stdbool.h>

struct deletion;

/* Before the call on the name `path`, relative to `directory`; a symbolic link is not followed. NULL: no bytes wait for
 * a file of this name, or it has another one. */
struct deletion *deletion_begin(int directory, const char *path);
/* After the call, which was `done`. NULL is nothing. */
void deletion_end(struct deletion *, bool done);

#endif
