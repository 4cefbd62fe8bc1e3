/* Memory of a core, up to a limit, in blocks that are freed together. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"

/* Bytes that a pool takes at a time: ever more, up to a large page. */
enum { LEAST = 4 << 10, PAGE = 64 << 10, LARGE = 2 << 20, MOST = LARGE };

struct block {
    struct block *next, **at;
    size_t size;
    char unused[40]; /* on large pages, items of 64 bytes take one line of the processor's cache */
    max_align_t memory[];
};

static struct block *block_of(void *taken)
{
    return (struct block *)((char *)taken - offsetof(struct block, memory));
}

/* Zeroed bytes on large pages, if the machine has some left. RATIONALE: copies are looked for at random places,
 * so with small pages each look would also look for a page. */
static struct block *large_pages(size_t size)
{
    char *taken = mmap(NULL, size + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED)
        return NULL;
    size_t before = LARGE - (uintptr_t)taken % LARGE;
    munmap(taken, before);
    if (before < LARGE)
        munmap(taken + before + size, LARGE - before);
    madvise(taken + before, size, MADV_HUGEPAGE);
    return (struct block *)(taken + before);
}

void *memory_take(struct memory *memory, size_t size)
{
    size += sizeof(struct block);
    size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    size = pages < LARGE ? size : pages;
    struct block *block = NULL;
    if ((int64_t)size <= memory->left)
        block = size < LARGE ? calloc(1, size) : large_pages(size);
    if (!block)
        longjmp(*memory->failed, CACHING_NO_MEMORY);
    block->size = size;
    memory->left -= (int64_t)size;
    block->next = memory->blocks;
    block->at = &memory->blocks;
    if (block->next)
        block->next->at = &block->next;
    memory->blocks = block;
    return block->memory;
}

void memory_give(struct memory *memory, void *taken)
{
    if (!taken)
        return;
    struct block *block = block_of(taken);
    memory->left += (int64_t)block->size;
    *block->at = block->next;
    if (block->next)
        block->next->at = block->at;
    if (block->size < LARGE)
        free(block);
    else
        munmap(block, block->size);
}

void memory_end(struct memory *memory)
{
    while (memory->blocks)
        memory_give(memory, memory->blocks->memory);
}

static size_t in_chunk(size_t chunk, size_t size)
{
    size_t count = (chunk - sizeof(struct block)) / size;
    return count > 0 ? count : 1;
}

void *item_take(struct memory *memory, struct pool *pool)
{
    void *item = pool->free;
    if (item) {
        pool->free = *(void **)item;
    } else {
        if (pool->next == pool->end) {
            size_t chunk = pool->chunk == 0 ? LEAST : pool->chunk < MOST ? 2 * pool->chunk : MOST;
            size_t items = in_chunk(chunk, pool->size);
            pool->next = memory_take(memory, items * pool->size);
            pool->end = pool->next + items * pool->size;
            pool->chunk = chunk;
        }
        item = pool->next;
        pool->next += pool->size;
    }
    return item;
}

void item_give(struct pool *pool, void *item)
{
    *(void **)item = pool->free;
    pool->free = item;
}

/* How many items a piece has: as many bytes as the piece that item_take() would take. */
static uint32_t items_of(const struct numbered *items, uint32_t piece)
{
    size_t chunk = LEAST, most = (size_t)1 << LOWER_BITS;
    while (--piece > 0 && chunk < MOST)
        chunk *= 2;
    size_t count = in_chunk(chunk, items->size);
    return (uint32_t)(count < most ? count : most);
}

static void grow_pieces(struct memory *memory, struct numbered *items)
{
    uint32_t room = 2 * items->pieces + 16;
    char **piece = memory_take(memory, 2 * room * sizeof *piece);
    if (items->room > 0) {
        memcpy(piece, items->piece, items->room * sizeof *piece);
        memcpy(piece + room, items->more, items->room * sizeof *piece);
    }
    memory_give(memory, items->piece);
    items->piece = piece;
    items->more = piece + room;
    items->room = room;
}

static void add_piece(struct memory *memory, struct numbered *items)
{
    uint32_t piece = items->pieces + 1;
    if (piece >> (32 - LOWER_BITS))
        longjmp(*memory->failed, CACHING_NO_MEMORY);
    if (piece >= items->room)
        grow_pieces(memory, items);
    items->piece[piece] = memory_take(memory, items_of(items, piece) * items->size);
    items->pieces = piece;
    items->next = piece << LOWER_BITS;
    items->end = items->next + items_of(items, piece);
}

uint32_t number_take(struct memory *memory, struct numbered *items)
{
    uint32_t number = items->free;
    if (number) {
        memcpy(&items->free, item_at(items, number), sizeof items->free);
        return number;
    }
    if (items->next == items->end)
        add_piece(memory, items);
    return items->next++;
}

void number_give(struct numbered *items, uint32_t number)
{
    memcpy(item_at(items, number), &items->free, sizeof items->free);
    items->free = number;
}

void number_widen(struct memory *memory, struct numbered *items, uint32_t number)
{
    uint32_t piece = number >> LOWER_BITS;
    if (!items->more[piece])
        items->more[piece] = memory_take(memory, items_of(items, piece) * items->beside);
}

void vector_grow(struct memory *memory, struct vector *vector, size_t size)
{
    int64_t room = 2 * vector->room + 16;
    char *at = memory_take(memory, (size_t)room * size);
    if (vector->count > 0)
        memcpy(at, vector->at, (size_t)vector->count * size);
    memory_give(memory, vector->at);
    vector->at = at;
    vector->room = room;
}

int guarded(struct memory *memory, int (*body)(void *context), void *context)
{
    jmp_buf failed, *outer = memory->failed;
    int result = setjmp(failed);
    if (result == 0) {
        memory->failed = &failed;
        result = body(context);
    }
    memory->failed = outer;
    return result;
}
