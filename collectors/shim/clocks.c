/* How far the clock of this node is from those of the other nodes. At MPI_Init one process of each
 * node measures it, by Cristian's algorithm (Distributed Computing 3, 1989): of a few exchanges
 * with another node it uses the shortest one, and takes the other clock as read in its middle. The
 * nodes form a binomial tree, and each measures against its parent, so that the time for all grows
 * with the logarithm of their number. The offsets are added up when the logs are packed. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder.h"

enum { TAG = 32026, EXCHANGES = 6, MAX_CLOCKS = 4096 };

/* RATIONALE: if ranks of a node run without this library, the others must not wait for ever. No
 * rank with the library comes this late from MPI_Init, which itself waits for all. */
static const int64_t timeout_ns = INT64_C(3000000000);

struct clock {
    int64_t id, rank; /* the first rank found that reads it */
};

static struct rawlog_clock own; /* of this process's clock */

static uint64_t hash(uint64_t seed, const void *data, size_t size)
{
    for (const unsigned char *byte = data; size-- > 0; byte++)
        seed = (seed ^ *byte) * UINT64_C(0x100000001b3); /* FNV-1a */
    return seed;
}

/* CLOCK_MONOTONIC counts from the boot, and a time namespace may shift it. 0: not known. */
static uint64_t identify(void)
{
    char boot[64];
    struct stat namespace = {0};
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, boot, sizeof boot);
    if (file >= 0)
        close(file);
    if (size <= 0)
        return 0;
    /* Without this file there are no time namespaces. */
    if (stat("/proc/self/ns/time", &namespace) != 0)
        namespace.st_ino = 0;
    uint64_t id = hash(UINT64_C(0xcbf29ce484222325), boot, (size_t)size);
    return hash(id, &namespace.st_ino, sizeof namespace.st_ino);
}

struct rawlog_clock clocks_own(void)
{
    if (!own.id)
        own.id = identify();
    return own;
}

static mpi_handle begin_send(const struct mpi *mpi, const void *values, int count, int rank)
{
    mpi_handle request = mpi->request_null;
    mpi->Isend(values, count, mpi->int64, rank, TAG, mpi->comm_world, &request);
    return request;
}

static mpi_handle begin_receive(const struct mpi *mpi, void *values, int count, int rank)
{
    mpi_handle request = mpi->request_null;
    mpi->Irecv(values, count, mpi->int64, rank, TAG, mpi->comm_world, &request);
    return request;
}

static void send(const struct mpi *mpi, const void *values, int count, int rank)
{
    mpi_handle request = begin_send(mpi, values, count, rank);
    mpi->Wait(&request, mpi->status_ignore);
}

static void receive(const struct mpi *mpi, void *values, int count, int rank)
{
    mpi_handle request = begin_receive(mpi, values, count, rank);
    mpi->Wait(&request, mpi->status_ignore);
}

/* ---- are all here? ----------------------------------------------------------------------------------------------- */

/* What a binomial tree of all ranks passes up and down. */
struct hello {
    int64_t lowest, highest; /* id */
    int64_t missing;         /* some rank is */
};

/* True: the request completed before the deadline. Otherwise it is abandoned, and its buffer may
 * still be used. */
static bool completes(const struct mpi *mpi, mpi_handle *request, int64_t deadline_ns)
{
    int done = 0;
    for (; mpi->Test(request, &done, mpi->status_ignore) == 0 && !done; sched_yield())
        if (clock_ns() > deadline_ns)
            return false;
    return done;
}

static void send_hello(const struct mpi *mpi, const struct hello *hello, int rank, int64_t deadline_ns)
{
    mpi_handle request = begin_send(mpi, hello, 3, rank);
    if (!completes(mpi, &request, deadline_ns))
        mpi->Request_free(&request);
}

static bool receive_hello(const struct mpi *mpi, struct hello *hello, int rank, int64_t deadline_ns)
{
    mpi_handle request = begin_receive(mpi, hello, 3, rank);
    if (completes(mpi, &request, deadline_ns))
        return true;
    mpi->Cancel(&request);
    mpi->Request_free(&request);
    return false;
}

static void add(struct hello *sum, const struct hello *other)
{
    sum->lowest = other->lowest < sum->lowest ? other->lowest : sum->lowest;
    sum->highest = other->highest > sum->highest ? other->highest : sum->highest;
    sum->missing |= other->missing;
}

/* True: all ranks are here, and they do not all read one clock. RATIONALE: ranks without this
 * library never answer. An unreceived message to one of them does less harm than a collective call
 * that not all ranks make: that one breaks all later collective calls. */
