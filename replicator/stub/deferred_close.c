#include "deferred_close.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "node_home.h"
#include "open.h"
#include "report.h"
#include "stale_journals.h"
#include "write_open.h"
#include "write_stats.h"

struct deferred_close {
    struct file_handle handle; /* the first member */
    struct redirection redirection;
    uint32_t guard;
    bool closed;               /* atomic; by the program */
    bool tried;                /* this process's bytes are home, or cannot be brought there */
    struct write_stats *written;
    struct deferred_close *next;
    char path[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct deferred_close *closed_files;
static int unsaid; /* atomic; the first error since the last one that was said */

struct deferred_close *deferred_close_make(struct writer *writer, const struct file_handle *handle, uint32_t guard)
{
    const size_t length = strlen(writer->path) + 1;
    struct deferred_close *one = guard == 0 ? NULL : calloc(1, sizeof *one + length);
    if (one == NULL)
        return NULL;
    one->handle.intercepted = &one->redirection;
    one->redirection.writer = writer;
    if (reader_of(handle) != NULL)
        one->redirection.reader = reader_to_mark(writer->map, writer->path);
    one->guard = guard;
    one->written = writer->written;
    memcpy(one->path, writer->path, length);
    return one;
}

void deferred_close_free(struct deferred_close *one)
{
    if (one != NULL && one->redirection.reader != NULL)
        reader_free(one->redirection.reader);
    free(one);
}

struct file_handle *deferred_close_handle(struct deferred_close *one)
{
    return &one->handle;
}

void deferred_close_begin(struct deferred_close *one)
{
    pthread_mutex_lock(&lock);
    one->next = closed_files;
    closed_files = one;
    pthread_mutex_unlock(&lock);
    __atomic_store_n(&one->closed, true, __ATOMIC_RELEASE);
    mover_wake();
}

static void bring_home(struct deferred_close *one)
{
    struct writer *writer = one->redirection.writer;
    const int error = node_home_rest(&one->handle);
    one->tried = true;
    if (error == 0)
        return;
    pthread_mutex_lock(&one->written->lock);
    one->written->error = error;
    pthread_mutex_unlock(&one->written->lock);
    print_message("%s: the program has closed it, but its newest bytes could not be brought home (%s): they are in "
                  "caches (run pdla sync)", writer->path, strerror(error));
    int none = 0;
    __atomic_compare_exchange_n(&unsaid, &none, error, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void end(struct deferred_close *one)
{
    writer_end(one->redirection.writer);
    pthread_mutex_lock(&lock);
    struct deferred_close **link = &closed_files;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    deferred_close_free(one);
}

/* RATIONALE: the ranks end without calls of MPI, and no journal goes before all bytes are home: one of
 * them may be the only one with the last state of the original. So each rank leaves its journal, and
 * rank 0 removes them all when no process has them open. */
enum mover_next deferred_close_move(struct file_handle *handle)
{
    struct deferred_close *one = (struct deferred_close *)handle;
    const struct writer *writer = one->redirection.writer;
    if (!__atomic_load_n(&one->closed, __ATOMIC_ACQUIRE))
        return node_home_some(handle);
    if (!one->tried)
        bring_home(one);
    if (writer->rank == 0 && stale_journals_in_use(writer->journals, writer->journal.path))
        return MOVER_AGAIN;
    end(one);
    return MOVER_LEFT;
}

static struct deferred_close *find(const char *path, uint32_t guard)
{
    struct deferred_close *one = closed_files;
    while (one != NULL && path != NULL && strcmp(one->path, path) != 0 && (guard == 0 || one->guard != guard))
        one = one->next;
    return one;
}

void deferred_close_await(const char *path, uint32_t guard)
{
    const int64_t start = clock_ns();
    pthread_mutex_lock(&lock);
    const struct deferred_close *one = find(path, guard);
    struct write_stats *written = one == NULL ? NULL : one->written;
    if (one != NULL)
        mover_hurry(true);
    for (; one != NULL; one = find(path, guard))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (written == NULL)
        return;
    mover_hurry(false);
    pthread_mutex_lock(&written->lock);
    written->waited_ns += (uint64_t)(clock_ns() - start);
    pthread_mutex_unlock(&written->lock);
}

int deferred_close_error(void)
{
    return __atomic_exchange_n(&unsaid, 0, __ATOMIC_ACQ_REL);
}
