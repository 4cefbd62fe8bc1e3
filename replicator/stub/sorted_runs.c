#include "sorted_runs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct items {
    char *at;
    size_t size;
    int (*compare)(const void *, const void *);
};

static char *item(const struct items *items, size_t number) { return items->at + number * items->size; }

/* The end of the ascending run that begins at `first`. */
static size_t run_end(const struct items *items, size_t first, size_t count)
{
    size_t end = first + (first < count);
    while (end < count && items->compare(item(items, end - 1), item(items, end)) <= 0)
        end++;
    return end;
}

/* Merges the runs [first, middle) and [middle, end) in `from` into one in `to`. */
static void merge(const struct items *from, const struct items *to, size_t first, size_t middle, size_t end)
{
    size_t one = first, other = middle, at = first;
    for (; one < middle && other < end; at++) {
        const bool left = from->compare(item(from, one), item(from, other)) <= 0;
        memcpy(item(to, at), item(from, left ? one : other), from->size);
        one += left;
        other += !left;
    }
    memcpy(item(to, at), item(from, one), (middle - one) * from->size);
    memcpy(item(to, at + middle - one), item(from, other), (end - other) * from->size);
}

/* Merges each two runs. */
static void merge_runs(const struct items *from, const struct items *to, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        const size_t middle = run_end(from, first, count);
        end = run_end(from, middle, count);
        merge(from, to, first, middle, end);
    }
}

void sort_runs(void *items, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    struct items from = {items, size, compare}, to = {NULL, size, compare};
    if (run_end(&from, 0, count) == count)
        return;
    char *const spare = to.at = malloc(count * size);
    if (spare == NULL) {
        qsort(items, count, size, compare);
        return;
    }
    do {
        merge_runs(&from, &to, count);
        const struct items done = to;
        to = from;
        from = done;
    } while (run_end(&from, 0, count) < count);
    if (from.at == spare)
        memcpy(items, spare, count * size);
    free(spare);
}
