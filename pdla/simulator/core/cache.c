/* The page caches of client nodes, as in Linux for file systems that the node mounts itself.
 *
 * What a node has read stays there for all its ranks. A rank that comes to pages on their way waits
 * for them. Sequential reads are read ahead in windows that grow up to a limit, as in
 * mm/readahead.c: the next window is requested when a rank comes to the first pages of this one.
 * Written bytes are in the cache at once, and go to the storage in the order of their addresses
 * when the file is closed. Originals have pages by file, replicas by component. Of some storage, a
 * node keeps what it writes to either only as long as no other node uses it. */
#include "engine.h"

#include <string.h>

enum { PAGE = 4096, BITS = 64, FLUSHED_AT_ONCE = 64, LEAST_WORDS = 64, SEVERAL = -1 };
enum map { HAS, MARKED, DIRTY, MAPS }; /* marked: a read that comes to this page reads ahead */

/* What a node has of a file, or of a component: pages, one bit each. */
struct pages {
    uint64_t *word; /* of map m: the `words` from m * words on */
    int64_t words;
    struct fetch *coming;
};

/* Pages on their way. */
struct fetch {
    struct fetch *next;
    struct pages *pages;
    int64_t first, stop;
    struct reading *waiting;
};

/* A range that an access reads from pages, or writes to them. */
struct reading {
    struct reading *next;
    struct access *access;
    struct pages *pages;
    int64_t object, place; /* place: the component's; -1: the object is a file with pages of its own */
    int64_t start, at, stop, end;
    bool write, through; /* through: what is written goes to the storage at once, too */
};

/* What was read ahead for a rank: pages from `start` on. The first of the last `late` ones is
 * marked. */
struct ahead {
    int64_t start, size, late, stopped;
};

/* Dirty pages of a file, or of a component of its replica, on a node, on their way to the storage. */
struct flush {
    struct access *access; /* the request that it is a part of */
    struct pages *pages;
    int64_t node, file, object, place, at, pending;
};

static bool is(const struct pages *pages, enum map map, int64_t page)
{
    return page / BITS < pages->words && pages->word[map * pages->words + page / BITS] >> page % BITS & 1;
}

static void grow(struct engine *engine, struct pages *pages, int64_t page)
{
    if (page / BITS < pages->words)
        return;
    int64_t words = 2 * (page / BITS) + LEAST_WORDS;
    uint64_t *more = hold(engine, (size_t)(MAPS * words) * sizeof *more);
    for (int64_t map = 0; map < MAPS && pages->words > 0; map++)
        memcpy(more + map * words, pages->word + map * pages->words, (size_t)pages->words * sizeof *more);
    release_memory(engine, pages->word);
    pages->word = more;
    pages->words = words;
}

static void set(struct engine *engine, struct pages *pages, enum map map, int64_t page, bool value)
{
    grow(engine, pages, page);
    uint64_t bit = (uint64_t)1 << page % BITS, *word = &pages->word[map * pages->words + page / BITS];
    *word = value ? *word | bit : *word & ~bit;
}

static int64_t keys(const struct engine *engine)
{
    return engine->in->files + engine->in->places;
}

void cache_begin(struct engine *engine)
{
    engine->fetches.size = sizeof(struct fetch);
    engine->readings.size = sizeof(struct reading);
    if (engine->in->client_cache)
        engine->user = hold(engine, (size_t)keys(engine) * sizeof *engine->user);
}

/* Notes that a node uses a file or component. Whether others use it, or have used it. */
static bool shared(struct engine *engine, int64_t node, int64_t key)
{
    int64_t *user = &engine->user[key];
    *user = *user == 0 || *user == node + 1 ? node + 1 : SEVERAL;
    return *user == SEVERAL;
}

static struct pages *pages_of(struct engine *engine, int64_t node, int64_t key)
{
    struct pages **pages = &engine->node[node].pages;
    if (!*pages)
        *pages = hold(engine, (size_t)keys(engine) * sizeof **pages);
    return &(*pages)[key];
}

static struct ahead *ahead_of(struct engine *engine, const struct reading *reading)
{
    struct rank *rank = &engine->rank[reading->access->rank < 0 ? 0 : reading->access->rank];
    if (!rank->ahead) {
        rank->ahead = hold(engine, (size_t)keys(engine) * sizeof *rank->ahead);
        for (int64_t key = 0; key < keys(engine); key++)
            rank->ahead[key].stopped = -BITS;
    }
    return &rank->ahead[reading->place < 0 ? reading->object : engine->in->files + reading->place];
}

