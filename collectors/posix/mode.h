/* The mode argument of open(2) and similar calls, which is there only if the call may make a file.
 */
#ifndef PDLA_MODE_H
#define PDLA_MODE_H

#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

/* Declares `mode` in a function whose last named parameter is `flags`. */
#define TAKE_MODE(mode, flags)                                      \
    mode_t mode = 0;                                                \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {  \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode = va_arg(more, mode_t);                                \
        va_end(more);                                               \
    }

#endif
