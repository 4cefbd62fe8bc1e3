/* Writes what the recorder makes, without harm to the program when there is no room. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "output.h"

/* RATIONALE: growing a file beyond the limit is a SIGXFSZ in the program. */
static bool is_allowed(off_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || (rlim_t)end <= limit.rlim_cur;
}

void *output_map(int file)
{
    if (!is_allowed(LOG_START_SIZE))
        return NULL;
    /* RATIONALE: a mapped hole is a SIGBUS in the program once the disk is full. */
    int error;
    do
        error = posix_fallocate(file, 0, LOG_START_SIZE);
    while (error == EINTR);
    if (error != 0)
        return NULL;
    void *memory = mmap(NULL, LOG_START_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool output_append(struct output *output, const void *data, size_t size)
{
    const char *bytes = data;
    if (!is_allowed(output->end + (off_t)size))
        return false;
    while (size > 0) {
        ssize_t written = pwrite(output->file, bytes, size, output->end);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        output->end += written;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}
