/* Datatypes as loops: the bytes that a datatype selects, in typemap order.
 *
 * A file view and a memory buffer are the same thing: a datatype tiled at its extent. Both are
 * flattened once into a small tree (a vector of 10^8 blocks is one loop). A cursor walks the tree
 * and can start at any byte of the data stream. */
#ifndef PDLA_TYPEMAP_H
#define PDLA_TYPEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct typemap; /* immutable and reference counted; safe to share between threads */

/* Flattens `datatype`, an MPI handle of the running family. NULL: out of memory, or a combiner is
 * not known. Never raises an MPI error to the program. */
struct typemap *typemap_flatten(uintptr_t datatype);

/* A typemap of `length` contiguous bytes (extent = length > 0). NULL: out of memory. */
struct typemap *typemap_bytes(int64_t length);

struct extent {
    int64_t offset; /* bytes from the start of the file or of the buffer */
    int64_t length; /* > 0 */
};

/* A typemap of `count` > 0 extents, one after another in the data stream. NULL: out of memory. */
struct typemap *typemap_extents(const struct extent *, int64_t count);

struct typemap *typemap_retain(struct typemap *);
void typemap_release(struct typemap *); /* NULL is allowed */

int64_t typemap_size(const struct typemap *);   /* data bytes of one tile */
int64_t typemap_extent(const struct typemap *); /* distance from one tile to the next */
/* True if any number of tiles is one run of bytes from offset 0: one block at 0 with length ==
 * extent. */
bool typemap_is_contiguous(const struct typemap *);

/* Typemap words: the tree in prefix order, int64 each.
 *   BLOCK  0, length                                  `length` bytes at offset 0
 *   LOOP   1, count, stride, child                    child repeated at i*stride
 *   LIST   2, n, then n times: offset, child          children in typemap order
 *   RUNS   3, n, then n times: offset, length         a LIST of BLOCKs */
enum typemap_word { TYPEMAP_BLOCK = 0, TYPEMAP_LOOP = 1, TYPEMAP_LIST = 2, TYPEMAP_RUNS = 3 };

/* Encodes the tree as these words. Returns their number, and writes them if `words` has room for
 * that many (`capacity`). */
size_t typemap_encode(const struct typemap *, int64_t *words, size_t capacity);

enum { TYPEMAP_DEPTH = 32 }; /* deeper trees are refused by typemap_flatten */

/* Walks the tiled typemap as maximal contiguous extents. Plain data: it needs no clean-up, and its
 * members are private. */
struct typemap_cursor {
    const struct typemap *map;
    int64_t displacement; /* offset of tile 0 */
    int64_t position;     /* bytes of the data stream already passed */
    int64_t tile;
    int depth;
    struct {
        const void *node;
        int64_t index;
        int64_t base;
    } stack[TYPEMAP_DEPTH];
    struct extent pending; /* looked-ahead extent; length 0: there is none */
};

/* Places the cursor at byte `position` >= 0 of the data stream. typemap_size(map) must be > 0. */
void typemap_cursor_init(struct typemap_cursor *, const struct typemap *map, int64_t displacement, int64_t position);

/* The next contiguous bytes of the file or buffer, adjacent pieces merged, at most `limit` > 0
 * bytes. */
struct extent typemap_cursor_next(struct typemap_cursor *, int64_t limit);

#endif
