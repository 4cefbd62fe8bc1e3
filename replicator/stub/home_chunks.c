#include "home_chunks.h"

#include <stdlib.h>

#include "homeward.h"
#include "sorted_runs.h"

enum { LEAST = 1 << 8 /* chunks, for which there is memory at first */ };

static int by_number(const void *one, const void *other)
{
    const struct home_chunk *a = one, *b = other;
    return (a->number > b->number) - (a->number < b->number);
}

void home_chunks_sort(struct home_chunks *chunks)
{
    size_t kept = 0;
    sort_runs(chunks->at, chunks->count, sizeof *chunks->at, by_number);
    for (size_t i = 0; i < chunks->count; i++)
        if (kept > 0 && chunks->at[kept - 1].number == chunks->at[i].number)
            chunks->at[kept - 1].pieces += chunks->at[i].pieces;
        else
            chunks->at[kept++] = chunks->at[i];
    chunks->count = kept;
}

/* RATIONALE: entries come in the order of the calls, so a chunk may be there many times. */
static bool make_room(struct home_chunks *chunks)
{
    home_chunks_sort(chunks);
    if (chunks->count < chunks->room / 2)
        return true;
    const size_t room = 2 * chunks->room + LEAST;
    struct home_chunk *at = realloc(chunks->at, room * sizeof *at);
    if (at == NULL)
        return false;
    chunks->at = at;
    chunks->room = room;
    return true;
}

bool home_chunks_add(struct home_chunks *chunks, const struct journal_entry *entry, int64_t length)
{
    const int64_t last = (entry->start + length - 1) / HOME_CHUNK;
    for (int64_t number = entry->start / HOME_CHUNK; number <= last; number++) {
        if (chunks->count > 0 && chunks->at[chunks->count - 1].number == number) {
            chunks->at[chunks->count - 1].pieces++;
            continue;
        }
        if (chunks->count == chunks->room && !make_room(chunks))
            return false;
        chunks->at[chunks->count++] = (struct home_chunk){number, 1};
    }
    return true;
}

size_t home_chunks_at_a_time(const struct home_chunks *chunks, size_t most)
{
    size_t all = 0, largest = 0;
    for (size_t i = 0; i < chunks->count; i++) {
        all += chunks->at[i].pieces;
        largest = chunks->at[i].pieces > largest ? chunks->at[i].pieces : largest;
    }
    most = all < most ? all : most;
    return largest > most ? largest : most;
}

size_t home_chunks_until(const struct home_chunks *chunks, size_t first, size_t at_a_time)
{
    size_t pieces = chunks->at[first].pieces, until = first + 1;
    while (until < chunks->count && pieces + chunks->at[until].pieces <= at_a_time)
        pieces += chunks->at[until++].pieces;
    return until;
}

void home_chunks_free(struct home_chunks *chunks)
{
    free(chunks->at);
    *chunks = (struct home_chunks){0};
}
