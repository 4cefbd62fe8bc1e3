#include "cache_marks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "locks.h"

enum { PAUSE_NS = 1000000, TRIES = 300000, FILES = 2, REPEAT = 100 };

/* RATIONALE: there are two files, and new marks are in one of them while those in the other run out. In
 * a single file the marks of a process that writes all the time would never end. */
struct cache_marks {
    int fd[FILES];
    pthread_mutex_t lock;  /* of all that follows */
    int present;           /* the file for new marks */
    bool any[FILES];       /* it has marks, ... */
    uint64_t until[FILES]; /* ... for which nobody has to wait when so many entries are home */
};

static bool path_of(const char *journals, int number, char path[4096])
{
    return snprintf(path, 4096, "%s/marks.%d", journals, number) < 4096;
}

struct cache_marks *cache_marks_open(const char *journals)
{
    struct cache_marks *marks = calloc(1, sizeof *marks);
    char path[4096];
    bool made = marks != NULL;
    for (int i = 0; marks != NULL && i < FILES; i++) {
        marks->fd[i] = -1;
        if (path_of(journals, i, path))
            marks->fd[i] = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        made = made && marks->fd[i] >= 0;
    }
    if (marks != NULL)
        pthread_mutex_init(&marks->lock, NULL);
    if (made)
        return marks;
    cache_marks_close(marks);
    return NULL;
}

void cache_marks_close(struct cache_marks *marks)
{
    for (int i = 0; marks != NULL && i < FILES; i++)
        lock_close(marks->fd[i]);
    if (marks != NULL)
        pthread_mutex_destroy(&marks->lock);
    free(marks);
}

void cache_marks_remove(const char *journals)
{
    char path[4096];
    for (int i = 0; i < FILES; i++)
        if (path_of(journals, i, path))
            unlink(path);
}

bool cache_mark(struct cache_marks *marks, int64_t low, int64_t high)
{
    pthread_mutex_lock(&marks->lock);
    const int i = marks->present;
    const bool marked = lock_bytes(marks->fd[i], LOCK_SHARED, low, high);
    if (marked) {
        marks->any[i] = true;
        marks->until[i] = UINT64_MAX;
    }
    pthread_mutex_unlock(&marks->lock);
    return marked;
}

void cache_marks_listed(struct cache_marks *marks, uint64_t count)
{
    pthread_mutex_lock(&marks->lock);
    for (int i = 0; i < FILES; i++)
        if (marks->any[i] && marks->until[i] == UINT64_MAX)
            marks->until[i] = count;
    pthread_mutex_unlock(&marks->lock);
}

void cache_unmark(struct cache_marks *marks, uint64_t home)
{
    pthread_mutex_lock(&marks->lock);
    for (int i = 0; i < FILES; i++)
        if (marks->any[i] && marks->until[i] <= home) {
            lock_bytes(marks->fd[i], LOCK_NONE, 0, CACHE_MARKS_END);
            marks->any[i] = false;
        }
    if (marks->any[marks->present] && !marks->any[1 - marks->present])
        marks->present = 1 - marks->present;
    pthread_mutex_unlock(&marks->lock);
}

bool cache_marked(const struct cache_marks *marks, int64_t low, int64_t high)
{
    return lock_held(marks->fd[0], LOCK_ALONE, low, high, false)
        || lock_held(marks->fd[1], LOCK_ALONE, low, high, false);
}

bool cache_marks_await(const struct cache_marks *marks, int64_t low, int64_t high)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int tries = 0;
    for (int i = 0; i < FILES; i++)
        for (; tries <= TRIES && lock_held(marks->fd[i], LOCK_ALONE, low, high, false); tries++) {
            /* RATIONALE: it says that somebody waits. Another thread that waited may have ended it. */
            if (tries % REPEAT == 0)
                lock_bytes(marks->fd[0], LOCK_SHARED, CACHE_MARKS_END, CACHE_MARKS_END + 1);
            nanosleep(&pause, NULL);
        }
    if (tries > 0)
        lock_bytes(marks->fd[0], LOCK_NONE, CACHE_MARKS_END, CACHE_MARKS_END + 1);
    return tries <= TRIES;
}

bool cache_marks_asked(const struct cache_marks *marks)
{
    return lock_held(marks->fd[0], LOCK_ALONE, CACHE_MARKS_END, CACHE_MARKS_END + 1, false);
}
