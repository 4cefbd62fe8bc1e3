/* The events to come: a heap by (time, priority, order of adding). */
#ifndef EVENTS_H
#define EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
    double time;
    uint64_t order; /* priority, sequence number, kind */
    void *what;
};

struct events {
    struct event *at;
    size_t count, room;
    uint64_t sequence;
};

/* Kinds are below 16. At the same time priority 0 comes before 1. False: no memory. */
bool events_add(struct events *events, double time, unsigned priority, unsigned kind, void *what);

/* The next event. False: there is none. */
bool events_take(struct events *events, struct event *next);

static inline unsigned event_kind(const struct event *event)
{
    return event->order & 15;
}

#endif
