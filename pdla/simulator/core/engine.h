/* The state of a run, and the functions that its parts call of one another. */
#ifndef ENGINE_H
#define ENGINE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#include "caching.h"
#include "events.h"
#include "program.h"
#include "server.h"
#include "simulator.h"

enum kind {
    RANK_READY, ARRIVAL, CONNECTED, TRANSFERRED, SERVED, IDLE, SHUFFLED, CACHED, FLUSHED, PROCESSED, HOMEWARD, TICK
};

/* Items of one size that come and go. An item does not move while it is used. */
struct pool {
    size_t size;
    void *free;
    void *chunks;
    char *next, *end;
};

struct call;
struct collective;
struct access;
struct fetch;
struct flush;
struct pages;
struct ahead;
struct home;

/* A place in a list of accesses. */
struct link {
    struct link *next, **at;
    struct access *access;
};

struct list {
    struct link *first, **end;
};

/* Ranges of a file, one after the other. */
typedef bool range_next(void *context, int64_t *start, int64_t *stop);

/* What the ranks of a node write of a collective call: their moves begin when all of it is written. */
struct part {
    int64_t pending;
    struct access *moves, **end;
};

/* A file request under way, by the transfers that were decided; or a move in the background. */
struct access {
    struct link turn, lock;       /* the accesses that wait; those that have or want their range's lock */
    struct call *call;            /* what continues when it is done: a call, a collective call, or nothing */
    struct collective *collective;
    int64_t rank, node, file, start, stop;
    int64_t token;                 /* of a move */
    struct sim_transfer *transfer; /* of which `done` have been started */
    int64_t transfers, room, done, pending;
    int64_t *wait, waits; /* tokens of moves */
    double waited;        /* seconds that they took; while it waits: since when */
    struct access *after, **after_end, *next; /* the moves that start when it is done; of a move, the next one */
    struct part *part;           /* if not NULL, all of which must be done first */
    struct home *home;           /* it brings a chunk of a round home */
    struct access *through;      /* which waits for it: it takes to the storage what goes to a page cache, too */
    struct fetch *fetch;         /* bytes that come to a page cache by it */
    struct flush *flush;         /* bytes that leave one */
    int64_t uncached;            /* bytes that a processor moves when it is done */
    int64_t closing;             /* how far the close has come */
    bool write, background, rewrites, locked, ends, jointly;
};

struct request {
    struct access *access;
    struct sub *first, *last;
    int64_t node, subs, pending, bytes;
    bool write, background, served, cached; /* through the pages of its node */
};

/* An MPI call of a rank. */
struct call {
    struct call *next;
    int64_t rank, file, collective, participants, bytes, last; /* last: its end in the file */
    double began;
    int64_t start, stop; /* of the next access if `more`, and then those of `pieces` */
    bool write, closes, syncs, more, mapped, sieved, passes; /* passes: it passes the caches by */
    struct pieces pieces;
};

/* What an aggregator accesses at once: `bytes` of all calls, from `start` to `stop`; of all bytes of the calls, its own
 * rank asks for the share `own`. */
struct window {
    int64_t start, stop, bytes, rank;
    double own;
    int64_t run; /* its first one, if they are for caches */
};

struct range {
    int64_t start, stop;
};

struct collective {
    struct collective *chained;
    int64_t number, arrived;
    struct call *first, *last;
    int64_t aggregators, rounds, round, pending, bytes;
    struct window *window; /* of aggregator a in round r: at r * aggregators + a */
    int64_t *node_bytes;   /* that each node's ranks ask for */
    double *gathered;      /* of the present round, by the aggregators of each node */
    struct range *run;     /* if they are for caches: what all calls write, without gaps, in order */
    int64_t runs;
    struct part **part;    /* likewise: of each node */
    bool write, passes;    /* it passes the caches by */
};

struct rank {
    int64_t call, part, number; /* the next call of the table, the next part, and its next call */
    bool in_part;
    struct cursor cursor;
    struct call *next; /* of computation before it */
    uint64_t random;
    struct ahead *ahead; /* of each file and component */
    int64_t mapped, mapped_stop; /* the file with replicas that it accessed last, and up to which byte */
};

struct held {
    struct held *next, **at;
};

/* Collective writes of a file since its last sync or close, when the first one was made, and where in the
 * file they wrote to the caches. `pass`: to the highest byte that calls wrote past these since one began
 * at the lowest. `passing`: ranks in such a call, which began at `passing_since`; the program
 * does not compute meanwhile, so `since` moves on by what the call takes. */
struct written {
    int64_t calls, passing;
    double since, passing_since;
    struct range cached, pass;
};

struct node {
    double connect_free, link_free[2]; /* of its link: outgoing, incoming */
    double *core_free;
    struct pages *pages; /* of each file, then of each component */
    struct home *home;   /* what it has for the originals */
};

enum { BUCKETS = 4096 };

struct engine {
    const struct sim_input *in;
    struct sim_output *out;
    double now;
    jmp_buf failed;
    struct events events;
    struct pool subs, requests, accesses, calls, collectives, fetches, readings;
    struct server *server;
    struct node *node;
    int64_t *user; /* of each file, then of each component: 1 + the node that uses it, -1: several; cache.c */
    struct rank *rank;
    struct collective *bucket[BUCKETS];
    struct list locked, wants_lock, waiting;
    struct held *held;
    struct written *written; /* of each file, if it is for caches on nodes */
    double computed;         /* seconds for each of the calls, from them to the last sync or close of a file */
    bool fills;              /* a call wrote between the pieces of one that passed the caches by */
    uint64_t *ended; /* a bit for each token of a move: it is done */
    int64_t ended_words;
    int64_t in_calls, running; /* ranks; in an open loop, calls */
    bool closing, ticks; /* a tick is among the events */
    double calls_since;
};

