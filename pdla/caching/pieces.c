/* Whether the ranks of a collective write exchange their pieces first, so that each has whole units of
 * the file for its cache; or each writes its own pieces and its node merges them on their way home; or
 * the MPI library writes them, which reads the gaps between them and writes these again (data sieving). */
#include "core.h"

enum {
    LEAST_UNIT = 1 << 20,
    MOST_UNIT = 8 << 20,
    SIEVED = 16 << 20, /* cb_buffer_size, as ROMIO has it */
    AT_A_TIME = 128
};

static int64_t least(int64_t one, int64_t other) { return one < other ? one : other; }

/* RATIONALE: all ranks are to get something of the call, and a unit is to be a large request. */
static int64_t unit_of(const struct caching_collective *call)
{
    int64_t unit = LEAST_UNIT;
    while (unit < MOST_UNIT && unit < call->span / call->ranks)
        unit *= 2;
    return call->unit > 0 ? least(call->unit, MOST_UNIT) : unit;
}

static int64_t divided(int64_t number, int64_t by) { return number / by + (number % by != 0); }

double caching_stored(const struct caching_costs *costs, int64_t requests, int64_t bytes)
{
    const double begun = (double)requests * costs->request, moved = (double)bytes * costs->byte;
    return costs->overlap == 0 ? begun + moved : begun > moved ? begun : moved;
}

/* Seconds until so many requests are home, of which the program's computation does not hide any. */
static double perceived(const struct caching_collective *call, const struct caching_costs *costs, int64_t requests)
{
    const double home = caching_stored(costs, requests, call->bytes);
    return home > call->compute ? home - call->compute : 0;
}

/* Seconds of the exchange: in each round a rank may send to each that gets a unit. */
static double exchange(const struct caching_collective *call, const struct caching_costs *costs, int64_t units,
                       int64_t at_a_time)
{
    const double nodes = (double)call->nodes, bytes = (double)call->bytes;
    return (double)divided(units, at_a_time) * (double)at_a_time * costs->message
        + bytes / nodes * (nodes - 1) / nodes * costs->network + 2 * bytes / (double)call->ranks * costs->copy;
}

void caching_exchange(const struct caching_collective *call, const struct caching_costs *costs,
                      struct caching_exchange *found)
{
    const int64_t unit = unit_of(call), at_a_time = least(call->ranks, AT_A_TIME);
    const double exchanged = exchange(call, costs, divided(call->span, unit), at_a_time);
    *found = (struct caching_exchange){.unit = unit, .at_a_time = at_a_time};
    found->requests[0] = divided(call->bytes, least(call->piece, MOST_UNIT));
    found->requests[1] = divided(call->bytes, least(call->joined, unit));
    /* The MPI library reads and writes all from the first to the last byte, while the program waits. */
    found->requests[2] = 2 * divided(call->span, call->unit > 0 ? call->unit : SIEVED);
    found->seconds[0] = perceived(call, costs, found->requests[0]);
    found->seconds[1] = perceived(call, costs, found->requests[1]) + exchanged;
    found->seconds[2] = caching_stored(costs, found->requests[2], 2 * call->span) + exchanged;
    found->exchanges = call->nodes > 1 && found->seconds[1] < found->seconds[0];
    /* RATIONALE: gaps that later calls fill are none on the way home. */
    found->sieves = !call->fills && call->joined < call->span
        && found->seconds[2] < found->seconds[found->exchanges];
}
