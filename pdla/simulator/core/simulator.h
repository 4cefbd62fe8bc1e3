/* The simulator's core: a run of a machine and its programs, from arrays to arrays
 * (pdla/simulator/core.py).
 *
 * All members have 8 bytes, so that numpy's records are these structs. Comments say which members
 * are indices into other arrays; -1 is none. */
#ifndef SIMULATOR_H
#define SIMULATOR_H

#include <stdint.h>

struct caching;

enum sim_op { SIM_READ, SIM_WRITE };
enum sim_exchange { SIM_TWO_PHASE, SIM_AUTO, SIM_ALWAYS, SIM_NEVER };
enum sim_queue { SIM_FIFO, SIM_ELEVATOR, SIM_CFQ };
enum sim_flags { SIM_WRITES = 1, SIM_CLOSES = 2, SIM_SYNCS = 4 };
enum sim_logged { SIM_CALL, SIM_QUEUED, SIM_STARTED, SIM_SERVED, SIM_RETURNED };

/* A device with its queue. Its start-up curves are points [curve[op], curve[op] + points[op]) of
 * the input. */
struct sim_server {
    double seconds_per_byte[2];
    double rotation; /* seconds of a revolution, a random part of which it waits; 0: the curve has it */
    double slice;    /* CFQ: seconds that a process has the device */
    double idle;     /* CFQ: seconds of its slice that the device waits for its next request */
    double share;    /* of its time, for the background while requests wait */
    int64_t curve[2];
    int64_t points[2];
    int64_t clients_curve, clients_points; /* likewise: clients, and seconds of the server a request */
    int64_t queue;
    int64_t depth; /* requests that the queue orders, with those being served; others wait for room; 0: all */
    int64_t channels;
    int64_t overlap; /* a request takes the longer of start-up and transfer */
    int64_t memory_depth; /* of the writes in memory, how many are ordered at a time; 0: all */
    int64_t memory, read_ahead; /* bytes: of writes that it holds for the device, and of each reading ahead */
    int64_t node;    /* the client node that it is in, or -1 */
    int64_t host;    /* a server, whose link and connections it shares */
    int64_t writer;  /* the server that serves its writes: itself, unless it is duplex */
};

/* Bytes striped over servers (pdla.model.Layout). The strips, bases and servers of server j are at
 * `first + j`. */
struct sim_object {
    int64_t groups, width, section;
    int64_t strips; /* first of `width` strips and of as many sums of the strips before each */
    int64_t first;
    int64_t space; /* the space that its bytes are counted under */
    int64_t strip_by_strip; /* clients send each strip of a request by itself */
    int64_t alone; /* a node keeps what it writes to a file of it only as long as no other node uses that file */
};

/* A replica: its bytes by loops (count, stride, replica stride), or by extents (start, length, replica start). */
struct sim_map {
    int64_t object, ops; /* ops: a bit for each sim_op that it serves */
    int64_t loops, depth, start, length, replica_start;
    int64_t extents, extent_count;
};

struct sim_loop {
    int64_t stride, count, grow_stride, grow_length, grow_count;
};

struct sim_nest {
    int64_t start, length, loops, depth;
};

/* A call of a rank. Its pieces are items [item, next call's item). */
struct sim_call {
    int64_t file, flags, item;
    int64_t collective, participants; /* the collective call that it is part of, and that call's number of ranks */
    double think, start;              /* seconds since the rank's previous call, and since the run began */
};

struct sim_item {
    int64_t offset, length, form; /* form: a nest that starts at 0, or -1: one extent */
};

/* A signature: what the ranks that have it as a part do. */
struct sim_pattern {
    int64_t file, flags, nest, rank_loops;
    int64_t pieces; /* accesses of a call */
    int64_t collective, participants;
};

struct sim_part {
    int64_t pattern, position; /* of the rank among those of the pattern */
};

/* Transfers of a stage go in parallel, stages one after another. */
struct sim_transfer {
    int64_t stage, object;
    int64_t server; /* the object's server that has all of it, at these addresses; -1: it is striped */
    int64_t op, start, stop, node;
};

struct sim_answer {
    const struct sim_transfer *transfer;
    int64_t transfers;
};

