/* A storage server: its queue, its device, and when the device serves what. */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "simulator.h"

struct request;

struct line {
    struct sub *first, *last;
};

/* The part of a request that one server serves. */
struct sub {
    struct request *request;
    struct sub *sibling, *behind;
    int64_t server, address, length, process;
    int64_t skipped, ahead; /* its bytes that the device need not read; bytes after them that it reads, too */
    struct line followers;  /* the requests that wait for what it reads ahead */
    double arrived, started;
    bool write, background;
    bool further; /* a further strip of a request, sent by itself: the device takes it for a request */
};

/* What a sweep of the elevator still has to serve, nearest first. */
struct sweep {
    struct sub **at;
    size_t count, room;
};

/* The requests of a process that wait, and the process whose turn is next. */
struct process {
    struct line line;
    int64_t after;
};

/* Bytes that are being read ahead. */
struct flight {
    int64_t start, stop;
    struct sub *sub;
};

/* Some of the pages of a server: one bit each. */
struct marks {
    uint64_t *word;
    int64_t words;
};

/* What a process reads of a server: the end of its previous read, and the last page that was read
 * for it, ahead or not. */
struct stream {
    int64_t next, front;
};

struct server {
    const struct sim_server *spec;
    struct line outside;          /* requests for which the queue has no room yet */
    struct line line, background; /* FIFO's requests; background requests of all queues but the elevator */
    struct sweep sweep[2], background_sweep[2]; /* the elevator's: this one, and the next */
    struct process *process;      /* CFQ's */
    struct stream *stream;        /* of each process, if there is reading ahead */
    struct marks ahead, fronts;   /* what was read ahead and not yet used, and the ends of all streams */
    struct flight *flight;        /* by addresses */
    size_t flights, flight_room;
    struct sweep dirty_sweep[2][2]; /* what memory holds for the device to write: of requests, of the background */
    struct line dirty_line[2];    /* likewise; written after the sweeps */
    int64_t ordered[2];           /* in a sweep, or being written */
    struct line full;             /* writes for which memory has no room yet */
    int64_t dirty;
    double owed;                  /* seconds of its share that the background has not had */
    int64_t *read_to;             /* where each process stopped reading, if requests are counted (overlap) */
    int64_t active, first_turn, last_turn;
    double slice_end, last_done;
    int64_t inside, busy, head;   /* requests in the queue and being served, all that are served, the head's address */
    bool moved; /* the head's place is known */
    uint64_t *known;              /* a bit for each rank that has made a request, if that makes requests dearer */
    int64_t clients;
    double bus_free, accept_free, link_free[2];
    uint64_t random;
};

enum taken { TAKEN, NOTHING, WAIT };

/* False: no memory. */
bool server_begin(struct server *server, const struct sim_server *spec, int64_t processes, uint64_t seed);
void server_end(struct server *server);

/* Lines are first in, first out. NULL: the line is empty. */
void line_put(struct line *line, struct sub *sub);
struct sub *line_take(struct line *line);

/* False: no memory. */
bool sweep_put(struct sweep *sweep, struct sub *sub);

/* False: no memory. */
bool server_put(struct server *server, struct sub *sub);

/* What the device serves next. WAIT: it waits until `*until` for the process whose slice it is. */
enum taken server_take(struct server *server, double now, struct sub **sub, double *until);

/* The device has served what it took. False: no memory. */
bool server_served(struct server *server, const struct sub *sub, double now);

/* The seconds that the server itself takes for a request of a rank; -1: of none. It is connected from now on. */
double server_handles(struct server *server, const struct sim_input *in, int64_t rank);

/* When a request that is taken now will be done. `*moved`: the bytes between its start and the end
 * of the previous one. */
double server_serve(struct server *server, const struct sim_input *in, const struct sub *sub, double now,
                    int64_t *moved);

#endif
