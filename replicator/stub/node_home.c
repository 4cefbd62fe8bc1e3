/* RATIONALE: what one rank has is often many small pieces, between those of the others. A round
 * takes the journals of all ranks of the node. Every thread that takes part finds the same chunks of
 * the original in them, and takes chunk after chunk until none is left. It reads the journals again
 * for the pieces of the next few chunks, so that it has memory for these only. Who ends the last
 * chunk makes the bytes durable, and then notes in every journal that its entries are home. If one
 * of them is killed, nothing is noted: the next round does all of it again.
 *
 * A round is numbered. The numbers are part of the words that are counted up, so nobody takes a
 * chunk of a later round for one of the round that it knows. */
#include "node_home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "critical_requests.h"
#include "exchange.h"
#include "home_chunks.h"
#include "homeward.h"
#include "transfer.h"
#include "write_stats.h"
#include "writeback.h"

enum {
    PERIOD_NS = 1000000000,
    ALIVE_NS = 500000000,  /* between looks at whether the others live */
    FUTEX_WAIT = 0, FUTEX_WAKE = 1, /* of <linux/futex.h> */
    PIECES = 1 << 16,      /* that a thread knows at a time; those of one chunk may be more */
    REST = 1 << 15,        /* entries of a journal whose pages are in memory at a time */
    MOST_LOOKS = 1 << 16   /* at entries; with more, a journal is taken to have the bytes */
};

/* The journals of the other ranks move in memory when they grow. */
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

static uint64_t number_of(uint64_t word) { return word >> 32; }
static bool under_way(uint64_t number) { return number % 2 == 1; }
/* Whether round `number`, or one after it, has failed. */
static bool has_failed(const struct round *round, uint64_t number)
{
    const uint64_t failed = __atomic_load_n(&round->failed, __ATOMIC_ACQUIRE);
    return failed != 0 && (int32_t)(uint32_t)(failed - number) >= 0;
}

static void fail(struct round *round, uint64_t number, int error)
{
    __atomic_store_n(&round->error, error, __ATOMIC_RELEASE);
    __atomic_store_n(&round->failed, number, __ATOMIC_RELEASE);
}


static uint64_t present(const struct round *round)
{
    return number_of(__atomic_load_n(&round->next, __ATOMIC_ACQUIRE));
}

/* Journal `i` of the node: this process's own is the last. */
static struct journal *journal_of(const struct writer *writer, int i)
{
    struct peers *peers = writer->peers;
    return i < peers->count ? &peers->each[i].journal : (struct journal *)(uintptr_t)&writer->journal;
}

static struct shared *shared_of(const struct writer *writer, int i)
{
    struct peers *peers = writer->peers;
    return i < peers->count ? peers->each[i].shared : peers->own;
}

static int journals(const struct writer *writer) { return writer->peers->count + 1; }

/* What a thread needs to take part in a round: its chunks, memory for the pieces and bytes of some, and the cache
 * files. RATIONALE: who begins a round has all of it, for the others may wait until that thread has brought all chunks
 * home. */
struct share {
    struct home_chunks chunks;
    struct homeward home; /* of the chunks [first, until) */
    size_t first, until;
    char *buffer;
    int *sources;
};

