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
void vector_grow(struct memory *memory, struct vector *vector, size_t size);
/* Calls `body`. Returns what it returns, or CACHING_NO_MEMORY. */
int guarded(struct memory *memory, int (*body)(void *context), void *context);

static inline void *vector_add(struct memory *memory, struct vector *vector, size_t size)
{
    if (vector->count == vector->room)
        vector_grow(memory, vector, size);
    return (char *)vector->at + (size_t)vector->count++ * size;
}

/* ordered.c: a B+-tree of values by two numbers, `key` and `minor`, which together are unique. A
 * narrow one has no `minor`. */
enum { FANOUT = 64, DEEPEST = 16 };

struct pair {
    int64_t key;
    void *value; /* in a leaf; else a node below, `key` being at most the least key there */
};

struct node {
    int64_t count;
    struct node *next, *before; /* of a leaf */
    struct pair pair[FANOUT];
    int64_t minor[];
};

struct nodes { /* where the nodes of narrow and of wide trees come from */
    struct pool narrow, wide;
};

struct ordered {
    struct node *root;
    struct node *recent; /* the leaf that was looked at last; NULL: it may be gone */
    int32_t height;      /* levels of nodes above the leaves */
    bool wide;
};

struct place_in { /* a value of a tree, until the tree changes; leaf NULL: none */
    struct node *leaf;
    int64_t index;
};

void ordered_put(struct memory *memory, struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor,
                 void *value);
void ordered_remove(struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor);
struct place_in ordered_first(const struct ordered *tree);
/* The last value that is not after (key, minor). */
struct place_in ordered_upto(struct ordered *tree, int64_t key, int64_t minor);
struct place_in ordered_next(struct place_in at);

/* table.c: entries by four numbers, in the order in which they were put. */
struct entry {
    int64_t key[4];
    struct entry *chained;
    int64_t number;
    double value;
    void *more;
    struct entry *before, *next;
};

struct table {
    struct entry **bucket;
    int64_t buckets, count;
    struct entry *first, *last;
    struct pool entries;
};

/* Begins to bring an entry to the processor's cache. */
void table_fetch(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
struct entry *table_find(const struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
/* The entry with this key, a new one at the end if there is none. */
struct entry *table_put(struct memory *memory, struct table *table, int64_t a, int64_t b, int64_t c, int64_t d);
void table_remove(struct table *table, struct entry *entry);
void table_to_end(struct table *table, struct entry *entry);
void table_clear(struct table *table);

struct range {
    int64_t start, stop;
};

/* addresses.c: the addresses [0, capacity) of a space, free or taken; the lowest free ones are taken
 * first. */
struct addresses {
    struct range lowest;  /* the lowest hole; empty: there is no free address */
    struct ordered holes; /* the lengths of the others, by where they begin */
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
        struct copy *copy;
    };
};

/* Bytes [start, stop) of a file or part that are in a space from `address` on. */
struct copy {
    int64_t start, stop, address;
    int64_t serial, used; /* a unique number; the number of the request that used it last */
    int64_t incoming;     /* the move that fetches them; until it ends, the bytes are not here */
    int64_t cleaning;     /* the move that writes them back */
    struct chain *busy;    /* the moves that read or write these addresses, the oldest first */
    struct part *part;
    struct copy *colder, *warmer; /* of a clean copy that is not in `returned`: its neighbours */
    int32_t node; /* the client node (for a part: the server) that moves them */
    int16_t space;
    bool dirty;    /* the original does not have these bytes */
    bool urgent;   /* `incoming` has the priority of requests */
    bool doomed;   /* to be dropped after the write-back */
    bool returned; /* it is in the tree of that name */
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
    struct copy *coldest, *warmest;
    struct ordered returned;
    int64_t unlisted; /* copies that have left the list */
    int64_t peak;
};

/* Where bytes are read; copy NULL: the original. */
struct source {
    int64_t start, stop;
    struct copy *copy;
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

/* A move: its bytes are the copies in its spans that are still `incoming` (`cleaning`) by its token. */
struct job {
    int64_t token;
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
    struct pool copies, chains, jobs, spans, queues, parts_memory;
    struct caching_setup setup;
    struct caching_policy policy;
    struct cache *cache; /* of each space */
    struct part *recent[16]; /* parts that were looked for */
    struct table parts, under_way, turns; /* by file and part; jobs by token; queues by node */
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
    struct vector carved, ended, found, until; /* struct copy *; int64_t */
    struct vector starting, jobs_made, jobs_last;
};

static inline struct copy *copy_of(const struct vector *copies, int64_t number)
{
    return ((struct copy **)copies->at)[number];
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
/* Adds the copies that have bytes of [start, stop), in order. */
void overlapping(struct caching *core, struct extents *extents, int64_t start, int64_t stop,
                 struct vector *copies);
/* Adds the ranges of [start, stop) that none of the copies (in order, from `first` on) has. */
void between(struct caching *core, const struct vector *copies, int64_t first, int64_t start, int64_t stop,
             struct vector *ranges);
typedef bool which_copy(const struct caching *core, const struct copy *copy, int64_t of);
/* Adds the copies of [start, stop) that `which` (NULL: all) takes, cut at its ends. */
void carve(struct caching *core, struct extents *extents, int64_t start, int64_t stop, which_copy *which, int64_t of,
           struct vector *copies);
struct copy *copy_new(struct caching *core, struct part *part, struct extents *extents, int64_t space, int64_t start,
                      int64_t length, int64_t address, int64_t node);
/* Lists the copy among the clean ones, if it is clean; or does not list it any longer. */
void settle(struct caching *core, struct copy *copy);
void unlist(struct caching *core, struct copy *copy);
/* The clean copy after the one at the cursor; NULL: there is none. */
struct copy *clean_next(struct cache *cache, struct caching_cursor *cursor);
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
void write_back(struct caching *core, struct part *part, int64_t level, struct copy *const *copies, int64_t count);
void await(struct caching *core, int64_t token);
/* Adds a transfer to a stage, or continues the last one. */
void transfer(struct caching *core, struct vector *stage, enum caching_op op, const struct part *part,
              const struct copy *copy, int64_t start, int64_t stop, int64_t node);
/* Removes a copy; its addresses are freed now, or when the last move that uses them ends. */
void copy_remove(struct caching *core, struct extents *extents, struct copy *copy);

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
double startup(const struct caching_device *device, int64_t distance);

#endif
