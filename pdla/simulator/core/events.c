#include "events.h"

#include <stdlib.h>

/* RATIONALE: the four children of a node are adjacent in memory, and the heap is half as deep as
 * one with two children. */
enum { CHILDREN = 4 };

static bool earlier(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

bool events_add(struct events *events, double time, unsigned priority, unsigned kind, void *what)
{
    if (events->count == events->room) {
        size_t room = events->room ? 2 * events->room : 1024;
        struct event *at = realloc(events->at, room * sizeof *at);
        if (!at)
            return false;
        events->at = at;
        events->room = room;
    }
    struct event added = {time, (uint64_t)priority << 63 | events->sequence++ << 4 | kind, what};
    size_t place = events->count++;
    while (place > 0) {
        size_t parent = (place - 1) / CHILDREN;
        if (!earlier(&added, &events->at[parent]))
            break;
        events->at[place] = events->at[parent];
        place = parent;
    }
    events->at[place] = added;
    return true;
}

bool events_take(struct events *events, struct event *next)
{
    if (events->count == 0)
        return false;
    *next = events->at[0];
    struct event moved = events->at[--events->count];
    size_t place = 0;
    for (;;) {
        size_t child = CHILDREN * place + 1, end = child + CHILDREN, first = child;
        if (child >= events->count)
            break;
        end = end < events->count ? end : events->count;
        for (child++; child < end; child++)
            if (earlier(&events->at[child], &events->at[first]))
                first = child;
        if (!earlier(&events->at[first], &moved))
            break;
        events->at[place] = events->at[first];
        place = first;
    }
    events->at[place] = moved;
    return true;
}
