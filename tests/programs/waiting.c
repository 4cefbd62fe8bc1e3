/* Part of the programs that tests compile. Ranks that wait call sched_yield again and again. Where ranks outnumber the
 * processors, most turns go to ranks that have nothing to do but to yield again. Here one call of four sleeps, and
 * collective calls of four ranks on two processors need a tenth of the time. This is C and C++. */
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread unsigned calls;
static const struct timespec nap = {0, 20000};

int sched_yield(void)
{
    return ++calls % 4 ? (int)syscall(SYS_sched_yield) : nanosleep(&nap, NULL);
}
