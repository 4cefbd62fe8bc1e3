/* The times of calls, for an observer: ticks of the cheapest clock that all processes of the node
 * share. They are cycles of the processor's counter where the kernel itself keeps time with it,
 * otherwise the nanoseconds of CLOCK_MONOTONIC. */
#ifndef PDLA_TICKS_H
#define PDLA_TICKS_H

#include <stdbool.h>
#include <stdint.h>

int64_t clock_ns(void); /* CLOCK_MONOTONIC */

extern bool ticks_are_cycles; /* set by ticks_choose() only */

#ifdef __x86_64__
/* RATIONALE: LFENCE waits until all earlier loads have their values. Without it the processor may
 * read its counter before it sees the message that allowed the program to make the call. */
static inline int64_t ticks_at_begin(void)
{
    if (!ticks_are_cycles)
        return clock_ns();
    __builtin_ia32_lfence();
    return (int64_t)__builtin_ia32_rdtsc();
}

/* RATIONALE: the counter is read before any later store is visible, so that no other process can
 * have seen that the call was over. That needs no LFENCE, which costs as much as the reading. */
static inline int64_t ticks_at_end(void)
{
    return ticks_are_cycles ? (int64_t)__builtin_ia32_rdtsc() : clock_ns();
}
#else
static inline int64_t ticks_at_begin(void)
{
    return clock_ns();
}

static inline int64_t ticks_at_end(void)
{
    return clock_ns();
}
#endif

/* One moment by both clocks. The reader of a log converts ticks by such pairs. */
struct ticks_anchor {
    int64_t ticks, ns; /* ns: CLOCK_MONOTONIC */
};
struct ticks_anchor ticks_now(void);

/* Before the first call: decides which clock is read, and notes the moment. */
void ticks_choose(void);
extern struct ticks_anchor ticks_chosen;

#endif
