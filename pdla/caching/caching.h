/* The core that decides, while a program runs, which bytes are read and written where, and which are
 * moved.
 *
 * A policy wishes, the enactor carries the wishes out and keeps the rules of all policies (README.md).
 * The core knows no time, makes no system call but for memory, and has no globals: a process may have
 * several cores, and a core belongs to one thread at a time.
 *
 * All members have 8 bytes. -1 is none. Ranges [start, stop) count bytes of a file; for a policy of
 * the data servers they count bytes of a part: what home server `part` stores of the file. What a
 * struct points to must stay until the core is freed; what the core returns stays until it is called
 * again. */
#ifndef CACHING_H
#define CACHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CACHING_API
#define CACHING_API
#endif

enum caching_op { CACHING_READ, CACHING_WRITE };
enum caching_kind { CACHING_PLACE, CACHING_WRITE_BACK, CACHING_DROP };
enum caching_result { CACHING_DONE, CACHING_NO_MEMORY, CACHING_STOPPED };
enum { CACHING_HOME = -1, CACHING_NOWHERE = -2 }; /* numbers of no space: the originals; none that exists */

/* Why a wish was refused; caching_why() says it in words. */
enum caching_why {
    CACHING_WAITS_FOR_ITSELF,
    CACHING_NAMES_NO_PART,
    CACHING_NAMES_A_PART,
    CACHING_NO_BYTES,
    CACHING_NOT_OF_THE_FILE,
    CACHING_NOT_OF_THE_REQUEST,
    CACHING_NO_SUCH_SPACE,
    CACHING_OTHER_SERVER,
    CACHING_NO_WRITES,
    CACHING_NO_ROOM,
    CACHING_WRITTEN_AGAIN,
};

struct caching;

/* A place for copies. A byte has at most one copy in each level (a pool, or the memory of the home
 * servers). */
struct caching_space {
    const char *name;
    int64_t level;    /* from 0 on, in the order in which reads look for copies */
    int64_t server;   /* the server of the level that has all of it; -1: it is striped over the level */
    int64_t on_nodes; /* the level's servers are client nodes: a node needs no network to its own */
    int64_t capacity; /* bytes */
    int64_t chunk;    /* bytes that are moved at a time in the background */
    int64_t reads;    /* requests may be read from here; if not, a read waits for the write-back */
    int64_t writes;   /* bytes with a copy here are written here; if not, a write ends the copy */
};

struct caching_setup {
    int64_t home_servers, home_strip; /* how the originals are striped */
    int64_t by_part;                  /* the policy is one of the data servers */
    int64_t together;                 /* the driver makes the moves of a node together: it gets them all at once */
    int64_t spaces, levels;
    const struct caching_space *space;
    int64_t limit;       /* bytes of memory that the core may take */
    int64_t tokens_only; /* the driver brings home in its own way: write-backs have no transfers */
};

/* A contiguous access to a file as it leaves a client. */
struct caching_request {
    double time;
    int64_t rank, node, file, op, start, stop, collective;
};

/* What a policy wishes. `fetch`: the bytes are copied in the background; with `wait`, at once. A
 * write-back with `wait`: the close waits for it. `node` moves the bytes; -1: that of the request. */
struct caching_wish {
    int64_t kind, file, part, start, stop;
    int64_t space; /* of a Drop: -1 is all of the level */
    int64_t level; /* of a Drop */
    int64_t fetch, wait, node;
    const char *reason;
    double value; /* seconds that it returns, if the policy knows: they are part of the reason */
    int64_t tag; /* the policy's own; 0 if the core made it */
};

struct caching_refusal {
    double time;
    struct caching_wish wish;
    int64_t why, needed, left; /* bytes, if there is no room */
};

/* Bytes, and the space from which they are read: its number, or CACHING_HOME. */
struct caching_extent {
    int64_t file, part, start, stop, space, dirty;
};

/* How far the clean copies were looked at. */
struct caching_cursor {
    int64_t used, serial, unlisted, at;
};

/* Bytes [start, stop) of a level, or of the originals (level -1), are read or written; `first` is the
 * byte of the file or part at `start`. With a server they count the bytes of that server; else the
 * addresses of the level, or the bytes of the file. `node`: whose link they cross; -1: none. Stages
 * follow one another, the transfers of a stage run in parallel. */
struct caching_transfer {
    int64_t stage, level, server, file, op, start, stop, node, first;
};

/* Transfers [first, first + transfers) of the step's `moved`, which no request asked for:
 * caching_finished(token) must be called when they are done. `urgent`: with the priority of requests.
 * `after`: not 0: it starts when the request with this number has been served (the calls of
 * caching_serve are counted from 1): it may read what that request writes. The others start at once. */
struct caching_move {
    int64_t token, urgent, after, first, transfers;
};

/* What serves a request: first the end of the moves `wait`, then `foreground`. These moves belong to
 * this step, are in progress, or will be returned by caching_finished. */
struct caching_step {
    const struct caching_transfer *foreground;
    int64_t transfers;
    const struct caching_move *move;
    int64_t moves;
    const struct caching_transfer *moved;
    const int64_t *wait;
    int64_t waits;
    const struct caching_refusal *refused;
    int64_t refusals;
};

