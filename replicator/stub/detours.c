#include "detours.h"

#include "read_coalescing.h"
#include "replica_choice.h"

enum { MOST = 8 }; /* in a row are served from the replica */

/* Whether a read is a small one, to which the ranks come in order from the one before. */
static bool is_in_order(struct detours *detours, const struct view_range *range, int ranks)
{
    if (range->bytes >= SCATTER_BYTES)
        return false;
    const int64_t start = view_range_first(range), end = view_range_last(range) + 1;
    const int64_t from = __atomic_exchange_n(&detours->end, end, __ATOMIC_RELAXED);
    return from <= start && is_dense(range->bytes, ranks, from, end);
}

bool detours_avoid(struct detours *detours, const struct view_range *range, int ranks)
{
    if (__atomic_load_n(&detours->many, __ATOMIC_RELAXED) < MOST)
        return false;
    const bool avoid = is_in_order(detours, range, ranks);
    if (!avoid)
        __atomic_store_n(&detours->many, 0, __ATOMIC_RELAXED);
    return avoid;
}

void detours_note(struct detours *detours, const struct view_range *range, int ranks, const struct tally *replica)
{
    const bool detour = replica->contiguous < replica->requests && is_in_order(detours, range, ranks);
    const int many = detour ? __atomic_load_n(&detours->many, __ATOMIC_RELAXED) + 1 : 0;
    __atomic_store_n(&detours->many, many, __ATOMIC_RELAXED);
}
