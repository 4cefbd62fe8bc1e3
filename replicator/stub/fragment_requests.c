#include "fragment_requests.h"

#include <stdlib.h>
#include <unistd.h>

#include "critical_requests.h"
#include "striping.h"

/* RATIONALE: the slides give no threshold. With a whole strip, as in the simulator, the disks get whole strips only,
 * and what is cached of a strip comes home together. The slides' strips have 64 KiB: parts of much larger ones (an
 * object of Ceph) need not be small. */
enum { MOST_FEW = 64 << 10 };

enum kind { FRAGMENT, RANDOM, KINDS };

/* What the SSD servers have got of a kind. */
struct share {
    double returns; /* of all that were admitted */
    int64_t count, bytes; /* `bytes`: those that wait in the cache */
};

struct fragment_requests {
    struct striped striped;
    struct service_times *times;
    const struct caching_s4d *model;
    int64_t ranks;
    struct caching_streams streams;
    int64_t *ends;      /* of the last request to each server, as bytes of its part of the file; -1: there was none */
    double *averages;   /* of the servers of a request */
    struct share share[KINDS];
};

struct fragment_requests *fragment_requests_open(const char *path, int ranks, const struct ssd_costs *costs,
                                                 const char **why)
{
    struct fragment_requests *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    int64_t servers = 0;
    *why = striping_of(path, costs->home_strip, costs->home_servers, &made->striped);
    if (*why == NULL) {
        const struct striping *last = &made->striped.part[made->striped.count - 1];
        servers = last->first + last->servers;
        made->model = &costs->model;
        made->ranks = ranks;
        made->times = service_times_open(getenv("PDLA_CRITICAL_LOG"));
        made->ends = malloc((size_t)servers * sizeof *made->ends);
        made->averages = malloc((size_t)servers * sizeof *made->averages);
    }
    if (made->times == NULL || made->ends == NULL || made->averages == NULL) {
        fragment_requests_close(made);
        return NULL;
    }
    for (int64_t i = 0; i < servers; i++)
        made->ends[i] = -1;
    return made;
}

void fragment_requests_close(struct fragment_requests *fragments)
{
    if (fragments == NULL)
        return;
    service_times_close(fragments->times);
    free(fragments->averages);
    free(fragments->ends);
    free(fragments);
}

struct service_times *fragment_requests_times(const struct fragment_requests *fragments)
{
    return fragments->times;
}

/* The part of the file that all of these bytes are in. NULL: there is none. */
static const struct striping *striping_at(const struct fragment_requests *fragments, int64_t start, int64_t stop)
{
    for (int i = 0; i < fragments->striped.count; i++) {
        const struct striping *part = &fragments->striped.part[i];
        if (part->start <= start && stop <= part->stop)
            return part;
    }
    return NULL;
}

/* The number of a strip's server. */
static int64_t server_of(const struct striping *striping, int64_t strip)
{
    return striping->first + strip % striping->servers;
}

/* Where a byte of a strip is in its server's part of the file. */
static int64_t place_of(const struct striping *striping, int64_t strip, int64_t byte)
{
    return strip / striping->servers * striping->strip + byte - strip * striping->strip;
}

/* The servers' parts of a request end here. */
static void note_ends(struct fragment_requests *fragments, const struct striping *striping, int64_t stop,
                      int64_t siblings)
{
    int64_t strip = (stop - 1) / striping->strip;
    for (int64_t i = 0; i < siblings; i++, strip--, stop = (strip + 1) * striping->strip)
        fragments->ends[server_of(striping, strip)] = place_of(striping, strip, stop);
}

/* T_ret = T_disk - T_ssd of a sub-request of one strip, and the bonus of a fragment. */
static double returns(const struct fragment_requests *fragments, const struct striping *striping, enum caching_op op,
                      int64_t start, int64_t size, const struct caching_split *split, int64_t number)
{
    const int64_t strip = split->first + number, server = server_of(striping, strip);
    const int64_t end = fragments->ends[server];
    const int64_t distance = end < 0 ? -1 : llabs(place_of(striping, strip, start) - end);
    const double on_disk = caching_average(service_time(fragments->times, server),
                                           caching_seconds(&fragments->model->disk, distance, size, op));
    const double on_ssd = caching_average(service_time(fragments->times, -1),
                                          caching_seconds(&fragments->model->ssd, -1, size, op));
    return on_disk - on_ssd + caching_bonus(fragments->averages, split->siblings, number);
}

/* Whether a part is to be on the SSD. Where room gets short, each kind has a part of it, by its mean return. */
static bool is_admitted(struct fragment_requests *fragments, enum kind kind, int64_t size, double gain,
                        const struct fragment_room *room)
{
    struct share *own = &fragments->share[kind], *other = &fragments->share[kind == FRAGMENT ? RANDOM : FRAGMENT];
    if (gain <= 0)
        return false;
    const double mean = (own->returns + gain) / (double)(own->count + 1);
    const double others = other->count > 0 ? other->returns / (double)other->count : 0;
    if (room != NULL && room->short_of && (double)(own->bytes + size) > (double)room->bytes * mean / (mean + others))
        return false;
    own->returns += gain;
    own->count++;
    own->bytes += room != NULL ? size : 0;
    return true;
}

struct fragment_choice fragment_requests_judge(struct fragment_requests *fragments, enum caching_op op, int64_t start,
                                               int64_t stop, const struct fragment_room *room)
{
    const struct striping *striping = striping_at(fragments, start, stop);
    struct fragment_choice choice = {0};
    struct caching_split split;
    if (striping == NULL)
        return choice;
    const int64_t few = striping->strip < MOST_FEW ? striping->strip : MOST_FEW;
    const bool small = caching_split(striping->strip, striping->servers, start, stop, few, &split);
    const enum kind kind = split.siblings > 1 ? FRAGMENT : RANDOM;
    const bool in_order =
        op == CACHING_READ && caching_in_order(&fragments->streams, start, stop, fragments->ranks);
    if (room != NULL && room->empty)
        fragments->share[FRAGMENT].bytes = fragments->share[RANDOM].bytes = 0;
    for (int64_t i = 0; small && i < split.siblings; i++)
        fragments->averages[i] = service_time(fragments->times, server_of(striping, split.first + i));
    if (split.head > 0 && !in_order)
        choice.head_returns = returns(fragments, striping, op, start, split.head, &split, 0);
    if (split.tail > 0 && !in_order)
        choice.tail_returns =
            returns(fragments, striping, op, stop - split.tail, split.tail, &split, split.siblings - 1);
    choice.head = is_admitted(fragments, kind, split.head, choice.head_returns, room) ? split.head : 0;
    choice.tail = is_admitted(fragments, kind, split.tail, choice.tail_returns, room) ? split.tail : 0;
    note_ends(fragments, striping, stop, split.siblings);
    return choice;
}

void fragment_requests_served(struct fragment_requests *fragments, int64_t start, int64_t stop, double seconds)
{
    const struct striping *striping = striping_at(fragments, start, stop);
    if (striping == NULL)
        return;
    const int64_t first = start / striping->strip, parts = (stop - 1) / striping->strip - first + 1;
    service_times_add(fragments->times, striping->first, first, parts < striping->servers ? parts : striping->servers,
                      striping->servers, seconds);
}