/* engine.c. The result is never NULL: without memory the run ends at once. The items are zeroed,
 * and freed at the end. */
void *pool_take(struct engine *engine, struct pool *pool);
void pool_give(struct pool *pool, void *item);
void *hold(struct engine *engine, size_t size);
void release_memory(struct engine *engine, void *memory);
void later(struct engine *engine, double time, unsigned priority, enum kind kind, void *what);
/* When a processor of the node has moved so many more bytes. */
double processed(struct engine *engine, int64_t node, double seconds);
void note(struct engine *engine, enum sim_logged what, int64_t rank, int64_t server, int64_t address, int64_t length);

/* requests.c: from a range of an object to the requests of servers. */
struct request *request_new(struct engine *engine, struct access *access, int64_t node, bool write);
void request_add(struct engine *engine, struct request *request, int64_t object, int64_t server, int64_t start,
                 int64_t stop);
void request_start(struct engine *engine, struct request *request);
void request_connected(struct engine *engine, struct request *request);
void request_transferred(struct engine *engine, struct request *request);
void sub_served(struct engine *engine, struct sub *sub);
void server_next(struct engine *engine, struct server *server);

/* The server has done its part, or has it in memory. */
void sub_done(struct engine *engine, struct sub *sub);

/* memory.c: the bytes that need not wait for the device, since they are there or will be when the
 * reading ahead is done. */
bool memory_has(struct engine *engine, struct server *server, struct sub *sub);
void memory_was_read(struct engine *engine, struct server *server, struct sub *sub);
bool memory_takes(struct engine *engine, struct server *server, struct sub *sub);
void memory_cleaned(struct engine *engine, struct server *server, struct sub *copy);

/* cache.c: the page caches of client nodes.
 *
 * An access reads or writes [start, stop) of an object through its node's pages: of a file (place
 * -1), or of a component of a replica. The access waits for it as for a request, until
 * access_ends_request. */
void cache_begin(struct engine *engine);
void cache_serves(struct engine *engine, struct access *access, int64_t object, int64_t place, bool write,
                  int64_t start, int64_t stop);
/* The bytes that had to be read are there. */
void cache_fetched(struct engine *engine, struct fetch *fetched);
/* Writes the dirty pages of an access's file (of all files, if it has none) to the storage, and those
 * of its replicas if a close waits for them. The access waits for it. */
void cache_flush(struct engine *engine, struct access *access);
void cache_flushed(struct engine *engine, struct flush *flush);

/* accesses.c: file requests, which may be redirected. */
struct access *access_new(struct engine *engine, int64_t rank, int64_t file, bool write, int64_t start, int64_t stop);
void access_start(struct engine *engine, struct access *access);
void access_ends_request(struct engine *engine, struct access *access);
void access_processed(struct engine *engine, struct access *access);
/* What of a file's ranges is written together goes where the core says. */
void access_place(struct engine *engine, struct access *access, range_next *next, void *context);
/* Starts the next stage that takes time. */
void access_continue(struct engine *engine, struct access *access);
/* All of it is done. */
void access_end(struct engine *engine, struct access *access);
/* Something of a part is written, and has these moves. */
void part_written(struct engine *engine, struct part *part, struct access *moves);
/* A close of a file, or (-1) of all. Dirty pages go to the storage before and after what
 * is moved then. */
void access_close(struct engine *engine, struct access *access);
/* Accesses of a page cache. */
void access_fetch(struct engine *engine, const struct access *reader, int64_t object, int64_t place, int64_t start,
                  int64_t stop, struct fetch *fetch);
void access_write_through(struct engine *engine, struct access *writer, int64_t object, int64_t place, int64_t start,
                          int64_t stop);
void access_flush(struct engine *engine, int64_t node, int64_t file, int64_t object, int64_t place, int64_t start,
                  int64_t stop, struct flush *flush);
/* What must be done for a period. */
void access_tick(struct engine *engine);
/* Whether somebody decides at closes, or about requests as well. */
bool decides(const struct engine *engine);

/* homeward.c: how nodes bring home together what their ranks have. */
void homeward_add(struct engine *engine, struct access *move);
void homeward_taken(struct engine *engine, struct home *home); /* a chunk is home */
void homeward_due(struct engine *engine, struct home *home);
void homeward_hurry(struct engine *engine); /* somebody waits */

/* maps.c: the ranges of [start, stop) of a file in replicas and in the original. */
bool is_mapped(const struct engine *engine, int64_t file, bool write);
typedef void range_found(void *context, int64_t object, int64_t start, int64_t stop);
void map_range(const struct engine *engine, int64_t rank, int64_t file, bool write, int64_t start, int64_t stop,
               range_found *found, void *context);

/* calls.c: what ranks do, call by call. */
void rank_begin(struct engine *engine, struct rank *rank);
void rank_next(struct engine *engine, struct rank *rank);
void rank_arrives(struct engine *engine, struct rank *rank);
void rank_ready(struct engine *engine, struct rank *rank);
void call_continue(struct engine *engine, struct call *call);
void call_ends(struct engine *engine, struct call *call);
/* The next access of a call, with all that adjoin it: a range_next. */
bool call_range(void *call, int64_t *start, int64_t *stop);

/* collectives.c: calls that all their ranks make together. */
void collective_join(struct engine *engine, struct call *call);
void collective_accessed(struct engine *engine, struct collective *collective);
void collective_shuffled(struct engine *engine, struct collective *collective);
bool collective_release(struct engine *engine);

#endif
