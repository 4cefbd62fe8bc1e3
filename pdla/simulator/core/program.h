/* What ranks do: accesses from loop nests and tables, one at a time. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "simulator.h"

enum { DEPTH = 12 }; /* loops of a nest */

/* A place in a nest. The loops outside `bottom` keep their places. */
struct cursor {
    int64_t bottom, depth;
    const struct sim_loop *loop;
    int64_t offset[DEPTH + 1], length[DEPTH + 1], turn[DEPTH], count[DEPTH];
};

/* The accesses of a call that are still to come: `left` of a cursor's, or items. */
struct pieces {
    const struct sim_input *in;
    const struct sim_item *item, *end;
    int64_t left;
    bool in_nest;
    struct cursor cursor;
};

/* Moves to the first access of the nest at `position` of the outer `bottom` loops. False: there is
 * none. */
bool cursor_begin(struct cursor *cursor, const struct sim_input *in, const struct sim_nest *nest, int64_t bottom,
                  int64_t position);

/* Moves to the next access. False: that was the last one. */
bool cursor_next(struct cursor *cursor);

/* Copies only the loops that there are. */
void pieces_copy(struct pieces *to, const struct pieces *from);

/* The next access. False: there is none. */
bool pieces_next(struct pieces *pieces, int64_t *start, int64_t *stop);

#endif