/* The pages of [first, stop) that are neither there nor on their way. */
static void fetch(struct engine *engine, struct reading *reading, int64_t first, int64_t stop)
{
    struct pages *pages = reading->pages;
    int64_t last = (reading->end + PAGE - 1) / PAGE;
    stop = stop < last ? stop : last;
    while (first < stop) {
        int64_t begin = first;
        for (; first < stop && !is(pages, HAS, first); first++)
            set(engine, pages, HAS, first, true);
        if (first > begin) {
            struct fetch *one = pool_take(engine, &engine->fetches);
            *one = (struct fetch){.next = pages->coming, .pages = pages, .first = begin, .stop = first};
            pages->coming = one;
            int64_t end = first * PAGE < reading->end ? first * PAGE : reading->end;
            access_fetch(engine, reading->access, reading->object, reading->place, begin * PAGE, end, one);
        } else {
            first++;
        }
    }
}

/* Reads the present window ahead. */
static void fetch_window(struct engine *engine, struct reading *reading, const struct ahead *ahead)
{
    int64_t marked = ahead->start + ahead->size - ahead->late;
    bool is_new = !is(reading->pages, HAS, marked);
    fetch(engine, reading, ahead->start, ahead->start + ahead->size);
    if (is_new && is(reading->pages, HAS, marked))
        set(engine, reading->pages, MARKED, marked, true);
}

/* mm/readahead.c: get_init_ra_size, get_next_ra_size. */
static int64_t first_size(int64_t wanted, int64_t most)
{
    int64_t size = 1;
    while (size < wanted)
        size *= 2;
    return size <= most / 32 ? 4 * size : size <= most / 4 ? 2 * size : most;
}

static int64_t next_size(int64_t size, int64_t most)
{
    return size < most / 16 ? 4 * size : size <= most / 2 ? 2 * size : most;
}

/* page_cache_sync_ra: a page is not there. */
static void page_missing(struct engine *engine, struct reading *reading, int64_t page)
{
    struct ahead *ahead = ahead_of(engine, reading);
    int64_t most = engine->in->client_read_ahead / PAGE, wanted = (reading->stop + PAGE - 1) / PAGE - page, before = 0;
    if (page > 0 && wanted <= most && page != ahead->stopped && page != ahead->stopped + 1) {
        while (before < most && before < page && is(reading->pages, HAS, page - before - 1))
            before++;
        if (before <= wanted) {
            fetch(engine, reading, page, page + wanted);
            return;
        }
        before = before == page ? 2 * before : before;
        int64_t size = before + wanted < most ? before + wanted : most;
        *ahead = (struct ahead){page, size, 1, ahead->stopped};
    } else {
        int64_t size = first_size(wanted, most);
        *ahead = (struct ahead){page, size, size > wanted ? size - wanted : size, ahead->stopped};
    }
    fetch_window(engine, reading, ahead);
}

/* page_cache_async_ra: a read has come to a marked page. */
static void page_marked(struct engine *engine, struct reading *reading, int64_t page)
{
    struct ahead *ahead = ahead_of(engine, reading);
    int64_t most = engine->in->client_read_ahead / PAGE, wanted = (reading->stop + PAGE - 1) / PAGE - page;
    set(engine, reading->pages, MARKED, page, false);
    if (page == ahead->start + ahead->size - ahead->late) {
        ahead->start += ahead->size;
        ahead->size = next_size(ahead->size, most);
    } else {
        int64_t next = page + 1;
        while (next - page <= most && is(reading->pages, HAS, next))
            next++;
        if (next - page > most)
            return;
        ahead->start = next;
        ahead->size = next_size(next - page + wanted, most);
    }
    ahead->late = ahead->size;
    fetch_window(engine, reading, ahead);
}

/* Whether it has to wait for this page. */
static bool waits(struct engine *engine, struct reading *reading, int64_t page)
{
    if (!is(reading->pages, HAS, page)) {
        if (reading->write)
            fetch(engine, reading, page, page + 1);
        else if (engine->in->client_read_ahead < PAGE)
            fetch(engine, reading, page, (reading->stop + PAGE - 1) / PAGE);
        else
            page_missing(engine, reading, page);
    } else if (!reading->write && is(reading->pages, MARKED, page)) {
        page_marked(engine, reading, page);
    }
    for (struct fetch *one = reading->pages->coming; one; one = one->next)
        if (one->first <= page && page < one->stop) {
            struct reading **last = &one->waiting;
            while (*last)
                last = &(*last)->next;
            reading->next = NULL;
            *last = reading;
            return true;
        }
    return false;
}

/* Pages of a file that are written in part must be there. A replica is empty when it is opened to
 * be written. */
static bool has_ends(struct engine *engine, struct reading *reading)
{
    if (reading->place >= 0)
        return true;
    int64_t last = (reading->stop - 1) / PAGE;
    bool cut[2] = {reading->start % PAGE > 0, reading->stop % PAGE > 0 && reading->stop < reading->end};
    for (; reading->at < 2; reading->at++) {
        int64_t page = reading->at ? last : reading->start / PAGE;
        if (cut[reading->at] && waits(engine, reading, page))
            return false;
    }
    return true;
}

