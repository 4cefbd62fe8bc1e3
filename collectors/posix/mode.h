/* The mode of open(2) and its like, which is an argument only where a file may be made. */
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
