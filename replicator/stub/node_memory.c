#include "node_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_size.h"

void *node_memory(const char *directory, const char *suffix, size_t size)
{
    char host[64] = "", path[4096];
    int fd = -1;
    gethostname(host, sizeof host - 1);
    if (directory != NULL && *directory != '\0'
        && snprintf(path, sizeof path, "%s/%s.%s", directory, host, suffix) < (int)sizeof path)
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    /* RATIONALE: the space is allocated. A store into a hole of a file on a full disk kills the program. */
    void *memory = fd >= 0 && file_size_allowed((int64_t)size) && posix_fallocate(fd, 0, (off_t)size) == 0
        ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}
