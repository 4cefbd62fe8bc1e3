/* The state of a core, and the functions that its parts call of one another. */
#ifndef CACHING_CORE_H
#define CACHING_CORE_H

#include <setjmp.h>

#include "caching.h"

/* memory.c: memory of one core, which is freed with it. Without memory the guarded call ends at once. */
struct block;

struct pool { /* items of one size that come and go, and do not move */
    size_t size, chunk; /* bytes of an item, and of the last piece of memory that was taken */
    void *free;
    char *next, *end;
};

/* Likewise, but the items are called by numbers, which take half the memory of addresses. 0: none. */
struct numbered {
    size_t size, beside; /* bytes of an item; of what some items have in another place */
    char **piece, **more; /* by the upper bits of a number: the items; what they have beside */
    uint32_t pieces, room, free, next, end;
};

enum { LOWER_BITS = 16 }; /* of a number: the place in its piece */

struct vector { /* items of one size, in a row */
    void *at;
    int64_t count, room;
};

struct memory {
    struct block *blocks;
    int64_t left;
    jmp_buf *failed;
};

void *memory_take(struct memory *memory, size_t size); /* zeroed */
void memory_give(struct memory *memory, void *taken);
void memory_end(struct memory *memory);
void *item_take(struct memory *memory, struct pool *pool);
void item_give(struct pool *pool, void *item);
uint32_t number_take(struct memory *memory, struct numbered *items);
void number_give(struct numbered *items, uint32_t number);
/* Takes memory for what the item, and others, have beside, if there is none yet. */
void number_widen(struct memory *memory, struct numbered *items, uint32_t number);

static inline void *item_at(const struct numbered *items, uint32_t number)
{
    return items->piece[number >> LOWER_BITS] + (number & ((1u << LOWER_BITS) - 1)) * items->size;
}

static inline void *beside_at(const struct numbered *items, uint32_t number)
{
    return items->more[number >> LOWER_BITS] + (number & ((1u << LOWER_BITS) - 1)) * items->beside;
}

void vector_grow(struct memory *memory, struct vector *vector, size_t size);
/* Calls `body`. Returns what it returns, or CACHING_NO_MEMORY. */
int guarded(struct memory *memory, int (*body)(void *context), void *context);

static inline void *vector_add(struct memory *memory, struct vector *vector, size_t size)
{
    if (vector->count == vector->room)
        vector_grow(memory, vector, size);
    return (char *)vector->at + (size_t)vector->count++ * size;
}

/* ordered.c: a B+-tree of numbers by two numbers, `key` and `minor`, which together are unique. A
 * narrow one has no `minor`. */
enum { FANOUT = 62, DEEPEST = 16 };

struct node {
    int64_t key[FANOUT];
    uint32_t value[FANOUT]; /* in a leaf; else a node below, `key` being at most the least key there */
    int32_t count;
    struct node *next, *before; /* of a leaf */
    int64_t minor[];
};

struct nodes { /* of narrow and of wide trees */
    struct numbered narrow, wide;
};

struct ordered {
    struct node *recent; /* the leaf that was looked at last; NULL: it may be gone */
    uint32_t root;
    int16_t height; /* levels of nodes above the leaves */
    bool wide;
};

struct place_in { /* a value of a tree, until the tree changes; leaf NULL: none */
    struct node *leaf;
    int64_t index;
};

void nodes_begin(struct nodes *nodes);
void ordered_put(struct memory *memory, struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor,
                 uint32_t value);
void ordered_remove(struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor);
struct place_in ordered_first(const struct nodes *nodes, const struct ordered *tree);
/* The last value that is not after (key, minor). */
struct place_in ordered_upto(const struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor);
struct place_in ordered_next(struct place_in at);
/* Begins to bring the leaf where (key, minor) belongs to the processor's cache. */
void ordered_fetch(const struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor);

/* table.c: entries by four numbers, in the order in which they were put. */
struct entry {
    int64_t key[4];
    int64_t number;
    union {
        double value;
        void *more;
    };
    uint32_t chained, before, next;
};

struct table {
    uint32_t *bucket;
    int64_t buckets, count;
    uint32_t first, last;
    struct numbered entries;
};

/* Begin to bring to the processor's cache where an entry's number is; after other work, the entry; and then (NULL:
 * there is none) its neighbours. */