/* A policy: its functions are called with `state`, and call caching_wish. Not 0 stops the core. */
struct caching_policy {
    void *state;
    int (*request)(void *state, struct caching *core, const struct caching_request *request);
    int (*tick)(void *state, struct caching *core);                /* NULL: it wishes nothing then */
    int (*close)(void *state, struct caching *core, int64_t file); /* likewise; -1: the run ends */
};

/* Start-up seconds by the distance from the device's previous request: points, linear between them. */
struct caching_curve {
    int64_t points;
    const int64_t *distance;
    const double *seconds;
};

/* By enum caching_op. */
struct caching_device {
    struct caching_curve startup[2];
    double seconds_per_byte[2];
};

/* The parameters of S4D-Cache (s4d.c): space 0 is striped over `ssds` servers. */
struct caching_s4d {
    struct caching_device disk, ssd;
    int64_t ssds;
};

/* The parameters of iBridge (ibridge.c): space i is the SSD of home server i. Sub-requests of fewer
 * bytes than `limit` are fragments [0], or random [1]. */
struct caching_ibridge {
    struct caching_device disk, ssd;
    int64_t limit[2];
    int64_t capacity; /* of each SSD */
};

/* The parameters of LiU (liu.c): space i is the buffer of home server i, space home_servers + i its SSD. */
struct caching_liu {
    int64_t head, body, sections, buffer;
    double locality;
};

/* The parameters of E10 (e10.c): space i is the device of node i. */
struct caching_e10 {
    int64_t flush_on_close, discard;
};

/* What the ranks of a collective write write together. */
struct caching_collective {
    int64_t ranks, nodes;
    int64_t bytes, span;   /* all of them; from the first to the last in the file */
    int64_t piece, joined; /* bytes without a gap, on average: that a node writes; that all of them write */
    int64_t unit;          /* bytes that are exchanged as one (cb_buffer_size); 0: as the core thinks best */
    int64_t fills;         /* later calls write between the pieces of earlier ones */
    double compute;        /* seconds for which the program computes before it waits for the bytes */
};

/* Seconds: of the storage for a request, and for a byte, with all nodes at work; of a message from rank
 * to rank; of a byte between nodes, and of one that is copied in memory. `overlap`, 0 or 1: the storage
 * takes the longer of the seconds of requests and of bytes, not both. */
struct caching_costs {
    double request, byte, message, network, copy, overlap;
};

/* What is best for a collective write. Unit u of the file, of `unit` bytes, is for the cache of the rank
 * whose turn it is (u modulo the ranks); an exchange has rounds of `at_a_time` units. Element 0: without
 * an exchange; 1: with one; 2: by the MPI library to the original, which sieves. */
struct caching_exchange {
    int64_t exchanges, sieves, unit, at_a_time;
    int64_t requests[3]; /* of the storage, until the bytes are home */
    double seconds[3];   /* that the program perceives, beside those of the caches' devices */
};

/* A critical request: Eq. 8's seconds when it was found, and how often it was read. */
struct caching_critical {
    int64_t file, start, stop, reads;
    double benefit;
};

/* A new core without a policy, or NULL without memory. */
CACHING_API struct caching *caching_new(const struct caching_setup *setup);
CACHING_API void caching_free(struct caching *core);

/* Gives the core its policy. */
CACHING_API int caching_use(struct caching *core, const struct caching_policy *policy);
CACHING_API int caching_use_s4d(struct caching *core, const struct caching_s4d *parameters);
CACHING_API int caching_use_ibridge(struct caching *core, const struct caching_ibridge *parameters);
CACHING_API int caching_use_liu(struct caching *core, const struct caching_liu *parameters);
CACHING_API int caching_use_e10(struct caching *core, const struct caching_e10 *parameters);

/* A file has so many bytes. Writes beyond them make it longer. */
CACHING_API int caching_file(struct caching *core, int64_t file, int64_t size);

/* What must be done for a request; at every period of the policy; when a file is closed or
 * synchronized (-1: at the end of the run); and when a move is done (nothing, if it is not under way). Without memory
 * the decision is incomplete, and the core makes no other one: it only says what is dirty. */
CACHING_API int caching_serve(struct caching *core, const struct caching_request *request, struct caching_step *step);
CACHING_API int caching_tick(struct caching *core, double now, struct caching_step *step);
CACHING_API int caching_close(struct caching *core, double now, int64_t file, struct caching_step *step);
CACHING_API int caching_finished(struct caching *core, int64_t token, double now, struct caching_step *step);

/* Called by a policy: carries a wish out, or refuses it. */
CACHING_API int caching_wish(struct caching *core, const struct caching_wish *wish);

/* What a policy sees. */
CACHING_API double caching_now(const struct caching *core);
CACHING_API int64_t caching_size(const struct caching *core, int64_t file, int64_t part);
CACHING_API int64_t caching_room(const struct caching *core, int64_t space);
/* The extents from which [start, stop) would be read now, in order and without gaps. */
CACHING_API int caching_extents(struct caching *core, int64_t file, int64_t part, int64_t start, int64_t stop,
                                const struct caching_extent **extent, int64_t *extents);
