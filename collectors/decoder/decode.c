/* See rawlog.h for what the bytes mean. */
#include "decode.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct template {
    bool known;
    int64_t stride;
    struct rawlog_record record; /* whose numbers the next one differs from */
};

struct window {
    const unsigned char *at, *end;
    uint64_t next;      /* number of the next record */
    int64_t latest;     /* ticks of the end of the previous one */
    struct template templates[RAWLOG_TEMPLATES];
};

enum outcome { RECORD, NO_RECORD, OVER, DAMAGED };

/* RATIONALE: in damaged logs sums may overflow. */
static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t unfold(uint64_t number)
{
    return (int64_t)(number >> 1 ^ -(number & 1));
}

/* RATIONALE: eight bytes are read at once where the window has so many. */
static uint64_t take(struct window *window, unsigned bytes)
{
    static const uint64_t masks[] = {0, 0, UINT16_MAX, 0, UINT32_MAX, 0, 0, 0, UINT64_MAX};
    uint64_t number = 0;
    if (window->end - window->at >= 8)
        memcpy(&number, window->at, 8);
    else
        memcpy(&number, window->at, bytes);
    window->at += bytes;
    return number & masks[bytes];
}

static enum outcome read_compact(struct window *window, struct rawlog_record *record)
{
    struct template *template = &window->templates[window->at[0] & (RAWLOG_COMPACT - 1) & (RAWLOG_TEMPLATES - 1)];
    if (window->end - window->at < 2)
        return OVER;
    unsigned bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = rawlog_bytes(window->at[1] >> 2 * i & 3);
    if (window->end - window->at < 2 + bytes[0] + bytes[1] + bytes[2] + bytes[3])
        return OVER;
    if ((window->at[0] & (RAWLOG_COMPACT - 1)) >= RAWLOG_TEMPLATES || !template->known)
        return DAMAGED;
    window->at += 2;
    struct rawlog_record *last = &template->record;
    const int64_t position = last->position;
    last->t_start = plus(window->latest, unfold(take(window, bytes[0])));
    last->t_end = plus(last->t_start, (int64_t)take(window, bytes[1]));
    last->position = plus(plus(position, template->stride), unfold(take(window, bytes[2])));
    last->length = plus(last->length, unfold(take(window, bytes[3])));
    template->stride = (int64_t)((uint64_t)last->position - (uint64_t)position);
    last->moved = last->length;
    last->seq = window->next;
    *record = *last;
    return RECORD;
}

static enum outcome read_full(struct window *window, struct rawlog_record *record)
{
    if (window->end - window->at < 2 + RAWLOG_RECORD_SIZE)
        return OVER;
    const unsigned number = window->at[1];
    memcpy(record, window->at + 2, sizeof *record);
    if (record->seq != window->next || (number >= RAWLOG_TEMPLATES && number != RAWLOG_NO_TEMPLATE))
        return DAMAGED;
    if (number != RAWLOG_NO_TEMPLATE)
        window->templates[number] = (struct template){true, 0, *record};
    window->at += 2 + RAWLOG_RECORD_SIZE;
    return RECORD;
}

static enum outcome read_anchor(struct window *window, struct rawlog_pair *pair)
{
    struct rawlog_anchor anchor;
    if (window->end - window->at < 1 + (ptrdiff_t)sizeof anchor)
        return OVER;
    memcpy(&anchor, window->at + 1, sizeof anchor);
    if (anchor.next != window->next)
        return DAMAGED;
    *pair = anchor.now;
    window->latest = anchor.now.ticks;
    window->at += 1 + sizeof anchor;
    return NO_RECORD;
}

DECODE_API int64_t rawlog_decode(const unsigned char *bytes, int64_t size, uint64_t next, struct rawlog_record *records,
                                 struct rawlog_pair *pairs, int64_t *found)
{
    struct window window = {.at = bytes, .end = bytes + size, .next = next};
    int64_t count = 0;
    *found = 0;
    while (window.at < window.end) {
        const unsigned kind = window.at[0];
        enum outcome outcome = DAMAGED;
        if (kind == RAWLOG_NOTHING)
            break;
        if (kind == RAWLOG_ANCHOR)
            outcome = read_anchor(&window, &pairs[*found]);
        else if (*found == 0)
            outcome = DAMAGED;
        else if (kind >= RAWLOG_COMPACT)
            outcome = read_compact(&window, &records[count]);
        else if (kind == RAWLOG_FULL)
            outcome = read_full(&window, &records[count]);
        if (outcome == DAMAGED)
            return -1;
        if (outcome == OVER)
            break;
        *found += outcome == NO_RECORD;
        if (outcome == RECORD) {
            window.latest = records[count++].t_end;
            window.next++;
        }
    }
    return count;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

struct scale {
    const struct rawlog_pair *pairs;
    int64_t count;
    int64_t place;      /* of the latest pair that is not after the latest tick; -1: it is before all */
    double length;      /* of a tick, in nanoseconds, from there to the next pair */
};

static double difference(int64_t a, int64_t b)
{
    return (double)(int64_t)((uint64_t)a - (uint64_t)b);
}

static double length_between(const struct rawlog_pair *first, const struct rawlog_pair *last)
{
    const double ticks = difference(last->ticks, first->ticks);
    return ticks > 0 ? difference(last->ns, first->ns) / ticks : 1;
}

/* RATIONALE: times are nearly in order, so that the place moves little. */
static void move(struct scale *scale, int64_t ticks)
{
    int64_t place = scale->place;
    while (place + 1 < scale->count && scale->pairs[place + 1].ticks <= ticks)
        place++;
    while (place >= 0 && scale->pairs[place].ticks > ticks)
        place--;
    if (place == scale->place && scale->length >= 0)
        return;
    scale->place = place;
    if (place < 0 || place + 1 == scale->count)
        scale->length = length_between(&scale->pairs[0], &scale->pairs[scale->count - 1]);
    else
        scale->length = length_between(&scale->pairs[place], &scale->pairs[place + 1]);
}

static int64_t converted(struct scale *scale, int64_t ticks)
{
    static const double most = 4e18; /* in damaged logs */
    move(scale, ticks);
    const struct rawlog_pair *pair = &scale->pairs[scale->place < 0 ? 0 : scale->place];
    double ns = difference(ticks, pair->ticks) * scale->length;
    ns = ns > most ? most : ns < -most ? -most : ns;
    return plus(pair->ns, (int64_t)ns);
}

DECODE_API void rawlog_convert(struct rawlog_record *records, int64_t number, const struct rawlog_pair *pairs,
                               int64_t count)
{
    struct scale scale = {pairs, count, -1, -1};
    for (int64_t i = 0; i < number; i++) {
        records[i].t_start = converted(&scale, records[i].t_start);
        const int64_t end = converted(&scale, records[i].t_end);
        records[i].t_end = end < records[i].t_start ? records[i].t_start : end;
    }
}