static void continue_reading(struct engine *engine, struct reading *reading)
{
    const struct sim_input *in = engine->in;
    if (reading->write) {
        if (!has_ends(engine, reading))
            return;
        for (int64_t page = reading->start / PAGE; page <= (reading->stop - 1) / PAGE; page++) {
            set(engine, reading->pages, HAS, page, true);
            if (!reading->through)
                set(engine, reading->pages, DIRTY, page, true);
        }
    } else {
        for (; reading->at < reading->stop; reading->at = (reading->at / PAGE + 1) * PAGE)
            if (waits(engine, reading, reading->at / PAGE))
                return;
        ahead_of(engine, reading)->stopped = reading->stop / PAGE;
    }
    if (reading->through)
        access_write_through(engine, reading->access, reading->object, reading->place, reading->start, reading->stop);
    double work = in->call_seconds + (double)(reading->stop - reading->start) * in->copy_seconds;
    later(engine, processed(engine, reading->access->node, work), 0, CACHED, reading->access);
    pool_give(&engine->readings, reading);
}

void cache_serves(struct engine *engine, struct access *access, int64_t object, int64_t place, bool write,
                  int64_t start, int64_t stop)
{
    const struct sim_input *in = engine->in;
    const struct sim_object *of = &in->object[object];
    int64_t end = 0;
    for (int64_t i = 0; place < 0 && i < of->groups * of->width; i++)
        end += in->sizes[of->first + i];
    end = place < 0 ? end : in->sizes[place];
    int64_t key = place < 0 ? object : in->files + place;
    bool through = shared(engine, access->node, key) && of->alone;
    struct reading *reading = pool_take(engine, &engine->readings);
    *reading = (struct reading){.access = access,
                                .pages = pages_of(engine, access->node, key),
                                .object = object, .place = place, .start = start, .at = write ? 0 : start, .stop = stop,
                                .end = end > stop ? end : stop, .write = write,
                                .through = write && (in->client_sync || through)};
    access->pending++;
    continue_reading(engine, reading);
}

void cache_fetched(struct engine *engine, struct fetch *fetched)
{
    struct fetch **at = &fetched->pages->coming;
    while (*at != fetched)
        at = &(*at)->next;
    *at = fetched->next;
    struct reading *reading = fetched->waiting;
    pool_give(&engine->fetches, fetched);
    for (struct reading *next; reading; reading = next) {
        next = reading->next;
        continue_reading(engine, reading);
    }
}

static void flush_more(struct engine *engine, struct flush *flush)
{
    struct pages *pages = flush->pages;
    int64_t most = engine->in->client_read_ahead / PAGE, last = pages->words * BITS;
    while (flush->pending < FLUSHED_AT_ONCE && flush->at < last) {
        if (flush->at % BITS == 0 && pages->word[DIRTY * pages->words + flush->at / BITS] == 0) {
            flush->at += BITS;
            continue;
        }
        int64_t first = flush->at;
        for (; is(pages, DIRTY, flush->at) && (most == 0 || flush->at - first < most); flush->at++)
            set(engine, pages, DIRTY, flush->at, false);
        if (flush->at > first) {
            flush->pending++;
            access_flush(engine, flush->node, flush->file, flush->object, flush->place, first * PAGE, flush->at * PAGE,
                         flush);
        } else {
            flush->at++;
        }
    }
}

void cache_flushed(struct engine *engine, struct flush *flush)
{
    flush->pending--;
    flush_more(engine, flush);
    if (flush->pending > 0)
        return;
    struct access *access = flush->access;
    release_memory(engine, flush);
    access_ends_request(engine, access);
}

static void flush_pages(struct engine *engine, struct access *access, int64_t node, int64_t file, int64_t object,
                        int64_t place)
{
    struct flush *flush = hold(engine, sizeof *flush);
    int64_t key = place < 0 ? object : engine->in->files + place;
    *flush = (struct flush){.access = access, .pages = pages_of(engine, node, key), .node = node, .file = file,
                            .object = object, .place = place, .pending = 1};
    access->pending++;
    cache_flushed(engine, flush);
}

static void flush_components(struct engine *engine, struct access *access, int64_t node, int64_t file)
{
    const struct sim_input *in = engine->in;
    for (int64_t i = in->first_map[file]; in->flush_replicas && i < in->first_map[file + 1]; i++) {
        const struct sim_object *of = &in->object[in->map[i].object];
        for (int64_t j = 0; j < of->groups * of->width; j++)
            flush_pages(engine, access, node, file, in->map[i].object, of->first + j);
    }
}

void cache_flush(struct engine *engine, struct access *access)
{
    const struct sim_input *in = engine->in;
    int64_t first = access->file < 0 ? 0 : access->file, last = access->file < 0 ? in->files : access->file + 1;
    for (int64_t node = 0; in->client_cache && node < in->nodes; node++)
        for (int64_t file = first; engine->node[node].pages && file < last; file++) {
            flush_pages(engine, access, node, file, file, -1);
            flush_components(engine, access, node, file);
        }
}