/* The clean copy that was used longest ago, after the one at `cursor` (0 at first); false: there is
 * none. */
CACHING_API bool caching_coldest(const struct caching *core, int64_t space, struct caching_cursor *cursor,
                                 struct caching_extent *extent);

/* What the originals do not have. */
CACHING_API int caching_dirty(struct caching *core, const struct caching_extent **extent, int64_t *extents);
/* The most bytes that a space ever held. */
CACHING_API int64_t caching_peak(const struct caching *core, int64_t space);

/* Of the refused wishes of the same kind and reason: how many there are, and one of them; `number`
 * counts the reasons from 0 on, in the order of their first refusal. 0: there are no more. */
CACHING_API int64_t caching_refused(const struct caching *core, int64_t number, struct caching_wish *wish);

/* The identifier of S4D-Cache without a core, for a driver whose bytes a policy without benefits places. It is to be
 * freed; NULL: out of memory. Its table takes at most `limit` bytes of memory. */
struct caching_identifier;
CACHING_API struct caching_identifier *caching_identifier_new(const struct caching_s4d *parameters, int64_t home_strip,
                                                              int64_t home_servers, int64_t limit);
CACHING_API void caching_identifier_free(struct caching_identifier *identifier);
/* Whether a request is critical. It is in the table from then on, unless that is full. */
CACHING_API bool caching_identify(struct caching_identifier *identifier, const struct caching_request *request);
/* What a request saves (Eq. 8), in seconds; critical are those that save something. It is in no table. */
CACHING_API double caching_benefit(struct caching_identifier *identifier, const struct caching_request *request);
/* A read is in the table from then on, unless that is full, with what it `saves`. */
CACHING_API void caching_add(struct caching_identifier *identifier, const struct caching_request *request,
                             double saves);
/* Whether the table takes no more. */
CACHING_API bool caching_identifier_full(const struct caching_identifier *identifier);
/* Empties the table. The next request is judged by the one before all the same. */
CACHING_API void caching_identifier_empty(struct caching_identifier *identifier);
/* The next critical request after the one at *at (0 at first), in the order in which they were found; false: there is
 * none. */
CACHING_API bool caching_critical(const struct caching_identifier *identifier, int64_t *at,
                                  struct caching_critical *found);

/* The judge of iBridge, for a driver whose bytes a policy without return values places.
 *
 * Requests are split at strips: the part of a request on one server is a sub-request. `head` and `tail`: the bytes of
 * the first and of the last one, if they are fewer than `few`; otherwise 0. A request of one sub-request has no
 * tail. */
struct caching_split {
    int64_t first; /* strip */
    int64_t siblings; /* sub-requests */
    int64_t head, tail;
};
/* False: the SSD is for none of them. If a server has more than one strip of a request, no sub-request is small. */
CACHING_API bool caching_split(int64_t strip, int64_t servers, int64_t start, int64_t stop, int64_t few,
                               struct caching_split *split);
/* T_i after a request that took so many seconds: T_i = T_(i-1)/8 + seconds*7/8. */
CACHING_API double caching_average(double before, double seconds);
/* D_to_T + R + size/B; a negative distance is the farthest. */
CACHING_API double caching_seconds(const struct caching_device *device, int64_t distance, int64_t size, int64_t op);
/* What sub-request `number` returns besides: (T_max - T_secmax)*n on the slowest of the servers of a request, whose
 * averages these are; 0 on the others. The slides do not say what n is: here the number of sub-requests, all of which
 * wait for the slowest. */
CACHING_API double caching_bonus(const double *average, int64_t siblings, int64_t number);
/* Where the latest reads of a rank in a file ended, the last one first: it may read several parts of the file in turns.
 * At first all are 0, the beginning of the file. */
enum { CACHING_STREAMS = 4 };
struct caching_streams {
    int64_t stop[CACHING_STREAMS];
};
/* Whether a read goes on where one of the streams ended, or after bytes that the other ranks read if each of them reads
 * as much. The stream ends at `stop` from then on. RATIONALE: storage reads ahead what is read in order. So a disk
 * reads a fragment with the rest, for size/B; without it, the next read costs D_to_T(size) + R. */
CACHING_API bool caching_in_order(struct caching_streams *streams, int64_t start, int64_t stop, int64_t ranks);

/* Seconds of the storage. */
CACHING_API double caching_stored(const struct caching_costs *costs, int64_t requests, int64_t bytes);
/* Decides it by a model of the costs. */
CACHING_API void caching_exchange(const struct caching_collective *call, const struct caching_costs *costs,
                                  struct caching_exchange *found);

/* Writes why a wish was refused, or the wish's own reason; returns the length of the whole text. */
CACHING_API int64_t caching_why(const struct caching *core, const struct caching_refusal *refusal, char *text,
                                int64_t size);
CACHING_API int64_t caching_reason(const struct caching_wish *wish, char *text, int64_t size);

#endif
