/* Sorting what is in order for long stretches: the entries of several journals are a few ascending runs, which takes
 * few merges. */
#ifndef PDLA_SORTED_RUNS_H
#define PDLA_SORTED_RUNS_H

#include <stddef.h>

/* As qsort(); items that compare equal keep their order, if there is memory. */
void sort_runs(void *items, size_t count, size_t size, int (*compare)(const void *, const void *));

#endif
