/* Hash tables whose entries keep an order. */
#include <string.h>

#include "core.h"

static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t hash = a * 0x9e3779b97f4a7c15 ^ b * 0xc2b2ae3d27d4eb4f ^ c * 0x165667b19e3779f9 ^ d * 0x27d4eb2f165667c5;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93;
    return hash ^ hash >> 29;
}

static uint32_t *bucket_of(const struct table *table, const int64_t *key)
{
    uint64_t hash = mixed((uint64_t)key[0], (uint64_t)key[1], (uint64_t)key[2], (uint64_t)key[3]);
    return &table->bucket[hash & (uint64_t)(table->buckets - 1)];
}

void table_fetch(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (table->buckets > 0)
        __builtin_prefetch(bucket_of(table, (const int64_t[]){a, b, c, d}));
}

void table_fetch_more(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (table->buckets > 0)
        __builtin_prefetch(entry_at(table, *bucket_of(table, (const int64_t[]){a, b, c, d})));
}

void table_fetch_around(const struct table *table, const struct entry *entry)
{
    if (!entry)
        return;
    __builtin_prefetch(entry_at(table, entry->before));
    __builtin_prefetch(entry_at(table, entry->next));
}

struct entry *table_find(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (table->buckets == 0)
        return NULL;
    struct entry *entry = entry_at(table, *bucket_of(table, (const int64_t[]){a, b, c, d}));
    while (entry && (entry->key[0] != a || entry->key[1] != b || entry->key[2] != c || entry->key[3] != d))
        entry = entry_at(table, entry->chained);
    return entry;
}

static void chain(struct table *table, uint32_t number)
{
    struct entry *entry = entry_at(table, number);
    uint32_t *into = bucket_of(table, entry->key);
    entry->chained = *into;
    *into = number;
}

static void grow(struct memory *memory, struct table *table)
{
    int64_t buckets = table->buckets > 0 ? 2 * table->buckets : 16;
    uint32_t *bucket = memory_take(memory, (size_t)buckets * sizeof *bucket);
    memory_give(memory, table->bucket);
    table->bucket = bucket;
    table->buckets = buckets;
    for (uint32_t number = table->first; number; number = entry_at(table, number)->next)
        chain(table, number);
}

static void append(struct table *table, uint32_t number)
{
    struct entry *entry = entry_at(table, number);
    entry->next = 0;
    entry->before = table->last;
    *(table->last ? &entry_at(table, table->last)->next : &table->first) = number;
    table->last = number;
}

/* Returns the number of the entry. */
static uint32_t take_out(struct table *table, const struct entry *entry)
{
    uint32_t *before = entry->before ? &entry_at(table, entry->before)->next : &table->first, number = *before;
    *before = entry->next;
    *(entry->next ? &entry_at(table, entry->next)->before : &table->last) = entry->before;
    return number;
}

struct entry *table_put(struct memory *memory, struct table *table, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct entry *entry = table_find(table, a, b, c, d);
    if (entry)
        return entry;
    /* Few entries share a bucket: each one that is passed on the way is another line to wait for. */
    if (2 * table->count >= table->buckets)
        grow(memory, table);
    table->entries.size = sizeof *entry;
    uint32_t number = number_take(memory, &table->entries);
    entry = entry_at(table, number);
    *entry = (struct entry){.key = {a, b, c, d}};
    chain(table, number);
    append(table, number);
    table->count++;
    return entry;
}

void table_remove(struct table *table, struct entry *entry)
{
    uint32_t number = take_out(table, entry), *at = bucket_of(table, entry->key);
    while (*at != number)
        at = &entry_at(table, *at)->chained;
    *at = entry->chained;
    table->count--;
    number_give(&table->entries, number);
}

void table_to_end(struct table *table, struct entry *entry)
{
    append(table, take_out(table, entry));
}

void table_clear(struct table *table)
{
    while (table->first)
        table_remove(table, table_first(table));
}
