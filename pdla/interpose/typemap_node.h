/* How typemaps are built: shared by flatten.c, which reads datatypes, and typemap.c, which keeps
 * the trees canonical. */
#ifndef PDLA_TYPEMAP_NODE_H
#define PDLA_TYPEMAP_NODE_H

#include "typemap.h"

/* A LOOP, LIST or RUNS of the tree. A block has no node of its own: its size is enough. */
struct node {
    int kind;      /* enum typemap_word */
    int depth;     /* nodes from here to the deepest leaf */
    int64_t count; /* LOOP: repetitions; LIST, RUNS: entries */
    int64_t stride;           /* LOOP */
    int64_t child_size;       /* LOOP: data bytes of one repetition */
    const struct node *child; /* LOOP: NULL is a block of child_size */
    int64_t *offsets;         /* LIST, RUNS: of each entry, the first 0 */
    int64_t *starts;          /* LIST, RUNS: data bytes before each entry, count + 1 of them */
    const struct node **children; /* LIST: NULL is a block */
};

/* A piece of a typemap: `size` data bytes, laid out as `node` says (NULL: one block), at `offset`. Size 0: nothing. */
struct part {
    int64_t offset;
    int64_t size;
    const struct node *node;
};

struct chunk; /* one allocation of a builder */

/* Owns the nodes until typemap_build() hands them to a typemap. `failed`: out of memory or not understood. */
struct builder {
    struct chunk *chunks;
    bool failed;
};

/* `count` times `part`, `stride` bytes apart; canonical: contiguous repetitions are one block, loops in step are one
 * loop. */
struct part typemap_loop(struct builder *, int64_t count, int64_t stride, struct part part);

/* The parts one after another; overwrites `parts`. Canonical: neighbours merged, equal parts in step are a loop. */
struct part typemap_list(struct builder *, struct part *parts, int64_t count);

/* The finished typemap, or NULL when the builder failed; either way the builder is used up. */
struct typemap *typemap_build(struct builder *, struct part root, int64_t extent);

#endif
