/* Which clock times the calls. */
#include "ticks.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <fcntl.h>
#include <unistd.h>

/* The counter counts at one rate in all states of the processor. */
static bool is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d >> 8 & 1;
}

/* RATIONALE: the kernel watches the counters. It takes another clock if they differ between
 * processors, do not keep their rate, or are not those of the machine under a hypervisor. */
static bool is_clock_of_kernel(void)
{
    char name[8] = "";
    int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? 0 : read(file, name, sizeof name - 1);
    if (file >= 0)
        close(file);
    return size > 0 && strcmp(name, "tsc\n") == 0;
}
#else
static bool is_invariant(void)
{
    return false;
}

static bool is_clock_of_kernel(void)
{
    return false;
}
#endif

bool ticks_are_cycles;
struct ticks_anchor ticks_chosen;

/* Of a few readings the one between the two nearest ticks is the best. */
struct ticks_anchor ticks_now(void)
{
    struct ticks_anchor best = {0, 0};
    int64_t least = INT64_MAX;
    if (!ticks_are_cycles) {
        best.ticks = best.ns = clock_ns();
        return best;
    }
    for (int i = 0; i < 4; i++) {
        const int64_t before = ticks_at_begin(), ns = clock_ns(), taken = ticks_at_begin() - before;
        if (taken < least) {
            least = taken;
            best = (struct ticks_anchor){before + taken / 2, ns};
        }
    }
    return best;
}

void ticks_choose(void)
{
    ticks_are_cycles = is_invariant() && is_clock_of_kernel();
    ticks_chosen = ticks_now();
}
