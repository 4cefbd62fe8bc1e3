#include "service_times.h"

#include <sys/mman.h>

#include "caching.h"
#include "collective_consensus.h"
#include "node_memory.h"

enum { SSD = SERVICE_SERVERS, ALL };

static const double LEAST_IDLE = 0.02; /* seconds: a few requests to disks */

struct service_times {
    int64_t last;         /* clock_ns() of the last request, to home or SSD servers; atomic */
    double average[ALL];  /* seconds; the SSD servers' is the last; atomic */
};

struct service_times *service_times_open(const char *directory)
{
    return node_memory(directory, "times", sizeof(struct service_times));
}

void service_times_close(struct service_times *times)
{
    if (times != NULL)
        munmap(times, sizeof *times);
}

static double average_of(const struct service_times *times, int64_t number)
{
    double average;
    __atomic_load(&times->average[number], &average, __ATOMIC_RELAXED);
    return average;
}

/* RATIONALE: of two processes that change an average at the same time, one may be forgotten: it is an average. */
static void set_average(struct service_times *times, int64_t number, double average)
{
    __atomic_store(&times->average[number], &average, __ATOMIC_RELAXED);
}

double service_time(const struct service_times *times, int64_t server)
{
    return average_of(times, server < 0 ? SSD : server % SERVICE_SERVERS);
}

void service_times_add(struct service_times *times, int64_t base, int64_t first, int64_t count, int64_t servers,
                       double seconds)
{
    double slowest = 0;
    for (int64_t i = 0; i < count; i++) {
        const double average = service_time(times, base + (first + i) % servers);
        slowest = average > slowest ? average : slowest;
    }
    /* RATIONALE: the request has waited for the slowest server. Of the others it says that they took no longer. */
    for (int64_t i = 0; i < count; i++) {
        const int64_t server = base + (first + i) % servers;
        const double average = service_time(times, server);
        if (average == slowest || seconds < average)
            set_average(times, server % SERVICE_SERVERS, caching_average(average, seconds));
    }
    service_times_use(times);
}

void service_times_use(struct service_times *times)
{
    __atomic_store_n(&times->last, clock_ns(), __ATOMIC_RELAXED);
}

/* RATIONALE: a program that writes to the SSD servers goes on. What it has written so far has gaps, for each of which a
 * disk would seek; when it pauses, or syncs, it is contiguous. */
void service_times_add_ssd(struct service_times *times, double seconds)
{
    set_average(times, SSD, caching_average(average_of(times, SSD), seconds));
    service_times_use(times);
}

/* RATIONALE: requests count when they have returned. On slow servers one may be under way for long. */
bool service_times_are_idle(const struct service_times *times)
{
    double slowest = LEAST_IDLE;
    for (int64_t i = 0; i < SERVICE_SERVERS; i++) {
        const double some = 2 * average_of(times, i);
        slowest = some > slowest ? some : slowest;
    }
    return (double)(clock_ns() - __atomic_load_n(&times->last, __ATOMIC_RELAXED)) / 1e9 >= slowest;
}

void service_times_exchange(struct service_times *times, mpi_handle comm)
{
    int64_t mine[2 * ALL], all[2 * ALL]; /* nanoseconds, and whether there are any */
    for (int i = 0; i < ALL; i++) {
        mine[i] = (int64_t)(average_of(times, i) * 1e9);
        mine[ALL + i] = mine[i] > 0;
    }
    if (!agree_reduce(mine, all, 2 * ALL, running_mpi()->op_sum, comm))
        return;
    for (int i = 0; i < ALL; i++)
        if (all[ALL + i] > 0)
            set_average(times, i, (double)all[i] / (double)all[ALL + i] / 1e9);
}
