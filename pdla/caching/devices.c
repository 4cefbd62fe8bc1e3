/* What a device needs before it transfers the first byte (pdla.layouts.devices). */
#include "core.h"

double startup(const struct caching_device *device, int64_t op, int64_t distance)
{
    const struct caching_curve *curve = &device->startup[op];
    const int64_t *at = curve->distance;
    const double *seconds = curve->seconds;
    int64_t points = curve->points, after = 0;
    while (after < points && (distance < 0 || at[after] <= distance))
        after++;
    if (after == 0)
        return seconds[0];
    if (after == points)
        return seconds[points - 1];
    double near = seconds[after - 1], far = seconds[after];
    return near + (far - near) * (double)(distance - at[after - 1]) / (double)(at[after] - at[after - 1]);
}
