/* What the parts of libpdla-posix.so share. */
#ifndef PDLA_WRAPPERS_H
#define PDLA_WRAPPERS_H

#include "posix.h"

#define EXPORT __attribute__((visibility("default")))

/* Sets *real, a pointer to a function, to the definition after this library. False, with errno
 * ENOSYS: there is none. */
bool find_next(void *real, const char *name);

/* pdla_posix_begin() for the caller of the present function. */
#define BEGIN(call, fd) (pdla_posix_begin && pdla_posix_begin(call, fd, __builtin_return_address(0)))

#endif
