/* Typemaps: trees of loops and lists. They are kept canonical while they are built, encoded for the
 * trace, and walked with a cursor. */
#include <stdlib.h>
#include <string.h>

#include "typemap_node.h"

struct chunk {
    struct chunk *next;
    max_align_t memory[];
};

struct typemap {
    int references;
    struct part root;
    int64_t extent;
    struct chunk *chunks;
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

static void *take(struct builder *builder, size_t count, size_t size)
{
    size_t bytes;
    struct chunk *chunk = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes < SIZE_MAX - sizeof *chunk)
        chunk = malloc(sizeof *chunk + bytes);
    if (!chunk) {
        builder->failed = true;
        return NULL;
    }
    chunk->next = builder->chunks;
    builder->chunks = chunk;
    return chunk->memory;
}

static void free_chunks(struct chunk *chunk)
{
    while (chunk) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

static int depth_of(const struct node *node)
{
    return node ? node->depth : 0;
}

struct part typemap_loop(struct builder *builder, int64_t count, int64_t stride, struct part part)
{
    if (count <= 0 || part.size == 0)
        return (struct part){0};
    if (count == 1)
        return part;
    if (!part.node && stride == part.size)
        return (struct part){part.offset, count * part.size, NULL};
    struct node *node = take(builder, 1, sizeof *node);
    if (!node)
        return (struct part){0};
    const struct node *inner = part.node;
    if (inner && inner->kind == TYPEMAP_LOOP && stride == inner->count * inner->stride) {
        *node = *inner;
        node->count *= count;
    } else {
        *node = (struct node){.kind = TYPEMAP_LOOP, .depth = 1 + depth_of(inner), .count = count, .stride = stride,
                              .child_size = part.size, .child = inner};
    }
    return (struct part){part.offset, count * part.size, node};
}

static bool equal(const struct node *a, const struct node *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || a->count != b->count)
        return false;
    if (a->kind == TYPEMAP_LOOP)
        return a->stride == b->stride && a->child_size == b->child_size && equal(a->child, b->child);
    if (memcmp(a->offsets, b->offsets, (size_t)a->count * sizeof *a->offsets) != 0 ||
        memcmp(a->starts, b->starts, (size_t)(a->count + 1) * sizeof *a->starts) != 0)
        return false;
    for (int64_t i = 0; a->kind == TYPEMAP_LIST && i < a->count; i++)
        if (!equal(a->children[i], b->children[i]))
            return false;
    return true;
}

/* Drops empty parts and merges adjacent blocks in place. Returns how many are left. */
static int64_t merge(struct part *parts, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        struct part *last = kept ? &parts[kept - 1] : NULL;
        if (parts[i].size == 0)
            continue;
        if (last && !last->node && !parts[i].node && last->offset + last->size == parts[i].offset)
            last->size += parts[i].size;
        else
            parts[kept++] = parts[i];
    }
    return kept;
}

static bool in_step(const struct part *parts, int64_t count)
{
    int64_t stride = parts[1].offset - parts[0].offset;
    for (int64_t i = 1; i < count; i++)
        if (parts[i].offset - parts[i - 1].offset != stride || parts[i].size != parts[0].size ||
            !equal(parts[i].node, parts[0].node))
            return false;
    return true;
}

static bool all_blocks(const struct part *parts, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (parts[i].node)
            return false;
    return true;
}