static void share_free(struct share *share)
{
    home_chunks_free(&share->chunks);
    homeward_free(&share->home);
    homeward_buffer_free(share->buffer);
    free(share->sources);
    *share = (struct share){0};
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

typedef bool take_entry(struct share *, uint32_t source, uint64_t number, struct journal_entry, int64_t length);

static bool count_entry(struct share *share, uint32_t source, uint64_t number, struct journal_entry entry,
                        int64_t length)
{
    (void)source;
    (void)number;
    return home_chunks_add(&share->chunks, &entry, length);
}

/* Takes what the entry has of the chunks [first, until). */
static bool add_entry(struct share *share, uint32_t source, uint64_t number, struct journal_entry entry,
                      int64_t length)
{
    const int64_t low = share->chunks.at[share->first].number, high = share->chunks.at[share->until - 1].number;
    const int64_t before = low * HOME_CHUNK - entry.start, stop = entry.start + length;
    const int64_t after = stop / HOME_CHUNK > high ? stop - (high + 1) * HOME_CHUNK : 0;
    if (before > 0) {
        entry.place += (uint64_t)before;
        entry.start += before;
        length -= before;
    }
    return length <= after || homeward_add(&share->home, source, number, &entry, length - after);
}

/* False: out of memory. */
static bool take_journal(const struct writer *writer, int i, struct share *share, take_entry *take)
{
    struct journal *journal = journal_of(writer, i);
    struct shared *shared = shared_of(writer, i);
    const bool own = i == writer->peers->count;
    bool taken = true;
    if (own)
        shared_lock(&shared->mutex); /* its owner may add to it now, and move it */
    if (shared->until > shared->from && !own)
        taken = journal_follow(journal) >= 0;
    /* RATIONALE: the round may be over, and the journal shorter. */
    const uint64_t count = journal_count(journal), until = shared->until < count ? shared->until : count;
    for (uint64_t entry = shared->from; taken && entry < until; entry++) {
        int64_t length;
        const struct journal_entry found = journal_entry(journal, entry, &length);
        taken = take(share, (uint32_t)i, entry, found, length);
        if (entry % REST == REST - 1)
            journal_rest(journal);
    }
    journal_rest(journal);
    if (own)
        pthread_mutex_unlock(&shared->mutex);
    return taken;
}

static bool take_journals(const struct writer *writer, struct share *share, take_entry *take)
{
    bool taken = true;
    pthread_mutex_lock(&mapping);
    for (int i = 0; taken && i < journals(writer); i++)
        taken = take_journal(writer, i, share, take);
    pthread_mutex_unlock(&mapping);
    return taken;
}

/* A share in the round. 0 or an errno. */
static int collect(const struct writer *writer, struct share *share)
{
    share->buffer = homeward_buffer();
    share->sources = malloc((size_t)journals(writer) * sizeof *share->sources);
    if (share->buffer == NULL || share->sources == NULL)
        return ENOMEM;
    for (int i = 0; i < journals(writer); i++)
        share->sources[i] = i < writer->peers->count ? writer->peers->each[i].cache : cache_descriptor(writer->cache);
    if (!take_journals(writer, share, count_entry))
        return ENOMEM;
    home_chunks_sort(&share->chunks);
    return homeward_reserve(&share->home, home_chunks_at_a_time(&share->chunks, PIECES)) ? 0 : ENOMEM;
}

/* Finds the pieces of a chunk that the thread has taken, and of those after it. RATIONALE: while the thread has it, the
 * round is not over, and the journals keep their entries. */
static int know(const struct writer *writer, struct share *share, size_t chunk)
{
    if (chunk >= share->first && chunk < share->until)
        return 0;
    share->first = chunk;
    share->until = home_chunks_until(&share->chunks, chunk, share->home.room);
    homeward_clear(&share->home);
    return take_journals(writer, share, add_entry) && homeward_sort(&share->home) ? 0 : ENOMEM;
}

/* How many entries of a journal a round has. RATIONALE: the pieces of one collective call often lie
 * between those of the other ranks. They go home together if nothing is taken of a call that some
 * rank has not made yet. */
static uint64_t entries_until(const struct journal *journal, const struct shared *shared, uint64_t calls)
{
    const uint64_t home = journal_home(journal), count = journal_count(journal);
    const uint64_t until = shared->calls - calls < KEPT_CALLS ? shared->after[calls % KEPT_CALLS] : count;
    return until > count ? count : until < home ? home : until;
}

/* `all`: also of calls that not all ranks have made. */
static bool choose_entries(const struct writer *writer, bool all)
{
    uint64_t calls = UINT64_MAX;
    bool any = false;
    for (int i = 0; i < journals(writer); i++)
        calls = shared_of(writer, i)->calls < calls ? shared_of(writer, i)->calls : calls;
    for (int i = 0; i < journals(writer); i++) {
        struct journal *journal = journal_of(writer, i);
        struct shared *shared = shared_of(writer, i);
        shared_lock(&shared->mutex);
        shared->from = journal_count(journal) - journal_waiting(journal);
        shared->until = all ? journal_count(journal) : entries_until(journal, shared, calls);
        any = any || shared->until > shared->from;
        pthread_mutex_unlock(&shared->mutex);
    }
    return any;
}

/* Begins a round of `all` entries, unless one is under way or nothing waits. *share: that in it, if it begun. Returns
 * its number; 0: there is none to take part in. */
static uint64_t begin(const struct writer *writer, bool all, struct share *share, int *error)
{
    struct round *round = writer->peers->round;
    uint64_t number;
    *error = 0;
    shared_lock(&round->mutex);
    number = present(round);
    if (!under_way(number)) {
        const bool any = choose_entries(writer, all);
        *error = any ? collect(writer, share) : 0;
        if (any && *error == 0) {
            number = (number + 1) & UINT32_MAX;
            __atomic_store_n(&round->chunks, share->chunks.count, __ATOMIC_RELAXED);
            __atomic_store_n(&round->done, number << 32, __ATOMIC_RELEASE);
            __atomic_store_n(&round->next, number << 32, __ATOMIC_RELEASE);
        } else {
            number = 0;
        }
    }
    pthread_mutex_unlock(&round->mutex);
    return number;
}

/* Whether some chunk of the round is still to be taken. */
static bool has_chunks(const struct round *round, uint64_t number)
{
    const uint64_t next = __atomic_load_n(&round->next, __ATOMIC_ACQUIRE);
    return number_of(next) == number && (next & UINT32_MAX) < __atomic_load_n(&round->chunks, __ATOMIC_RELAXED);
}

/* Counts a word of the round up, if it is still that of the round. UINT64_MAX: it is not. */
static uint64_t count_up(uint64_t *word, uint64_t number)
{
    uint64_t found = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    do
        if (number_of(found) != number)
            return UINT64_MAX;
    while (!__atomic_compare_exchange_n(word, &found, found + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return found & UINT32_MAX;
}

/* Ends the round. If it has not failed, all its bytes are in the original. */
static void end(const struct writer *writer, uint64_t number)
{
    struct round *round = writer->peers->round;
    shared_lock(&round->mutex);
    if (present(round) == number) {
        for (int i = 0; !has_failed(round, number) && i < journals(writer); i++) {
            struct shared *shared = shared_of(writer, i);
            shared_lock(&shared->mutex);
            if (shared->until > shared->from)
                journal_set_home(journal_of(writer, i), shared->until);
            pthread_mutex_unlock(&shared->mutex);
        }
        __atomic_store_n(&round->next, ((number + 1) & UINT32_MAX) << 32, __ATOMIC_RELEASE);
        __atomic_add_fetch(&round->over, 1, __ATOMIC_ACQ_REL);
        syscall(SYS_futex, &round->over, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&round->mutex);
}

/* Brings chunks home until none is left. */
static void move_chunks(struct file_handle *handle, struct share *share, uint64_t number)
{
    struct writer *writer = writer_of(handle);
    struct round *round = writer->peers->round;
    const uint64_t chunks = share->chunks.count;
    bool any = false;
    for (uint64_t chunk; (chunk = count_up(&round->next, number)) < chunks;) {
        if (!any)
            original_begin(handle);
        any = true;
        int error = know(writer, share, chunk);
        if (error == 0)
            error = homeward_move(writer, &share->home, chunk - share->first, share->sources, share->buffer);
        if (error != 0)
            fail(round, number, error);
        if (count_up(&round->done, number) != chunks - 1)
            continue;
        /* RATIONALE: on a node all writes go through one page cache, also those of the other ranks. */
        if (!has_failed(round, number) && fdatasync(writer->fd) != 0)
            fail(round, number, errno);
        original_end(handle);
        any = false;
        end(writer, number);
    }
    if (any)
        original_end(handle);
}

/* Takes part in round `number`, in which this thread has a share if it has begun it. 0 or an errno. */
static int take_part(struct file_handle *handle, struct share *share, uint64_t number)
{
    const struct writer *writer = writer_of(handle);
    struct round *round = writer->peers->round;
    struct shared *own = writer->peers->own;
    const int64_t start = clock_ns();
    int error = 0;
    __atomic_add_fetch(&own->working, 1, __ATOMIC_ACQ_REL);
    if (share->chunks.at == NULL && has_chunks(round, number))
        error = collect(writer, share);
    if (error == 0 && share->chunks.at != NULL && present(round) == number)
        move_chunks(handle, share, number);
    uint64_t working = __atomic_load_n(&own->working, __ATOMIC_ACQUIRE);
    while (working > 0
           && !__atomic_compare_exchange_n(&own->working, &working, working - 1, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE))
        ;
    pthread_mutex_lock(&writer->written->lock);
    writer->written->moving_ns += (uint64_t)(clock_ns() - start);
    pthread_mutex_unlock(&writer->written->lock);
    return error;
}

/* Whether all who work for the round were killed. */
static bool is_abandoned(const struct writer *writer)
{
    bool any = false;
    if (__atomic_load_n(&writer->peers->own->working, __ATOMIC_ACQUIRE) > 0)
        return false;
    for (int i = 0; i < writer->peers->count; i++) {
        const struct peer *peer = &writer->peers->each[i];
        if (__atomic_load_n(&peer->shared->working, __ATOMIC_ACQUIRE) == 0)
            continue;
        const int fd = open(peer->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        const bool lives = fd >= 0 && journal_is_owned(fd, true);
        if (fd >= 0)
            close(fd);
        if (lives)
            return false;
        any = true;
    }
    return any;
}

/* Waits until round `number` is over. 0, or the errno with which it failed. */
static int await(const struct writer *writer, uint64_t number)
{
    const struct timespec pause = {.tv_nsec = ALIVE_NS};
    struct round *round = writer->peers->round;
    uint32_t over = __atomic_load_n(&round->over, __ATOMIC_ACQUIRE);
    bool late = false;
    while (present(round) == number) {
        if (late && is_abandoned(writer)) {
            fail(round, number, ECANCELED);
            end(writer, number);
        }
        late = syscall(SYS_futex, &round->over, FUTEX_WAIT, over, &pause, NULL, 0) != 0 && errno == ETIMEDOUT;
        over = __atomic_load_n(&round->over, __ATOMIC_ACQUIRE);
    }
    return has_failed(round, number) ? (int)__atomic_load_n(&round->error, __ATOMIC_ACQUIRE) : 0;
}

int node_home_rest(struct file_handle *handle)
{
    const struct writer *writer = writer_of(handle);
    bool begun = false;
    int error = 0;
    if (!node_home_waits(writer, NULL, HOME_OWN | HOME_PEERS) && !under_way(present(writer->peers->round)))
        return 0;
    /* The first round may have begun before the call. */
    while (error == 0 && !begun) {
        struct share share = {0};
        const uint64_t number = begin(writer, true, &share, &error);
        begun = share.chunks.at != NULL || number == 0;
        if (number != 0 && error == 0)
            error = take_part(handle, &share, number);
        share_free(&share);
        if (number != 0 && error == 0)
            error = await(writer, number);
        if (error == ECANCELED) {
            begun = false;
            error = 0;
        }
    }
    return error;
}

int node_home_all(struct file_handle *handle)
{
    const struct writer *writer = writer_of(handle);
    const int64_t start = clock_ns();
    const int error = node_home_rest(handle);
    pthread_mutex_lock(&writer->written->lock);
    writer->written->waited_ns += (uint64_t)(clock_ns() - start);
    pthread_mutex_unlock(&writer->written->lock);
    return error;
}

/* RATIONALE: of what S4D-Cache, iBridge and LiU place, a round takes all, and the more it takes the more of it is
 * contiguous in the file. So they wait unless room gets short: those of S4D-Cache and LiU for a period of the
 * rebuilder; fragments until this node leaves the home servers idle. */
static bool is_due(struct writer *writer)
{
    if (critical_requests_measures(redirection_of(writer->handle)->critical))
        return node_home_waits(writer, NULL, HOME_OWN)
            && (critical_requests_idle(redirection_of(writer->handle)->critical) || cache_is_short(writer->cache));
    struct journal *journal = &writer->journal;
    int64_t length, written = INT64_MAX;
    peers_lock(writer);
    if (journal_waiting(journal) > 0)
        written = (int64_t)journal_entry(journal, journal_home(journal), &length).stamp;
    peers_unlock(writer);
    return written < INT64_MAX && (clock_ns() - written >= PERIOD_NS || cache_is_short(writer->cache));
}

enum mover_next node_home_some(struct file_handle *handle)
{
    struct writer *writer = writer_of(handle);
    struct share share = {0};
    int error;
    /* RATIONALE: with flush_onclose bytes move before the close only for those who wait for exchanged ones. */
    if (!cache_flushes(writer->cache) && !cache_is_asked(writer->cache)) {
        const bool waits = exchange_waits(writer) && node_home_waits(writer, NULL, HOME_OWN);
        cache_settle(writer);
        return waits ? MOVER_AGAIN : MOVER_WAITS;
    }
    if (writer->judges && !is_due(writer)) {
        const bool waits = node_home_waits(writer, NULL, HOME_OWN);
        if (!waits)
            cache_rest(writer);
        return waits ? MOVER_AGAIN : MOVER_WAITS;
    }
    uint64_t number = begin(writer, writer->judges, &share, &error);
    /* RATIONALE: another rank may make its part of a call after a read that waits for ours. */
    if (number == 0 && error == 0 && cache_is_coherent(writer->cache) && node_home_waits(writer, NULL, HOME_OWN))
        number = begin(writer, true, &share, &error);
    if (number != 0 && error == 0)
        error = take_part(handle, &share, number);
    share_free(&share);
    cache_settle(writer);
    if (error != 0 || (number != 0 && has_failed(writer->peers->round, number)))
        return MOVER_LATER;
    return number != 0 || node_home_waits(writer, NULL, HOME_OWN) ? MOVER_AGAIN : MOVER_WAITS;
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

/* Whether entries [first, stop) of a journal may have bytes of the range. */
static bool may_have(const struct journal *journal, uint64_t first, uint64_t stop, const struct view_range *range)
{
    int64_t looks = MOST_LOOKS;
    struct typemap_cursor cursor;
    typemap_cursor_init(&cursor, range->view, range->displacement, range->position);
    for (int64_t left = range->bytes; left > 0;) {
        const struct extent extent = typemap_cursor_next(&cursor, left);
        left -= extent.length;
        for (uint64_t i = first; i < stop; i++) {
            int64_t length;
            const struct journal_entry entry = journal_entry(journal, i, &length);
            if (--looks < 0 || (entry.start < extent.offset + extent.length && extent.offset < entry.start + length))
                return true;
        }
    }
    return false;
}

bool node_home_waits(const struct writer *writer, const struct view_range *range, int whose)
{
    bool any = false;
    pthread_mutex_lock(&mapping);
    for (int i = 0; !any && i < journals(writer); i++) {
        struct journal *journal = journal_of(writer, i);
        const bool own = i == writer->peers->count;
        if (!(whose & (own ? HOME_OWN : HOME_PEERS)) || journal_waiting(journal) == 0)
            continue;
        any = range == NULL || (!own && journal_follow(journal) < 0)
            || may_have(journal, journal_count(journal) - journal_waiting(journal), journal_count(journal), range);
    }
    pthread_mutex_unlock(&mapping);
    return any;
}

bool node_home_came(const struct writer *writer, const struct view_range *range)
{
    const struct journal *journal = &writer->journal;
    return may_have(journal, 0, journal_count(journal) - journal_waiting(journal), range);
}

int node_home_byte(const struct writer *writer, int64_t offset, char *byte, bool *held)
{
    uint64_t newest = 0;
    int error = 0;
    *held = false;
    pthread_mutex_lock(&mapping);
    for (int i = 0; error == 0 && i < journals(writer); i++) {
        struct journal *journal = journal_of(writer, i);
        const bool own = i == writer->peers->count;
        const int fd = own ? cache_descriptor(writer->cache) : writer->peers->each[i].cache;
        error = own || journal_follow(journal) >= 0 ? 0 : ENOMEM;
        const uint64_t count = error == 0 ? journal_count(journal) : 0;
        for (uint64_t entry = count; entry > count - journal_waiting(journal); entry--) {
            int64_t length;
            const struct journal_entry found = journal_entry(journal, entry - 1, &length);
            if (found.start > offset || found.start + length <= offset || found.stamp < newest)
                continue;
            struct iovec part = {byte, 1};
            error = move_parts(fd, false, &part, 1, (int64_t)found.place + offset - found.start);
            newest = found.stamp;
            *held = true;
            break;
        }
    }
    pthread_mutex_unlock(&mapping);
    return error;
}

int64_t node_home_end(const struct writer *writer)
{
    int64_t end = writer->high;
    for (int i = 0; i < writer->peers->count; i++) {
        const int64_t high = __atomic_load_n(&writer->peers->each[i].shared->high, __ATOMIC_ACQUIRE);
        end = high > end ? high : end;
    }
    return end;
}
