/* iBridge: an SSD next to each disk serves fragments and small random requests
 * (pdla/policies/ibridge.py describes it). */
#include <math.h>
#include <stdlib.h>

#include "core.h"

enum kind { FRAGMENT, RANDOM, KINDS };

static const char *const PLACED[KINDS] = {"a fragment", "a random"};
static const char *const EVICTED[KINDS] = {"the least recently used fragment", "the least recently used random"};

/* What an SSD holds of one kind, the least recently used first: return values, by file, start and stop. */
struct share {
    struct table held;
    int64_t bytes;
    double total;
};

struct server {
    double average;   /* T_i of its disk, in seconds */
    double of_ssd;    /* likewise, of its SSD */
    double exchanged; /* as the servers know those of one another */
    int64_t file, at; /* L_i: where its disk's head is */
    struct share share[KINDS];
};

struct ibridge {
    struct caching_ibridge with;
    struct server *server;
    struct table dirty;               /* by server, file, start and stop */
    struct table streams;             /* struct caching_streams, by file and rank */
    int64_t ranks;                    /* that have read */
    struct vector missed, averages, victims; /* struct range; double; struct entry * */
};

static double mean(const struct share *share)
{
    return share->held.count > 0 ? share->total / (double)share->held.count : 0;
}

static void share_remove(struct share *share, struct entry *entry)
{
    share->total -= entry->value;
    share->bytes -= entry->key[2] - entry->key[1];
    table_remove(&share->held, entry);
}

static void share_add(struct caching *core, struct share *share, int64_t file, struct range one, double gain)
{
    struct entry *entry = table_find(&share->held, file, one.start, one.stop, 0);
    if (entry)
        share_remove(share, entry);
    table_put(&core->memory, &share->held, file, one.start, one.stop, 0)->value = gain;
    share->bytes += one.stop - one.start;
    share->total += gain;
}

/* The clean entries of a kind, oldest first, until nothing is missing or the kind has no more to
 * spare. */
static void find_victims(struct caching *core, struct ibridge *ibridge, int64_t server, const struct share *share,
                         double spare, int64_t *missing)
{
    ibridge->victims.count = 0;
    for (struct entry *entry = table_first(&share->held); entry && *missing > 0 && spare > 0;
         entry = table_next(&share->held, entry)) {
        int64_t count, i = 0, size = entry->key[2] - entry->key[1];
        const struct caching_extent *extent = see(core, entry->key[0], server, entry->key[1], entry->key[2], &count);
        while (i < count && !extent[i].dirty)
            i++;
        if (i < count)
            continue;
        struct entry **into = vector_add(&core->memory, &ibridge->victims, sizeof *into);
        *into = entry;
        *missing -= size;
        spare -= (double)size;
    }
}

/* Evicts clean entries until there is room for `length` bytes of a kind, which return `gain`. Entries
 * of the other kind go first, as long as that kind has more than its share of the SSD. The share of a
 * kind is its mean return value relative to the sum of both. Then entries of this kind go. */
static void make_room(struct caching *core, struct ibridge *ibridge, int64_t server, enum kind kind, double gain,
                      int64_t length)
{
    struct share *share = ibridge->server[server].share;
    enum kind kinds[] = {kind == FRAGMENT ? RANDOM : FRAGMENT, kind};
    double own = (share[kind].total + gain) / (double)(share[kind].held.count + 1), other = mean(&share[kinds[0]]);
    double limit = (double)ibridge->with.capacity * other / (other + own);
    int64_t missing = length - caching_room(core, server);
    for (int i = 0; i < KINDS; i++) {
        struct share *of = &share[kinds[i]];
        find_victims(core, ibridge, server, of, i == 0 ? (double)of->bytes - limit : INFINITY, &missing);
        for (int64_t j = 0; j < ibridge->victims.count; j++) {
            struct entry *entry = ((struct entry **)ibridge->victims.at)[j];
            struct caching_wish made = {
                .kind = CACHING_DROP, .file = entry->key[0], .part = server, .start = entry->key[1],
                .stop = entry->key[2], .space = server, .node = -1, .reason = EVICTED[kinds[i]]};
            share_remove(of, entry);
            wish(core, &made);
        }
    }
}

static void soil(struct caching *core, struct ibridge *ibridge, int64_t server, int64_t file, int64_t start,
                 int64_t stop)
{
    table_put(&core->memory, &ibridge->dirty, server, file, start, stop);
}

static bool admit(struct caching *core, struct ibridge *ibridge, const struct caching_request *request, int64_t server,
                  enum kind kind, double gain)
{
    for (int64_t i = 0; i < ibridge->missed.count; i++) {
        struct range one = ((struct range *)ibridge->missed.at)[i];
        make_room(core, ibridge, server, kind, gain, one.stop - one.start);
        if (caching_room(core, server) < one.stop - one.start)
            return false;
        struct caching_wish made = {
            .kind = CACHING_PLACE, .file = request->file, .part = server, .start = one.start, .stop = one.stop,
            .space = server, .node = -1, .reason = PLACED[kind], .value = gain};
        wish(core, &made);
        share_add(core, &ibridge->server[server].share[kind], request->file, one, gain);
        if (request->op == CACHING_WRITE)
            soil(core, ibridge, server, request->file, one.start, one.stop);
    }
    return true;
}

