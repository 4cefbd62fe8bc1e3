#include "cache_gain.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "interpose.h"

/* RATIONALE: less than these bytes of a file tell more of the moment than of the storage. */
enum { LEAST_BYTES = 1 << 20 };

/* What the files of a series have shown. */
struct series {
    char *name;             /* their path without digits */
    enum cache_gain_guess guess;
    double cached, straight; /* ns that a byte took when it was last written this way; 0: not known */
    int64_t delay;          /* ns: a cache gained something if the program computed for longer */
    struct series *next;
};

struct cache_gain {
    struct series *series;
    bool hides;
    pthread_mutex_t lock; /* of all that follows */
    int depth;            /* of waits that have begun and not ended */
    bool writes, written; /* the outermost one is for a write; so was the one before it */
    int64_t since, ended; /* when the outermost one began, and the one before it ended: clock_ns() */
    int64_t waited, computed; /* ns: in all waits; between a write and the next wait */
    int64_t delay;        /* ns: of the first write, and of the first one after all bytes were home */
    int64_t bytes;        /* written */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of what is in it */
static struct series *all; /* none is ever taken out */

/* NULL: out of memory. */
static char *without_digits(const char *path)
{
    char *name = malloc(strlen(path) + 1), *end = name;
    if (name == NULL)
        return NULL;
    for (const char *at = path; *at != '\0'; at++)
        if (!isdigit((unsigned char)*at))
            *end++ = *at;
    *end = '\0';
    return name;
}

/* NULL: out of memory. */
static struct series *series_of(const char *path)
{
    char *name = without_digits(path);
    if (name == NULL)
        return NULL;
    pthread_mutex_lock(&all_lock);
    struct series *series = all;
    while (series != NULL && strcmp(series->name, name) != 0)
        series = series->next;
    if (series == NULL && (series = calloc(1, sizeof *series)) != NULL) {
        series->name = name;
        series->next = all;
        all = series;
        name = NULL;
    }
    pthread_mutex_unlock(&all_lock);
    free(name);
    return series;
}

struct cache_gain *cache_gain_make(const char *path, bool hides)
{
    struct cache_gain *gain = calloc(1, sizeof *gain);
    if (gain == NULL || (gain->series = series_of(path)) == NULL) {
        free(gain);
        return NULL;
    }
    gain->hides = hides;
    pthread_mutex_init(&gain->lock, NULL);
    return gain;
}

void cache_gain_free(struct cache_gain *gain)
{
    if (gain == NULL)
        return;
    pthread_mutex_destroy(&gain->lock);
    free(gain);
}

enum cache_gain_guess cache_gain_guess(const struct cache_gain *gain)
{
    pthread_mutex_lock(&all_lock);
    const enum cache_gain_guess guess = gain->series->guess;
    pthread_mutex_unlock(&all_lock);
    return guess;
}

void cache_gain_wait_begins(struct cache_gain *gain, int64_t bytes)
{
    if (gain == NULL)
        return;
    pthread_mutex_lock(&gain->lock);
    if (gain->depth++ == 0) {
        gain->since = clock_ns();
        gain->writes = bytes != GAIN_HOME;
        gain->computed += gain->written ? gain->since - gain->ended : 0;
    }
    gain->bytes += bytes > 0 ? bytes : 0;
    pthread_mutex_unlock(&gain->lock);
}

void cache_gain_wait_ends(struct cache_gain *gain)
{
    if (gain == NULL)
        return;
    pthread_mutex_lock(&gain->lock);
    if (--gain->depth == 0) {
        gain->ended = clock_ns();
        gain->waited += gain->ended - gain->since;
        gain->delay += gain->writes && !gain->written ? gain->ended - gain->since : 0;
        gain->written = gain->writes;
    }
    pthread_mutex_unlock(&gain->lock);
}

void cache_gain_learn(const struct cache_gain *gain, bool straight)
{
    if (gain == NULL || gain->bytes < LEAST_BYTES)
        return;
    struct series *series = gain->series;
    const double each = (double)gain->waited / (double)gain->bytes;
    pthread_mutex_lock(&all_lock);
    if (straight) {
        series->straight = each;
    } else {
        series->cached = each;
        series->delay = gain->delay;
    }
    const bool hidden = gain->hides && gain->computed > series->delay;
    const bool slower = series->straight > 0 && series->straight > series->cached;
    series->guess = hidden || slower ? GAIN_LIKELY : GAIN_UNLIKELY;
    pthread_mutex_unlock(&all_lock);
}
