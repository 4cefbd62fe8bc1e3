/* Preloaded: writes what a process asks the kernel to read ahead (POSIX_FADV_WILLNEED) to the file HINTED, a line
 * "inode start length" each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int posix_fadvise(int fd, off_t start, off_t length, int advice)
{
    int (*real)(int, off_t, off_t, int) = (int (*)(int, off_t, off_t, int))dlsym(RTLD_NEXT, "posix_fadvise");
    struct stat found;
    char line[128];
    const int into = advice == POSIX_FADV_WILLNEED && fstat(fd, &found) == 0
        ? open(getenv("HINTED"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    const int size = snprintf(line, sizeof line, "%llu %lld %lld\n", (unsigned long long)found.st_ino,
                              (long long)start, (long long)length);
    if (into >= 0 && write(into, line, (size_t)size) != size)
        abort();
    if (into >= 0)
        close(into);
    return real(fd, start, length, advice);
}
