/* The identifier of S4D-Cache: Eqs. 1 to 8 at every request, and the critical data table
 * (pdla/layouts/s4d.py has the equations). */
#include <stdlib.h>

#include "core.h"

/* s_m (Table II). */
static int64_t largest_subrequest(int64_t offset, int64_t length, int64_t stripe, int64_t servers)
{
    int64_t ahead = (offset + length - 1) / stripe - offset / stripe;
    if (servers == 1 || ahead == 0)
        return length;
    int64_t rows = (ahead + servers - 1) / servers;
    int64_t first = stripe - offset % stripe, last = (offset + length) % stripe;
    last = last > 0 ? last : stripe;
    if (ahead % servers == 0) {
        int64_t both = first + last + (rows - 1) * stripe;
        return both > rows * stripe ? both : rows * stripe;
    }
    if (ahead % servers == 1)
        return (first > last ? first : last) + (rows - 1) * stripe;
    return rows * stripe;
}

/* B, in seconds; a negative distance is the farthest. */
static double benefit_of(const struct identifier *of, int64_t op, int64_t offset, int64_t length, int64_t distance)
{
    int64_t stripe = of->strip, servers = of->servers;
    int64_t involved = (offset + length - 1) / stripe - offset / stripe + 1;
    involved = involved < servers ? involved : servers;
    double nearest = startup(&of->with.disk, op, distance), farthest = startup(&of->with.disk, op, -1);
    double slowest = nearest + (double)involved / (double)(involved + 1) * (farthest - nearest);
    double on_disk = (double)largest_subrequest(offset, length, stripe, servers) * of->with.disk.seconds_per_byte[op];
    double on_ssd = (double)largest_subrequest(offset, length, stripe, of->with.ssds) *
                    of->with.ssd.seconds_per_byte[op];
    return slowest + on_disk - on_ssd;
}

double benefit(struct memory *memory, struct identifier *of, const struct caching_request *request)
{
    int64_t known = of->ends.count;
    struct entry *end = table_put(memory, &of->ends, request->rank, request->file, 0, 0);
    int64_t distance = of->ends.count > known ? -1 : llabs(request->start - end->number);
    end->number = request->stop;
    return benefit_of(of, request->op, request->start, request->stop - request->start, distance);
}

struct entry *critical(struct memory *memory, struct identifier *of, const struct caching_request *request,
                       double saved)
{
    struct entry *entry = table_find(&of->critical, request->file, request->start, request->stop, 0);
    if (!entry && saved > 0) {
        entry = table_put(memory, &of->critical, request->file, request->start, request->stop, 0);
        entry->value = saved;
    }
    return entry;
}

/* ---- without a core ---- */

struct caching_identifier {
    struct memory memory;
    struct identifier identifier;
    bool full; /* the table takes no more */
};

struct judged {
    struct caching_identifier *by;
    const struct caching_request *request;
    double saved;
    struct entry *entry;
};

static int weigh(void *context)
{
    struct judged *one = context;
    one->saved = benefit(&one->by->memory, &one->by->identifier, one->request);
    return CACHING_DONE;
}

static int add(void *context)
{
    struct judged *one = context;
    one->entry = critical(&one->by->memory, &one->by->identifier, one->request, one->by->full ? 0 : one->saved);
    return CACHING_DONE;
}

static int judge(void *context)
{
    weigh(context);
    return add(context);
}

static void attempt(struct judged *one, int (*what)(void *))
{
    one->by->full = guarded(&one->by->memory, what, one) != CACHING_DONE || one->by->full;
    if (one->entry && one->request->op == CACHING_READ)
        one->entry->number++;
}

struct caching_identifier *caching_identifier_new(const struct caching_s4d *parameters, int64_t home_strip,
                                                  int64_t home_servers, int64_t limit)
{
    struct caching_identifier *made = calloc(1, sizeof *made);
    if (made) {
        made->memory.left = limit;
        made->identifier = (struct identifier){.with = *parameters, .strip = home_strip, .servers = home_servers};
    }
    return made;
}

void caching_identifier_free(struct caching_identifier *identifier)
{
    if (identifier)
        memory_end(&identifier->memory);
    free(identifier);
}

bool caching_identify(struct caching_identifier *identifier, const struct caching_request *request)
{
    struct judged one = {.by = identifier, .request = request};
    attempt(&one, judge);
    return one.entry || one.saved > 0;
}

double caching_benefit(struct caching_identifier *identifier, const struct caching_request *request)
{
    struct judged one = {.by = identifier, .request = request};
    attempt(&one, weigh);
    return one.saved;
}

void caching_add(struct caching_identifier *identifier, const struct caching_request *request, double saves)
{
    attempt(&(struct judged){.by = identifier, .request = request, .saved = saves}, add);
}

bool caching_identifier_full(const struct caching_identifier *identifier)
{
    return identifier->full;
}

void caching_identifier_empty(struct caching_identifier *identifier)
{
    table_clear(&identifier->identifier.critical);
    identifier->full = false;
}

bool caching_critical(const struct caching_identifier *identifier, int64_t *at, struct caching_critical *found)
{
    const struct table *table = &identifier->identifier.critical;
    const struct entry *entry = *at == 0 ? table_first(table) : table_next(table, entry_at(table, (uint32_t)*at));
    if (!entry)
        return false;
    *at = *at == 0 ? table->first : entry_at(table, (uint32_t)*at)->next;
    *found = (struct caching_critical){.file = entry->key[0], .start = entry->key[1], .stop = entry->key[2],
                                       .reads = entry->number, .benefit = entry->value};
    return true;
}
