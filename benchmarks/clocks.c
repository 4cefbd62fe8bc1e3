/* Prints the nanoseconds of CPU of two readings of the clock that times a call, of two readings of
 * CLOCK_MONOTONIC, and of two of the cheapest clock that is in order (the same as the first, but
 * both in order). The least of rounds. */
#include <stdio.h>
#include <time.h>

#include "ticks.h"

enum { ROUNDS = 200, EACH = 10000 };

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static volatile int64_t sink;

#define LEAST(first, second)                                                 \
    do {                                                                     \
        double least = 1e9;                                                  \
        for (int round = 0; round < ROUNDS; round++) {                       \
            const int64_t start = clock_ns();                                \
            for (int i = 0; i < EACH; i++) {                                 \
                sink = first;                                                \
                sink = second;                                               \
            }                                                                \
            const double each = (double)(clock_ns() - start) / EACH;         \
            least = each < least ? each : least;                             \
        }                                                                    \
        printf("%.1f ", least);                                              \
    } while (0)

int main(void)
{
    ticks_choose();
    LEAST(ticks_at_begin(), ticks_at_end());
    LEAST(clock_ns(), clock_ns());
    LEAST(ticks_at_begin(), ticks_at_begin());
    return 0;
}
