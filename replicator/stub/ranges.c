#include "ranges.h"

#include "sorted_runs.h"

static int by_start(const void *one, const void *other)
{
    const struct range *a = one, *b = other;
    if (a->replica != b->replica)
        return a->replica < b->replica ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

size_t ranges_merge(struct range *ranges, size_t count)
{
    size_t last = 0;
    if (count == 0)
        return 0;
    sort_runs(ranges, count, sizeof *ranges, by_start);
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
