/* The limit for the size of files (ulimit -f). RATIONALE: what makes a file longer than that, or writes behind it,
 * sends SIGXFSZ to the program. So the library asks before it writes to a file of its own, or to the program's at
 * another moment than the program did. */
#ifndef PDLA_FILE_SIZE_H
#define PDLA_FILE_SIZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Whether this process may write to a file up to byte `end`. If not, the library's functions fail with EFBIG. */
static inline bool file_size_allowed(int64_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || (rlim_t)end <= limit.rlim_cur;
}

#endif