/* Which bytes the SSD does not have; those that it has are used now. */
static void look(struct caching *core, struct ibridge *ibridge, const struct caching_request *request,
                 const struct own *own)
{
    int64_t server = own->part->number, count;
    struct share *share = ibridge->server[server].share;
    struct entry *entry[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        table_fetch_more(&share[kind].held, request->file, own->start, own->stop, 0);
    const struct caching_extent *extent = see(core, request->file, server, own->start, own->stop, &count);
    for (int kind = 0; kind < KINDS; kind++) {
        entry[kind] = table_find(&share[kind].held, request->file, own->start, own->stop, 0);
        table_fetch_around(&share[kind].held, entry[kind]);
    }
    ibridge->missed.count = 0;
    for (int64_t i = 0; i < count; i++)
        if (extent[i].space == CACHING_HOME)
            range_add(core, &ibridge->missed, extent[i].start, extent[i].stop);
        else if (request->op == CACHING_WRITE)
            soil(core, ibridge, server, request->file, extent[i].start, extent[i].stop);
    for (int kind = 0; kind < KINDS; kind++)
        if (entry[kind])
            table_to_end(&share[kind].held, entry[kind]);
}

static bool is_read_in_order(struct caching *core, struct ibridge *ibridge, const struct caching_request *request)
{
    if (request->op != CACHING_READ)
        return false;
    struct entry *entry = table_put(&core->memory, &ibridge->streams, request->file, request->rank, 0, 0);
    if (entry->more == NULL)
        entry->more = memory_take(&core->memory, sizeof(struct caching_streams));
    ibridge->ranks = request->rank < ibridge->ranks ? ibridge->ranks : request->rank + 1;
    return caching_in_order(entry->more, request->start, request->stop, ibridge->ranks);
}

static void sub_request(struct caching *core, struct ibridge *ibridge, const struct caching_request *request,
                        const struct own *own, int64_t number, bool in_order)
{
    int64_t server = own->part->number, size = own->stop - own->start, siblings = ibridge->averages.count;
    struct server *at = &ibridge->server[server];
    look(core, ibridge, request, own);
    double on_ssd = caching_average(at->of_ssd, caching_seconds(&ibridge->with.ssd, -1, size, request->op));
    if (ibridge->missed.count == 0) {
        at->of_ssd = on_ssd;
        return;
    }
    int64_t distance = at->file == request->file ? llabs(own->start - at->at) : -1;
    double on_disk = caching_average(at->average, caching_seconds(&ibridge->with.disk, distance, size, request->op));
    /* The slides do not define T_ssd: here an SSD has an average of its own (docs/adr/0032). */
    double gain = on_disk - on_ssd;
    enum kind kind = siblings > 1 ? FRAGMENT : RANDOM;
    if (kind == FRAGMENT)
        gain += caching_bonus(ibridge->averages.at, siblings, number);
    bool admitted = !in_order && size < ibridge->with.limit[kind] && gain > 0
                 && admit(core, ibridge, request, server, kind, gain);
    if (admitted && request->op == CACHING_WRITE)
        at->of_ssd = on_ssd;
    if (request->op == CACHING_READ || !admitted) {
        at->average = on_disk;
        at->file = request->file;
        at->at = own->stop;
    }
}

static int request(void *state, struct caching *core, const struct caching_request *request)
{
    struct ibridge *ibridge = state;
    bool in_order = is_read_in_order(core, ibridge, request);
    ibridge->averages.count = 0;
    for (int64_t i = 0; i < core->own.count; i++) {
        double *average = vector_add(&core->memory, &ibridge->averages, sizeof *average);
        const struct own *own = (struct own *)core->own.at + i;
        const struct server *server = &ibridge->server[own->part->number];
        *average = server->exchanged;
        for (int kind = 0; kind < KINDS; kind++)
            table_fetch(&server->share[kind].held, request->file, own->start, own->stop, 0);
    }
    for (int64_t i = 0; i < core->own.count; i++)
        sub_request(core, ibridge, request, (struct own *)core->own.at + i, i, in_order);
    return 0;
}

/* The servers exchange their averages, and write back. */
static int tick(void *state, struct caching *core)
{
    struct ibridge *ibridge = state;
    for (int64_t i = 0; i < core->setup.home_servers; i++)
        ibridge->server[i].exchanged = ibridge->server[i].average;
    for (const struct entry *one = table_first(&ibridge->dirty); one; one = table_next(&ibridge->dirty, one)) {
        struct caching_wish made = {.kind = CACHING_WRITE_BACK, .file = one->key[1], .part = one->key[0],
                                    .start = one->key[2], .stop = one->key[3], .node = -1, .reason = "dirty"};
        wish(core, &made);
    }
    table_clear(&ibridge->dirty);
    return 0;
}

static int begin(struct caching *core, const void *parameters)
{
    struct ibridge *ibridge = memory_take(&core->memory, sizeof *ibridge);
    ibridge->with = *(const struct caching_ibridge *)parameters;
    ibridge->server = memory_take(&core->memory, (size_t)core->setup.home_servers * sizeof *ibridge->server);
    for (int64_t i = 0; i < core->setup.home_servers; i++)
        ibridge->server[i].file = -1;
    core->policy = (struct caching_policy){.state = ibridge, .request = request, .tick = tick};
    return CACHING_DONE;
}

int caching_use_ibridge(struct caching *core, const struct caching_ibridge *parameters)
{
    return use_policy(core, begin, parameters);
}
