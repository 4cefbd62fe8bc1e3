/* The judge of iBridge (Liu, Jiang, Davis, LA-UR-12-23164, 2012), without a core: what an SSD in place of a disk
 * returns for a sub-request. ibridge.c asks it, and a driver whose bytes a policy without return values places. */
#include <math.h>
#include <string.h>

#include "core.h"

double caching_average(double before, double seconds)
{
    return before / 8 + seconds * 7 / 8;
}

double caching_seconds(const struct caching_device *device, int64_t distance, int64_t size, int64_t op)
{
    return startup(device, op, distance) + (double)size * device->seconds_per_byte[op];
}

double caching_bonus(const double *average, int64_t siblings, int64_t number)
{
    double largest = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < siblings; i++) {
        second = average[i] > largest ? largest : average[i] > second ? average[i] : second;
        largest = average[i] > largest ? average[i] : largest;
    }
    return siblings > 1 && average[number] == largest ? (largest - second) * (double)siblings : 0;
}

bool caching_in_order(struct caching_streams *streams, int64_t start, int64_t stop, int64_t ranks)
{
    const double others = (double)(ranks - 1) * (double)(stop - start);
    int64_t *stops = streams->stop, before = 0;
    while (before < CACHING_STREAMS && (start < stops[before] || (double)(start - stops[before]) > others))
        before++;
    const bool goes_on = before < CACHING_STREAMS;
    memmove(stops + 1, stops, (size_t)(goes_on ? before : CACHING_STREAMS - 1) * sizeof *stops);
    stops[0] = stop;
    return goes_on;
}

bool caching_split(int64_t strip, int64_t servers, int64_t start, int64_t stop, int64_t few,
                   struct caching_split *split)
{
    const int64_t first = start / strip, parts = (stop - 1) / strip - first + 1;
    *split = (struct caching_split){.first = first, .siblings = parts < servers ? parts : servers};
    if (parts > servers)
        return false;
    const int64_t head = parts == 1 ? stop - start : (first + 1) * strip - start;
    const int64_t tail = parts == 1 ? 0 : stop - (first + parts - 1) * strip;
    split->head = head < few ? head : 0;
    split->tail = tail < few ? tail : 0;
    return split->head > 0 || split->tail > 0;
}
