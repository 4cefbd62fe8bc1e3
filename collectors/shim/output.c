/* Writes the recorder's files, without harm to the program if there is no room. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_size.h"
#include "output.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* RATIONALE: a program may close descriptors that it does not know, or may have begun without the
 * standard ones. It seldom uses numbers as high as these, and never prints to them. */
static int move_up(int file)
{
    int moved = fcntl(file, F_DUPFD_CLOEXEC, 512);
    if (moved < 0)
        moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(file);
    return moved;
}

bool output_create(struct output *output, const char *path)
{
    struct stat status;
    int file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || (file = move_up(file)) < 0 || fstat(file, &status) != 0)
        return false;
    *output = (struct output){file, status.st_dev, status.st_ino, 0, strdup(path)};
    return output->path;
}

static bool is_open(const struct output *output)
{
    struct stat status;
    return fstat(output->file, &status) == 0 && status.st_dev == output->device && status.st_ino == output->inode;
}

/* RATIONALE: the program may have closed this descriptor and opened a file of its own, which gets
 * the same number. That file must not be written to. */
bool output_keep(struct output *output)
{
    if (is_open(output))
        return true;
    int file = open(output->path, O_RDWR | O_CLOEXEC);
    output->file = file < 0 ? -1 : move_up(file);
    return is_open(output);
}

void *output_map(struct output *output)
{
    if (!file_size_allowed(LOG_START_SIZE))
        return NULL;
    /* RATIONALE: on a full disk a store into a mapped hole sends SIGBUS to the program. */
    int error;
    do
        error = posix_fallocate(output->file, 0, LOG_START_SIZE);
    while (error == EINTR);
    if (error != 0)
        return NULL;
    void *memory = mmap(NULL, LOG_START_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, output->file, 0);
    output->end = LOG_START_SIZE;
    if (memory == MAP_FAILED)
        return NULL;
    /* RATIONALE: without this, the first call that writes to a page waits for the file system. A
     * kernel older than 5.14 refuses. */
    madvise(memory, LOG_START_SIZE, MADV_POPULATE_WRITE);
    return memory;
}

bool output_append(struct output *output, const void *data, size_t size)
{
    const char *bytes = data;
    if (!file_size_allowed(output->end + (off_t)size) || !output_keep(output))
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