struct part typemap_list(struct builder *builder, struct part *parts, int64_t count)
{
    count = merge(parts, count);
    if (count == 0)
        return (struct part){0};
    if (count == 1)
        return parts[0];
    if (in_step(parts, count))
        return typemap_loop(builder, count, parts[1].offset - parts[0].offset, parts[0]);
    size_t entries = (size_t)count;
    bool runs = all_blocks(parts, count);
    struct node *node = take(builder, 1, sizeof *node);
    int64_t *offsets = take(builder, entries, sizeof *offsets);
    int64_t *starts = take(builder, entries + 1, sizeof *starts);
    const struct node **children = runs ? NULL : take(builder, entries, sizeof *children);
    if (builder->failed)
        return (struct part){0};
    int depth = 0;
    starts[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        offsets[i] = parts[i].offset - parts[0].offset;
        starts[i + 1] = starts[i] + parts[i].size;
        if (!runs)
            children[i] = parts[i].node;
        if (depth_of(parts[i].node) > depth)
            depth = depth_of(parts[i].node);
    }
    *node = (struct node){.kind = runs ? TYPEMAP_RUNS : TYPEMAP_LIST, .depth = 1 + depth, .count = count,
                          .offsets = offsets, .starts = starts, .children = children};
    return (struct part){parts[0].offset, starts[count], node};
}

struct typemap *typemap_build(struct builder *builder, struct part root, int64_t extent)
{
    struct typemap *map = builder->failed || depth_of(root.node) > TYPEMAP_DEPTH ? NULL : malloc(sizeof *map);
    if (map)
        *map = (struct typemap){.references = 1, .root = root, .extent = extent, .chunks = builder->chunks};
    else
        free_chunks(builder->chunks);
    return map;
}

struct typemap *typemap_bytes(int64_t length)
{
    struct builder builder = {0};
    return typemap_build(&builder, (struct part){0, length, NULL}, length);
}

struct typemap *typemap_extents(const struct extent *extents, int64_t count)
{
    struct builder builder = {0};
    struct part *parts = malloc((size_t)count * sizeof *parts);
    int64_t end = 0;
    if (!parts)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        const int64_t stop = extents[i].offset + extents[i].length;
        parts[i] = (struct part){extents[i].offset, extents[i].length, NULL};
        end = stop > end ? stop : end;
    }
    struct part root = typemap_list(&builder, parts, count);
    free(parts);
    return typemap_build(&builder, root, end);
}

struct typemap *typemap_retain(struct typemap *map)
{
    __atomic_add_fetch(&map->references, 1, __ATOMIC_RELAXED);
    return map;
}

