#include "program.h"

#include <string.h>

static void place(struct cursor *cursor, int64_t level)
{
    const struct sim_loop *loop = &cursor->loop[level];
    int64_t i = cursor->turn[level];
    cursor->offset[level + 1] = cursor->offset[level] + i * loop->stride + loop->grow_stride * (i * (i - 1) / 2);
    cursor->length[level + 1] = cursor->length[level] + i * loop->grow_length;
}

/* Sets the loops from `level` on to their first iterations. If one has none, the loop around it
 * goes on. */
static bool to_first_iterations(struct cursor *cursor, int64_t level)
{
    for (; level < cursor->depth; level++) {
        int64_t more = level > 0 ? cursor->loop[level - 1].grow_count * cursor->turn[level - 1] : 0;
        cursor->turn[level] = 0;
        cursor->count[level] = cursor->loop[level].count + more;
        if (cursor->count[level] <= 0) {
            do {
                if (--level < cursor->bottom)
                    return false;
            } while (++cursor->turn[level] >= cursor->count[level]);
        }
        place(cursor, level);
    }
    return true;
}

/* Iterations of the loops [level, bottom), if that of `level` has so many. */
static int64_t iterations(const struct cursor *cursor, int64_t level, int64_t count)
{
    if (count <= 0)
        return 0;
    if (level + 1 == cursor->bottom)
        return count;
    const struct sim_loop *loop = &cursor->loop[level];
    if (loop->grow_count == 0)
        return count * iterations(cursor, level + 1, loop[1].count);
    int64_t sum = 0;
    for (int64_t turn = 0; turn < count; turn++)
        sum += iterations(cursor, level + 1, loop[1].count + loop->grow_count * turn);
    return sum;
}

/* Sets the outer loops to their iteration number `position`. */
static void turn_to(struct cursor *cursor, int64_t position)
{
    int64_t more = 0;
    for (int64_t level = 0; level < cursor->bottom; level++) {
        const struct sim_loop *loop = &cursor->loop[level];
        int64_t turn = 0, inside = 1;
        bool is_last = level + 1 == cursor->bottom;
        if (is_last || loop->grow_count == 0) {
            inside = is_last ? 1 : iterations(cursor, level + 1, loop[1].count);
            turn = position / inside;
            position %= inside;
        } else {
            while ((inside = iterations(cursor, level + 1, loop[1].count + loop->grow_count * turn)) <= position) {
                position -= inside;
                turn++;
            }
        }
        cursor->count[level] = loop->count + more;
        cursor->turn[level] = turn;
        more = loop->grow_count * turn;
    }
}

bool cursor_begin(struct cursor *cursor, const struct sim_input *in, const struct sim_nest *nest, int64_t bottom,
                  int64_t position)
{
    cursor->bottom = bottom;
    cursor->depth = nest->depth;
    cursor->loop = in->loop + nest->loops;
    cursor->offset[0] = nest->start;
    cursor->length[0] = nest->length;
    turn_to(cursor, position);
    for (int64_t level = 0; level < bottom; level++)
        place(cursor, level);
    return to_first_iterations(cursor, bottom);
}

bool cursor_next(struct cursor *cursor)
{
    int64_t level = cursor->depth - 1;
    while (level >= cursor->bottom && ++cursor->turn[level] >= cursor->count[level])
        level--;
    if (level < cursor->bottom)
        return false;
    place(cursor, level);
    return to_first_iterations(cursor, level + 1);
}

void pieces_copy(struct pieces *to, const struct pieces *from)
{
    to->in = from->in;
    to->item = from->item;
    to->end = from->end;
    to->left = from->left;
    to->in_nest = from->in_nest;
    if (from->left == 0 && !from->in_nest)
        return;
    const struct cursor *cursor = &from->cursor;
    to->cursor.bottom = cursor->bottom;
    to->cursor.depth = cursor->depth;
    to->cursor.loop = cursor->loop;
    size_t levels = (size_t)cursor->depth * sizeof cursor->turn[0];
    memcpy(to->cursor.turn, cursor->turn, levels);
    memcpy(to->cursor.count, cursor->count, levels);
    memcpy(to->cursor.offset, cursor->offset, levels + sizeof cursor->turn[0]);
    memcpy(to->cursor.length, cursor->length, levels + sizeof cursor->turn[0]);
}

bool pieces_next(struct pieces *pieces, int64_t *start, int64_t *stop)
{
    struct cursor *cursor = &pieces->cursor;
    if (pieces->left == 0 && !pieces->in_nest) {
        if (pieces->item == pieces->end)
            return false;
        const struct sim_item *item = pieces->item++;
        if (item->form < 0) {
            *start = item->offset;
            *stop = item->offset + item->length;
            return true;
        }
        const struct sim_nest *form = &pieces->in->nest[item->form];
        struct sim_nest nest = {item->offset, item->length, form->loops, form->depth};
        pieces->in_nest = cursor_begin(cursor, pieces->in, &nest, 0, 0);
        if (!pieces->in_nest)
            return pieces_next(pieces, start, stop);
    }
    *start = cursor->offset[cursor->depth];
    *stop = *start + cursor->length[cursor->depth];
    if (pieces->left > 0) {
        if (--pieces->left > 0 && !cursor_next(cursor))
            pieces->left = 0;
    } else {
        pieces->in_nest = cursor_next(cursor);
    }
    return true;
}
