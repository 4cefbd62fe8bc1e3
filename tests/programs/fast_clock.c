/* A preloaded library that makes CLOCK_MONOTONIC a hundred times as fast. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    __typeof__(&clock_gettime) next = (__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    const int rc = next(clock, now);
    if (rc == 0 && clock == CLOCK_MONOTONIC) {
        const long fast = now->tv_nsec * 100;
        now->tv_sec = now->tv_sec * 100 + fast / 1000000000;
        now->tv_nsec = fast % 1000000000;
    }
    return rc;
}
