/* What the library says on standard error. */
#ifndef PDLA_MESSAGES_H
#define PDLA_MESSAGES_H

#include <stddef.h>

/* Writes a line, as far as possible. RATIONALE: the program gets no signal if nobody reads its standard error
 * (SIGPIPE), or if that is a file which may not become longer (SIGXFSZ). */
void message_write(const char *line, size_t length);

#endif
