#include "ranges.h"

#include <stdlib.h>
#include <string.h>

static int by_start(const void *one, const void *other)
{
    const struct range *a = one, *b = other;
    if (a->replica != b->replica)
        return a->replica < b->replica ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* The end of the ascending run that begins at `first`. */
static size_t run_end(const struct range *ranges, size_t first, size_t count)
{
    size_t end = first + (first < count);
    while (end < count && by_start(&ranges[end - 1], &ranges[end]) <= 0)
        end++;
    return end;
}

/* Merges each two runs in `from` into one in `to`. */
static void merge_runs(const struct range *from, struct range *to, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        const size_t middle = run_end(from, first, count);
        end = run_end(from, middle, count);
        for (size_t one = first, other = middle, at = first; at < end; at++)
            to[at] = other == end || (one < middle && by_start(&from[one], &from[other]) <= 0) ? from[one++]
                                                                                                : from[other++];
    }
}

/* RATIONALE: the ranges of several journals are a few ascending runs, which takes few merges. */
static void sort(struct range *ranges, size_t count)
{
    struct range *spare = malloc(count * sizeof *spare), *from = ranges, *to = spare;
    if (spare == NULL) {
        qsort(ranges, count, sizeof *ranges, by_start);
        return;
    }
    while (run_end(from, 0, count) < count) {
        merge_runs(from, to, count);
        struct range *const done = to;
        to = from;
        from = done;
    }
    if (from != ranges)
        memcpy(ranges, from, count * sizeof *ranges);
    free(spare);
}

size_t ranges_merge(struct range *ranges, size_t count)
{
    size_t last = 0;
    if (count == 0)
        return 0;
    sort(ranges, count);
    for (size_t i = 1; i < count; i++) {
        if (ranges[i].replica == ranges[last].replica && ranges[i].start <= ranges[last].stop)
            ranges[last].stop = ranges[i].stop > ranges[last].stop ? ranges[i].stop : ranges[last].stop;
        else
            ranges[++last] = ranges[i];
    }
    return last + 1;
}

size_t ranges_after(const struct range *ranges, size_t count, int64_t replica, int64_t offset)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].replica < replica || (ranges[middle].replica == replica && ranges[middle].stop <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