void table_fetch(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
void table_fetch_more(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
void table_fetch_around(const struct table *table, const struct entry *entry);
struct entry *table_find(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
/* The entry with this key, a new one at the end if there is none. */
struct entry *table_put(struct memory *memory, struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
void table_remove(struct table *table, struct entry *entry);
void table_to_end(struct table *table, struct entry *entry);
void table_clear(struct table *table);

static inline struct entry *entry_at(const struct table *table, uint32_t number)
{
    return number ? (struct entry *)table->entries.piece[number >> LOWER_BITS] + (number & ((1u << LOWER_BITS) - 1))
                  : NULL;
}

static inline struct entry *table_first(const struct table *table)
{
    return entry_at(table, table->first);
}

static inline struct entry *table_next(const struct table *table, const struct entry *entry)
{
    return entry_at(table, entry->next);
}

/* identifier.c: of S4D-Cache. */
struct identifier {
    struct caching_s4d with;
    int64_t strip, servers; /* how the originals are striped */
    struct table ends;      /* of the last request, by rank and file */
    struct table critical;  /* the CDT: benefits, by file, start and stop */
};

/* The seconds that a request saves on the SSD servers (Eq. 8). */
double benefit(struct memory *memory, struct identifier *of, const struct caching_request *request);
/* Its entry in the CDT, a new one if it saves anything. NULL: it is not critical. */
struct entry *critical(struct memory *memory, struct identifier *of, const struct caching_request *request,
                       double saved);

struct range {
    int64_t start, stop;
};

/* addresses.c: the addresses [0, capacity) of a space, free or taken; the lowest free ones are taken
 * first. */
struct addresses {
    struct range lowest;  /* the lowest hole; empty: there is no free address */
    struct ordered holes; /* the others, by where they begin; `minor` is the length, the value 0 */
    int64_t left;
};

void addresses_begin(struct addresses *addresses, int64_t capacity);
/* Takes at most `length` bytes in one piece; returns how many. */
int64_t addresses_take(struct caching *core, struct addresses *addresses, int64_t length, int64_t *address);
void addresses_free(struct caching *core, struct addresses *addresses, int64_t address, int64_t length);

/* extents.c: copies, by where they start. */
struct chain {
    struct chain *next;
    union {
        int64_t token;
        uint32_t copy;
    };
};

/* Copies of a part in a space that the same client node (for a part: the server) moves. */
struct group {
    struct part *part;
    int32_t space, node;
};

/* Bytes [start, start + length) of a file or part that are in a space from `address` on.
 * RATIONALE: a program may have a million of them, so members have as many bits as they need. */
struct copy {
    int64_t start, address;
    uint64_t length : 48;
    uint64_t dirty : 1;      /* the original does not have these bytes */
    uint64_t urgent : 1;     /* it is fetched with the priority of requests */
    uint64_t doomed : 1;     /* to be dropped after the write-back */
    uint64_t returned : 1;   /* it is in the tree of that name */
    uint64_t kept : 1;       /* `keepers` has moves that use its addresses */
    uint64_t unused : 3;
    uint64_t used_upper : 8; /* of the number of the request that used it last */
    uint32_t used_lower;
    uint32_t serial; /* orders the copies that one request used, as they were made */
    uint32_t group;
    uint32_t moving; /* the move that fetches the bytes: until it ends, they are not here; if dirty, writes them back */
};

enum { LONGEST_BITS = 48, USED_BITS = 40 };

/* Of a clean copy that is not in `returned`: its neighbours. It has them beside. */
struct links {
    uint32_t colder, warmer;
};

/* The copies of a part in one level. */
struct extents {
    struct ordered copies;
    int64_t level;
};

/* A file, or the part of it that a home server stores. */
struct part {
    int64_t file, number; /* -1: all of the file */
    struct part *whole;   /* the file */
    int64_t size;         /* of the file */
    int64_t levels;
    struct extents extents[]; /* of the levels that it had copies in, in the order of the first copies */
};

struct cache { /* what a space holds, and where */
    const struct caching_space *space;
    struct addresses addresses;
    /* Its clean copies by (used, serial). Nearly all become the last ones when they are used, and are
     * in a list; those whose move ends much later are in a tree. */
    uint32_t coldest, warmest;
    struct ordered returned; /* `minor`: the copy's serial above its number */
    int64_t unlisted; /* copies that have left the list */
    int64_t peak;
};

/* Where bytes are read; copy 0: the original. */
struct source {
    int64_t start, stop;
    uint32_t copy;
};

struct own { /* what a request accesses of a part */
    struct part *part;
    int64_t start, stop;
};

enum move_kind { BACK, FETCH, LOAD, PASS };

struct span {
    int64_t start, stop;
    struct span *next;
};

/* A move: its bytes are the copies in its spans that are still `moving` by it. */
struct job {
    int64_t token;
    uint32_t number;
    struct part *part;
    int64_t level;
    struct span first, *last;
    int64_t node, size;
    enum move_kind kind;
    bool started;
    int64_t after;       /* the request that it follows; 0: none */
    int64_t awaited;     /* the step that waits for it last */
    struct chain *freed;  /* copies that are gone but whose addresses it uses */
    struct job *next;    /* in the node's queue */
};

struct queue {
    struct job *first, *last;
};

struct caching {
    struct memory memory;
    struct nodes nodes;
    struct numbered copies, groups, jobs;
    struct pool chains, spans, queues, parts_memory;
    struct caching_setup setup;
    struct caching_policy policy;
    struct cache *cache; /* of each space */
    struct part *recent[16]; /* parts that were looked for */
    uint32_t recent_group;
    struct table parts, under_way, turns; /* by file and part; jobs by token; queues by node */
    struct table group_numbers;           /* by file, part, space and node */
    struct table keepers; /* by copy: moves that use its addresses though it is not `moving` by them, oldest first */
    struct table reasons;                 /* how many wishes were refused, by kind, reason and value */
    double now;
    int64_t serial, clock, steps; /* of copies and moves; number of requests and of all steps so far */
    int broken;
    const struct caching_request *request; /* that is being served */
    int64_t after;                         /* of the moves that are made now */
    struct vector own;                     /* struct own, of the request */
    struct vector foreground, moves, moved, wait, refused;
    struct vector later;                      /* wishes of a request that are carried out after it */
    struct vector together;                   /* write-backs of one part in a row */
    struct vector reads, writes;              /* transfers of a stage of a move */
    struct vector extents_seen;               /* struct caching_extent, for the policy */
    struct vector seen, sources, move_sources, merged; /* struct source, for the policy, a read, a move */
    struct vector gaps, rest, write_gaps, write_rest, place_gaps; /* struct range */
    struct vector carved, ended, found, starting; /* numbers of copies */
    struct vector until, jobs_made, jobs_last;    /* int64_t; struct job * */
};

static inline struct copy *copy_at(const struct caching *core, uint32_t number)
{
    return (struct copy *)core->copies.piece[number >> LOWER_BITS] + (number & ((1u << LOWER_BITS) - 1));
}

static inline struct links *links_of(const struct caching *core, uint32_t number)
{
    return (struct links *)core->copies.more[number >> LOWER_BITS] + (number & ((1u << LOWER_BITS) - 1));
}

static inline uint32_t number_of(const struct vector *copies, int64_t i)
{
    return ((const uint32_t *)copies->at)[i];
}

static inline struct copy *copy_of(const struct caching *core, const struct vector *copies, int64_t i)
{
    return copy_at(core, number_of(copies, i));
}

static inline const struct group *group_of(const struct caching *core, const struct copy *copy)
{
    return item_at(&core->groups, copy->group);
}

static inline struct cache *cache_of(const struct caching *core, const struct copy *copy)
{
    return &core->cache[group_of(core, copy)->space];
}

static inline int64_t stop_of(const struct copy *copy)
{
    return copy->start + (int64_t)copy->length;
}

static inline bool is_incoming(const struct copy *copy)
{
    return copy->moving && !copy->dirty;
}

static inline int64_t used_of(const struct copy *copy)
{
    return (int64_t)((uint64_t)copy->used_upper << 32 | copy->used_lower);
}

static inline struct job *job_at(const struct caching *core, uint32_t number)
{
    return item_at(&core->jobs, number);
}

static inline struct extents *extents_of(struct part *part, int64_t level)
{
    for (int64_t i = 0; i < part->levels; i++)
        if (part->extents[i].level == level)
            return &part->extents[i];
    return NULL;
}

struct part *part_of(struct caching *core, int64_t file, int64_t number);
struct part *part_known(const struct caching *core, int64_t file, int64_t number); /* NULL: it was never used */
struct extents *extents_made(struct part *part, int64_t level);
void range_add(struct caching *core, struct vector *ranges, int64_t start, int64_t stop);
/* Begin to bring to the processor's cache where overlapping() will find a copy; after other work, the copy; and then
 * what its use changes around it. */
void overlapping_fetch(const struct caching *core, struct part *part, int64_t start);
void overlapping_fetch_more(const struct caching *core, struct part *part, int64_t start);
void overlapping_fetch_around(const struct caching *core, struct part *part, int64_t start);
/* Adds the copies that have bytes of [start, stop), in order. */
void overlapping(struct caching *core, struct extents *extents, int64_t start, int64_t stop,
                 struct vector *copies);
/* Adds the ranges of [start, stop) that none of the copies (in order, from `first` on) has. */
void between(struct caching *core, const struct vector *copies, int64_t start, int64_t stop, struct vector *ranges);
typedef bool which_copy(const struct caching *core, const struct copy *copy, int64_t of);
/* Adds the copies of [start, stop) that `which` (NULL: all) takes, cut at its ends. */
void carve(struct caching *core, struct extents *extents, int64_t start, int64_t stop, which_copy *which, int64_t of,
           struct vector *copies);
/* A copy that the present request uses. */
struct copy *copy_new(struct caching *core, struct part *part, struct extents *extents, int64_t space, int64_t start,
                      int64_t length, int64_t address, int64_t node);
/* The present request uses the copy. */
void copy_used(const struct caching *core, struct copy *copy);
/* Lists the copy among the clean ones, if it is clean; or does not list it any longer. */
void settle(struct caching *core, uint32_t number);
void unlist(struct caching *core, uint32_t number);
/* The clean copy after the one at the cursor; NULL: there is none. */
const struct copy *clean_next(const struct caching *core, struct cache *cache, struct caching_cursor *cursor);
/* Where [start, stop) is read, in order. `arriving`: with loads that a read waits for. */
void sources(struct caching *core, struct part *part, int64_t start, int64_t stop, bool arriving,
             struct vector *found);

/* moves.c */
struct job *job_known(const struct caching *core, int64_t token); /* NULL: it is done */
struct job *job_new(struct caching *core, struct part *part, int64_t level, int64_t start, int64_t stop, int64_t node,
                    enum move_kind kind);
void job_queue(struct caching *core, struct job *job);
void job_finish(struct caching *core, int64_t token);
/* Writes dirty copies back; copies of one node go together, up to the size that it moves at a time. */
void write_back(struct caching *core, struct part *part, int64_t level, const struct vector *copies);
/* The move that uses the copy's addresses since the copy is `moving` by it; NULL: there is none. */
struct job *job_moving(const struct caching *core, const struct copy *copy);
/* The moves in `keepers`; NULL: there are none. */
const struct chain *keepers_of(const struct caching *core, uint32_t number);
/* The copy's addresses are in use until the move ends. */
void keep(struct caching *core, uint32_t number, int64_t token);
void await(struct caching *core, struct job *job);
/* Adds a transfer to a stage, or continues the last one. */
void transfer(struct caching *core, struct vector *stage, enum caching_op op, const struct part *part,
              const struct copy *copy, int64_t start, int64_t stop, int64_t node);
/* Removes a copy; its addresses are freed now, or when the last move that uses them ends. */
void copy_remove(struct caching *core, struct extents *extents, uint32_t number);

/* enactor.c: for the policies of this directory. */
void wish(struct caching *core, const struct caching_wish *wish);
/* Makes a policy of this directory the core's: `begin` takes memory for its state. */
typedef int begin_policy(struct caching *core, const void *parameters);
int use_policy(struct caching *core, begin_policy *begin, const void *parameters);
int64_t part_size(const struct caching *core, int64_t size, int64_t server);
/* As caching_extents. */
const struct caching_extent *see(struct caching *core, int64_t file, int64_t part, int64_t start, int64_t stop,
                                 int64_t *count);

/* devices.c: a negative distance is the farthest. */
double startup(const struct caching_device *device, int64_t op, int64_t distance);

#endif