/* A file was closed or synchronized; -1: the run ended. */
struct sim_close {
    double time;
    int64_t file;
};

struct sim_event {
    double time;
    int64_t what, rank, server, address, length;
};

struct sim_input {
    int64_t ranks, nodes, ranks_per_node, files, places, servers, spaces;
    double connect, seconds_per_byte;
    double jitter; /* mean of the random seconds by which a rank is late with a call */
    double call_seconds, copy_seconds, exchange_seconds; /* of a processor: a request, a byte, a message byte */
    int64_t cores;                                       /* of a node; 0: each rank has one */
    int64_t seed, open_loop;
    int64_t sieve[2];          /* bytes of the buffer for data sieving of reads and writes; 0: piece by piece */
    int64_t collective_buffer; /* bytes; 0: collective calls are served like others */
    int64_t aggregators;       /* so many at most; 0: one on every node */
    int64_t flush_replicas;    /* a file's close waits until its replicas, too, have what nodes kept of them */
    int64_t client_cache;      /* nodes keep what they have read and written */
    int64_t client_sync;       /* what is written goes to the storage at once, too */
    int64_t client_read_ahead; /* the most bytes that they read ahead, and write at once */
    int64_t always;            /* collective buffering even if the ranks' accesses do not interleave */
    int64_t exchange;          /* how ranks write together if somebody decides about requests (enum sim_exchange) */
    int64_t home_chunk;        /* bytes: unless it is SIM_TWO_PHASE, a node brings home what it has in such chunks, */
    int64_t home_request;      /* in requests of at most so many; 0: of all that is contiguous */
    int64_t home_cached;       /* which is in its memory: it need not be read */
    double exchange_costs[6];  /* struct caching_costs, of SIM_AUTO */
    const struct sim_server *server;
    const int64_t *curve_place; /* a distance, or clients */
    const double *curve_seconds;
    const struct sim_object *object; /* the first `files` are the originals */
    const int64_t *strips, *server_of, *bases, *sizes; /* of each of `places`: its server, and its addresses there */
    const int64_t *first_map; /* files + 1 */
    const struct sim_map *map;
    const int64_t *map_loops, *extents;
    const int64_t *first_call; /* ranks + 1 */
    const struct sim_call *call;
    const struct sim_item *item;
    const struct sim_loop *loop;
    const struct sim_nest *nest;
    const struct sim_pattern *pattern;
    const int64_t *first_part; /* ranks + 1 */
    const struct sim_part *part;
    struct caching *caching;     /* decides about every request; NULL: none does */
    const int64_t *level_object; /* of each of its levels */
    double period;               /* of its ticks; 0: none */
    /* What is written back when a file is closed; -1: the run ends. NULL: nothing. Not 0 stops the run. */
    int (*closing)(int64_t file, struct sim_answer *answer);
    struct sim_close *closes; /* room for all closes; NULL: they are not wanted */
    struct sim_event *log;
    int64_t log_room;
    const volatile int *stop; /* not 0 stops the run, after the event in which it becomes so */
};

/* For each server: its seconds, its requests, and the bytes that its head has moved. For each file:
 * the time that its requests took on servers, and their number. For each rank: its seconds in calls.
 * For each space: foreground reads and writes, background reads and writes. */
struct sim_output {
    double seconds; /* when the last call returned */
    double settled; /* when the last move was done */
    double io_seconds; /* in which at least one rank was in a call */
    double closing;    /* after the last call, for what was done at the end */
    double call_seconds, longest_call;
    int64_t calls, bytes[2], requests, subrequests, moves, logged, stuck, closes;
    double *server_busy, *server_waited, *server_distance, *file_latency, *rank_seconds;
    int64_t *server_served, *file_requests, *space_bytes;
};

enum sim_result { SIM_DONE, SIM_NO_MEMORY, SIM_STOPPED };

/* Whether these are the sizes of the structs that the caller makes or reads, in order (from sim_server
 * to sim_output; then some of caching.h). If not, the library is of another version. */
int sim_fits(const int64_t *sizes, int64_t count);

/* Runs all programs to their ends. `in` and all it points to must stay until a sim_result is
 * returned. */
int sim_run(const struct sim_input *in, struct sim_output *out);

#endif
