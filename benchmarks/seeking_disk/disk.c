#include "disk.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* The nearest request is served first. A request that has waited for this many seconds goes before
 * all others. */
#define PATIENCE 0.2

struct disk {
    struct model model;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct request *first, **last; /* in the order of their arrival */
    uint64_t head;
    struct counters counters;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_until(double moment)
{
    struct timespec time = {.tv_sec = (time_t)moment, .tv_nsec = (long)((moment - floor(moment)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

static uint64_t distance(const struct disk *disk, const struct request *request)
{
    return request->offset > disk->head ? request->offset - disk->head : disk->head - request->offset;
}

/* The request to serve at `start`, which leaves the queue. Requests that arrive later do not count.
 */
static struct request *next(struct disk *disk, double start)
{
    struct request **best = &disk->first, *taken;
    if (start - disk->first->arrived < PATIENCE)
        for (struct request **one = &disk->first; *one && (*one)->arrived <= start; one = &(*one)->next)
            if (distance(disk, *one) < distance(disk, *best))
                best = one;
    taken = *best;
    *best = taken->next;
    if (!taken->next)
        disk->last = best;
    return taken;
}

/* Moves the head over a request, and returns the seconds that it takes. */
static double pass(struct disk *disk, const struct request *request)
{
    const struct model *model = &disk->model;
    const uint64_t apart = distance(disk, request);
    double seconds = (double)request->length / model->bandwidth;
    if (apart) {
        const double seek = model->shortest + (model->longest - model->shortest) * sqrt((double)apart / model->size);
        seconds += model->overhead + seek + model->rotation;
        disk->counters.seeks++;
        disk->counters.distance += apart;
    }
    disk->head = request->offset + request->length;
    disk->counters.requests++;
    disk->counters.bytes += request->length;
    disk->counters.busy += seconds;
    return seconds;
}

/* The disk's clock continues from the end of a request, not from when this thread noticed that end.
 * So a busy machine answers late, but does not make the disk slower. */
static void *serve(void *given)
{
    struct disk *disk = given;
    double idle = 0;
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        struct request *request;
        double start;
        while (!disk->first)
            pthread_cond_wait(&disk->work, &disk->lock);
        start = fmax(idle, disk->first->arrived);
        request = next(disk, start);
        idle = start + pass(disk, request);
        pthread_mutex_unlock(&disk->lock);
        sleep_until(idle);
        request->done(request);
        pthread_mutex_lock(&disk->lock);
    }
    return NULL;
}

struct disk *disk_start(const struct model *model)
{
    struct disk *disk = calloc(1, sizeof *disk);
    pthread_t thread;
    if (!disk)
        return NULL;
    disk->model = *model;
    disk->last = &disk->first;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->work, NULL);
    errno = pthread_create(&thread, NULL, serve, disk);
    if (errno) {
        free(disk);
        return NULL;
    }
    return disk;
}

void disk_take(struct disk *disk, struct request *request)
{
    request->next = NULL;
    pthread_mutex_lock(&disk->lock);
    request->arrived = now();
    *disk->last = request;
    disk->last = &request->next;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
}

struct counters disk_counters(struct disk *disk)
{
    struct counters counters;
    pthread_mutex_lock(&disk->lock);
    counters = disk->counters;
    pthread_mutex_unlock(&disk->lock);
    return counters;
}
