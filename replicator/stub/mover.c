#define _GNU_SOURCE
#include "mover.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

enum {
    STACK = 256 << 10,
    PERIOD_NS = 50000000, /* RATIONALE: what is written within a moment goes home together, and looks take time */
    HURRIED_NS = 1000000,
    IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 /* of <linux/ioprio.h>, which older systems lack */
};

static const int64_t FIRST_PAUSE_NS = 100000000, LONGEST_PAUSE_NS = 10000000000;

struct watched {
    struct file_handle *handle;
    enum mover_next (*move)(struct file_handle *);
    bool busy; /* the thread is at work on it */
    struct watched *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct watched *files;
static pthread_t thread;
static bool runs, ends;
static bool wanted; /* atomic; something was written */
static int waiting; /* threads of the program that wait */
static int64_t pause_ns; /* before it is tried again, since it failed; 0: it did not */

static struct timespec moment_after(int64_t ns)
{
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    ns += moment.tv_nsec;
    moment.tv_sec += ns / 1000000000;
    moment.tv_nsec = ns % 1000000000;
    return moment;
}

static int64_t longer(int64_t pause)
{
    return pause == 0 ? FIRST_PAUSE_NS : 2 * pause < LONGEST_PAUSE_NS ? 2 * pause : LONGEST_PAUSE_NS;
}

/* Waits until it is time for more work after the last one, which began at `began`. */
static void pace(int64_t began)
{
    int64_t left;
    while (!ends && (left = began + (waiting > 0 ? HURRIED_NS : PERIOD_NS) - clock_ns()) > 0) {
        const struct timespec until = moment_after(left);
        pthread_cond_timedwait(&changed, &lock, &until);
    }
}

static void forget(struct watched *file)
{
    struct watched **link = &files;
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    free(file);
}

/* Waits for a write, or until the pause after a failure is over. */
static void await_work(void)
{
    const struct timespec until = moment_after(pause_ns);
    if (pause_ns == 0)
        pthread_cond_wait(&changed, &lock);
    else if (pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT)
        __atomic_store_n(&wanted, true, __ATOMIC_RELEASE);
}

/* Works on each file once. RATIONALE: the list may change while the lock is not held. */
static enum mover_next work(void)
{
    enum mover_next most = MOVER_WAITS;
    for (struct watched *file = files, *after; file != NULL && !ends; file = after) {
        file->busy = true;
        pthread_mutex_unlock(&lock);
        const enum mover_next next = file->move(file->handle);
        pthread_mutex_lock(&lock);
        file->busy = false;
        pthread_cond_broadcast(&changed);
        after = file->next;
        if (next == MOVER_LEFT)
            forget(file);
        else if (next > most)
            most = next;
    }
    return most;
}

static void *run(void *unused)
{
    enter(); /* its calls of the C library are not the program's */
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
    int64_t began = 0;
    pthread_mutex_lock(&lock);
    while (!ends) {
        if (!__atomic_exchange_n(&wanted, false, __ATOMIC_ACQ_REL)) {
            await_work();
            continue;
        }
        pace(began);
        began = clock_ns();
        const enum mover_next next = work();
        if (next == MOVER_AGAIN)
            __atomic_store_n(&wanted, true, __ATOMIC_RELEASE);
        else if (next == MOVER_WAITS)
            pause_ns = 0;
        else
            pause_ns = longer(pause_ns);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

static void begin(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    runs = pthread_create(&thread, &attributes, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

bool mover_watch(struct file_handle *handle, enum mover_next (*move)(struct file_handle *))
{
    struct watched *file = malloc(sizeof *file);
    if (file == NULL)
        return false;
    pthread_mutex_lock(&lock);
    *file = (struct watched){.handle = handle, .move = move, .next = files};
    files = file;
    pthread_mutex_unlock(&lock);
    return true;
}

void mover_leave(struct file_handle *handle)
{
    pthread_mutex_lock(&lock);
    struct watched *file = files;
    while (file != NULL && file->handle != handle)
        file = file->next;
    while (file != NULL && file->busy)
        pthread_cond_wait(&changed, &lock);
    if (file != NULL)
        forget(file);
    pthread_mutex_unlock(&lock);
}

void mover_wake(void)
{
    if (__atomic_exchange_n(&wanted, true, __ATOMIC_ACQ_REL))
        return;
    pthread_mutex_lock(&lock);
    if (!runs && !ends)
        begin();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void mover_hurry(bool waits)
{
    pthread_mutex_lock(&lock);
    waiting += waits ? 1 : -1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool mover_runs(void)
{
    pthread_mutex_lock(&lock);
    if (!runs && !ends)
        begin();
    const bool running = runs;
    pthread_mutex_unlock(&lock);
    return running;
}

void mover_end(void)
{
    pthread_mutex_lock(&lock);
    ends = true;
    const bool join = runs;
    runs = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (join)
        pthread_join(thread, NULL);
}
