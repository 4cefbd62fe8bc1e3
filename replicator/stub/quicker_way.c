#include "quicker_way.h"

/* Calls of the next `wait` go this way. */
static void settle(struct quicker_way *quicker, enum way way, uint32_t wait)
{
    quicker->tried = false;
    quicker->wait = wait < LONGEST_WAIT ? wait : LONGEST_WAIT;
    quicker->since = quicker->wait;
    quicker->ticked = 0;
    __atomic_store_n(&quicker->way, way, __ATOMIC_RELAXED);
    __atomic_store_n(&quicker->left, quicker->wait, __ATOMIC_RELAXED);
}

static uint32_t longer(const struct quicker_way *quicker, uint32_t times)
{
    return quicker->wait < SECOND_WAIT ? SECOND_WAIT : times * quicker->wait;
}

void quicker_start(struct quicker_way *quicker, uint32_t wait)
{
    *quicker = (struct quicker_way){0};
    settle(quicker, REPLICA, wait);
}

/* RATIONALE: no addition that other threads wait for. A call that is not counted does no harm. */
bool quicker_known(struct quicker_way *quicker, enum way *way)
{
    const uint32_t left = __atomic_load_n(&quicker->left, __ATOMIC_RELAXED);
    if (left == 0)
        return false;
    *way = __atomic_load_n(&quicker->way, __ATOMIC_RELAXED);
    __atomic_store_n(&quicker->left, left - 1, __ATOMIC_RELAXED);
    return true;
}

bool quicker_is_due(const struct quicker_way *quicker)
{
    return !quicker->tried && __atomic_load_n(&quicker->left, __ATOMIC_RELAXED) == 0;
}

void quicker_begin(struct quicker_way *quicker)
{
    quicker->tried = true;
    for (int way = 0; way < WAYS; way++) {
        quicker->needed[way] = TRIED_CALLS;
        quicker->least[way] = INT64_MAX;
    }
}

void quicker_decline(struct quicker_way *quicker)
{
    settle(quicker, REPLICA, longer(quicker, 2));
}

/* RATIONALE: from memory both ways copy the same bytes, and chance decides between times that are
 * nearly equal. MPI's own call is the safe one: the program is then as fast as without pdla. */
static enum way way_of(const int64_t *least)
{
    return least[ORIGINAL] - least[ORIGINAL] / 8 < least[REPLICA] ? ORIGINAL : REPLICA;
}

static enum way other(enum way way)
{
    return way == REPLICA ? ORIGINAL : REPLICA;
}

/* RATIONALE: the way in use comes first. Its time tells whether the other way is so slow that two
 * calls are enough. */
enum way quicker_tries(const struct quicker_way *quicker)
{
    const enum way used = quicker->way;
    return quicker->needed[used] >= quicker->needed[other(used)] ? used : other(used);
}

void quicker_timed(struct quicker_way *quicker, enum way way, int64_t nanoseconds)
{
    const enum way used = quicker->way;
    int64_t *least = quicker->least;
    if (!quicker->tried || quicker->needed[way] == 0)
        return;
    quicker->needed[way]--;
    if (nanoseconds < least[way])
        least[way] = nanoseconds;
    const bool too_slow = quicker->needed[other(used)] <= TRIED_CALLS - COLD_CALLS
        && least[other(used)] / TOO_SLOW > least[used];
    if (!too_slow && quicker->needed[REPLICA] + quicker->needed[ORIGINAL] > 0)
        return;
    const enum way next = too_slow ? used : way_of(least);
    settle(quicker, next, longer(quicker, next == used ? 2 : 1));
}

void quicker_ticked(struct quicker_way *quicker, int64_t nanoseconds)
{
    if (quicker->tried || quicker->way != ORIGINAL)
        return;
    quicker->ticked += nanoseconds;
    if (quicker->ticked < SLOW_NANOSECONDS)
        return;
    const uint32_t left = __atomic_load_n(&quicker->left, __ATOMIC_RELAXED);
    const int64_t calls = quicker->since > left ? quicker->since - left : 1;
    if (quicker->ticked / calls / TOO_SLOW > quicker->least[REPLICA])
        __atomic_store_n(&quicker->left, 0, __ATOMIC_RELAXED);
    quicker->since = left;
    quicker->ticked = 0;
}