void typemap_release(struct typemap *map)
{
    if (map && __atomic_sub_fetch(&map->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free_chunks(map->chunks);
        free(map);
    }
}

int64_t typemap_size(const struct typemap *map)
{
    return map->root.size;
}

int64_t typemap_extent(const struct typemap *map)
{
    return map->extent;
}

/* One run of bytes for any number of tiles, though it may not start at 0. */
static bool is_one_run(const struct typemap *map)
{
    return !map->root.node && map->root.size == map->extent;
}

bool typemap_is_contiguous(const struct typemap *map)
{
    return is_one_run(map) && map->root.offset == 0;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

struct words {
    int64_t *words;
    size_t capacity, used;
};

static void put(struct words *out, int64_t word)
{
    if (out->used < out->capacity)
        out->words[out->used] = word;
    out->used++;
}

/* `shift` moves the entries of a list. Loops and blocks have no offset to move and are given 0. */
static void encode(struct words *out, const struct node *node, int64_t size, int64_t shift)
{
    put(out, node ? node->kind : TYPEMAP_BLOCK);
    if (!node) {
        put(out, size);
        return;
    }
    put(out, node->count);
    if (node->kind == TYPEMAP_LOOP) {
        put(out, node->stride);
        encode(out, node->child, node->child_size, 0);
        return;
    }
    for (int64_t i = 0; i < node->count; i++) {
        int64_t bytes = node->starts[i + 1] - node->starts[i];
        put(out, node->offsets[i] + shift);
        if (node->kind == TYPEMAP_RUNS)
            put(out, bytes);
        else
            encode(out, node->children[i], bytes, 0);
    }
}

size_t typemap_encode(const struct typemap *map, int64_t *words, size_t capacity)
{
    struct words out = {words, capacity, 0};
    const struct part *root = &map->root;
    if (root->size == 0) {
        put(&out, TYPEMAP_RUNS);
        put(&out, 0);
    } else if (root->offset == 0 || (root->node && root->node->kind != TYPEMAP_LOOP)) {
        encode(&out, root->node, root->size, root->offset);
    } else if (!root->node) {
        put(&out, TYPEMAP_RUNS);
        put(&out, 1);
        put(&out, root->offset);
        put(&out, root->size);
    } else {
        put(&out, TYPEMAP_LIST);
        put(&out, 1);
        put(&out, root->offset);
        encode(&out, root->node, root->size, 0);
    }
    return out.used;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

/* The entry of a list that has data byte `skip` < size. */
static int64_t entry_at(const struct node *node, int64_t skip)
{
    int64_t low = 0, high = node->count - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (node->starts[middle] <= skip)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Entry `index` of a node that starts at `base`. */
static struct part entry(const struct node *node, int64_t index, int64_t base)
{
    if (node->kind == TYPEMAP_LOOP)
        return (struct part){base + index * node->stride, node->child_size, node->child};
    return (struct part){base + node->offsets[index], node->starts[index + 1] - node->starts[index],
                         node->children ? node->children[index] : NULL};
}

/* Walks from `part`, at an absolute offset, down to the block that has its data byte `skip`;
 * returns the rest of that block. */
static struct extent descend(struct typemap_cursor *cursor, struct part part, int64_t skip)
{
    while (part.node) {
        const struct node *node = part.node;
        int64_t base = part.offset;
        int64_t index = node->kind == TYPEMAP_LOOP ? skip / node->child_size : entry_at(node, skip);
        skip -= node->kind == TYPEMAP_LOOP ? index * node->child_size : node->starts[index];
        part = entry(node, index, base);
        cursor->stack[cursor->depth].node = node;
        cursor->stack[cursor->depth].index = index;
        cursor->stack[cursor->depth].base = base;
        cursor->depth++;
    }
    return (struct extent){part.offset + skip, part.size - skip};
}

static struct extent enter_tile(struct typemap_cursor *cursor, int64_t skip)
{
    struct part root = cursor->map->root;
    root.offset += cursor->displacement + cursor->tile * cursor->map->extent;
    return descend(cursor, root, skip);
}

static struct extent advance(struct typemap_cursor *cursor)
{
    while (cursor->depth > 0) {
        const struct node *node = cursor->stack[cursor->depth - 1].node;
        int64_t index = ++cursor->stack[cursor->depth - 1].index;
        if (index < node->count)
            return descend(cursor, entry(node, index, cursor->stack[cursor->depth - 1].base), 0);
        cursor->depth--;
    }
    cursor->tile++;
    return enter_tile(cursor, 0);
}

void typemap_cursor_init(struct typemap_cursor *cursor, const struct typemap *map, int64_t displacement,
                         int64_t position)
{
    cursor->map = map;
    cursor->displacement = displacement;
    cursor->position = position;
    if (is_one_run(map))
        return;
    cursor->depth = 0;
    cursor->tile = position / map->root.size;
    cursor->pending = enter_tile(cursor, position - cursor->tile * map->root.size);
}

struct extent typemap_cursor_next(struct typemap_cursor *cursor, int64_t limit)
{
    struct extent run;
    if (is_one_run(cursor->map)) {
        run = (struct extent){cursor->displacement + cursor->map->root.offset + cursor->position, limit};
        cursor->position += limit;
        return run;
    }
    run = cursor->pending.length ? cursor->pending : advance(cursor);
    cursor->pending.length = 0;
    while (run.length < limit) {
        struct extent next = advance(cursor);
        if (next.offset != run.offset + run.length) {
            cursor->pending = next;
            break;
        }
        run.length += next.length;
    }
    if (run.length > limit) {
        cursor->pending = (struct extent){run.offset + limit, run.length - limit};
        run.length = limit;
    }
    cursor->position += run.length;
    return run;
}