static bool clocks_differ(const struct mpi *mpi, int rank, int ranks)
{
    enum { LEVELS = 31 };
    static struct hello sum, answer, others[LEVELS];
    bool heard[LEVELS] = {false};
    const int64_t start = clock_ns();
    int level = 0;
    sum = (struct hello){(int64_t)own.id, (int64_t)own.id, false};
    for (; INT64_C(1) << level < ranks && !(rank >> level & 1); level++) {
        if (rank + (INT64_C(1) << level) >= ranks)
            continue;
        /* Somewhat longer than that rank waits for its own messages. */
        heard[level] = receive_hello(mpi, &others[level], rank + (1 << level),
                                     start + timeout_ns + level * timeout_ns / 8);
        add(&sum, heard[level] ? &others[level] : &(struct hello){sum.lowest, sum.highest, true});
    }
    answer = sum;
    if (rank > 0) {
        send_hello(mpi, &sum, rank - (1 << level), start + 4 * timeout_ns);
        if (!receive_hello(mpi, &answer, rank - (1 << level), start + 4 * timeout_ns))
            return false;
    }
    while (level-- > 0)
        if (heard[level])
            send_hello(mpi, &answer, rank + (1 << level), start + 4 * timeout_ns);
    return !answer.missing && answer.lowest != answer.highest;
}

/* ---- one process of each node ------------------------------------------------------------------------------------ */

static int64_t merge(struct clock *clocks, int64_t count, const struct clock *others, int64_t number)
{
    for (int64_t i = 0; i < number; i++) {
        int64_t place = 0;
        while (place < count && clocks[place].id != others[i].id)
            place++;
        if (place == count && count < MAX_CLOCKS)
            clocks[count++] = others[i];
    }
    return count;
}

/* Collects the clocks of all ranks up the tree and sends the result to everyone. Returns their
 * number; the first is rank 0's. */
static int64_t find_clocks(const struct mpi *mpi, int rank, int ranks, struct clock *clocks)
{
    static struct clock others[MAX_CLOCKS];
    int64_t count = 1, number;
    clocks[0] = (struct clock){(int64_t)own.id, rank};
    for (int bit = 1; bit < ranks; bit <<= 1) {
        if (rank & bit) {
            send(mpi, &count, 1, rank - bit);
            send(mpi, clocks, 2 * (int)count, rank - bit);
            break;
        }
        if (rank + bit < ranks) {
            receive(mpi, &number, 1, rank + bit);
            receive(mpi, others, 2 * (int)number, rank + bit);
            count = merge(clocks, count, others, number);
        }
    }
    mpi->Bcast(&count, 1, mpi->int64, 0, mpi->comm_world);
    mpi->Bcast(clocks, 2 * (int)count, mpi->int64, 0, mpi->comm_world);
    return count;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void serve(const struct mpi *mpi, const struct clock *child)
{
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t now;
        receive(mpi, &now, 1, (int)child->rank);
        now = clock_ns();
        send(mpi, &now, 1, (int)child->rank);
    }
}

static void measure(const struct mpi *mpi, const struct clock *parent)
{
    own.error_ns = INT64_MAX;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t theirs, start = clock_ns();
        send(mpi, &start, 1, (int)parent->rank);
        receive(mpi, &theirs, 1, (int)parent->rank);
        int64_t half = (clock_ns() - start) / 2;
        if (half < own.error_ns) {
            own.error_ns = half;
            own.offset_ns = theirs - (start + half);
        }
    }
    own.parent = (uint64_t)parent->id;
}

/* The launcher says that all ranks are on one node: no messages are needed. */
static bool on_one_node(int ranks)
{
    static const char *const sizes[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    const char *nodes = getenv("SLURM_STEP_NUM_NODES");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i]))
            return atoi(getenv(sizes[i])) == ranks;
    return nodes && atoi(nodes) == 1;
}

void clocks_align(void)
{
    static struct clock clocks[MAX_CLOCKS];
    const struct mpi *mpi = running_mpi();
    int rank, ranks;
    clocks_own();
    if (!mpi || mpi->Comm_size(mpi->comm_world, &ranks) != 0 || ranks == 1 || on_one_node(ranks) ||
        mpi->Comm_rank(mpi->comm_world, &rank) != 0 || !clocks_differ(mpi, rank, ranks))
        return;
    int64_t count = find_clocks(mpi, rank, ranks, clocks), place = 0;
    while (place < count && clocks[place].rank != rank)
        place++;
    if (place == count)
        return;
    /* RATIONALE: the smallest subtrees are ready first. */
    for (int64_t bit = 1; place + bit < count && !(place & bit); bit <<= 1)
        serve(mpi, &clocks[place + bit]);
    if (place > 0)
        measure(mpi, &clocks[place & (place - 1)]);
}
