/* Makes entries. One is visible to a reader from the moment when `committed` counts it. */
#include "stream.h"

#include <string.h>

enum { NO_CALL = UINT16_MAX };

static void commit(struct stream *stream, size_t used)
{
    stream->used = used;
    __atomic_store_n(stream->committed, stream->before + used, __ATOMIC_RELEASE);
}

static void begin_window(struct stream *stream)
{
    stream->used = 0;
    for (int i = 0; i < RAWLOG_TEMPLATES; i++)
        stream->templates[i].call = NO_CALL;
}

void stream_begin(struct stream *stream, void *window, uint64_t *committed)
{
    stream->window = window;
    stream->committed = committed;
    stream->before = stream->recorded = 0;
    begin_window(stream);
}

void stream_end_window(struct stream *stream)
{
    memset(stream->window + stream->used, RAWLOG_NOTHING, RAWLOG_WINDOW_SIZE - stream->used);
    commit(stream, RAWLOG_WINDOW_SIZE);
}

void stream_next_window(struct stream *stream)
{
    stream->before += RAWLOG_WINDOW_SIZE;
    begin_window(stream);
}

void stream_anchor(struct stream *stream, struct rawlog_pair now)
{
    const struct rawlog_anchor anchor = {stream->recorded + 1, now};
    unsigned char *entry = stream->window + stream->used;
    entry[0] = RAWLOG_ANCHOR;
    memcpy(entry + 1, &anchor, sizeof anchor);
    stream->latest = now.ticks;
    commit(stream, stream->used + 1 + sizeof anchor);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static uint64_t fold(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

/* RATIONALE: differences of damaged or extreme numbers may overflow; they come back when they are
 * added again. */
static int64_t minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static bool fits(const struct template *template, const struct rawlog_record *record)
{
    return template->file == record->file && template->call == record->call && template->flags == record->flags &&
           template->view == record->view;
}

/* One of the two places where the template of such a record may be: that where it is, else one that
 * is free, else the first. */
static unsigned place_of(const struct stream *stream, const struct rawlog_record *record)
{
    const uint64_t key = (uint64_t)record->file << 32 ^ (uint64_t)record->view << 16 ^
                         (uint64_t)record->flags << 48 ^ record->call;
    const unsigned first = key * UINT64_C(0x9E3779B97F4A7C15) >> 58, second = first ^ 1;
    if (fits(&stream->templates[first], record) ||
        (!fits(&stream->templates[second], record) && stream->templates[second].call != NO_CALL))
        return first;
    return stream->templates[first].call == NO_CALL ? first : second;
}

static unsigned char *put(unsigned char *place, uint64_t number, unsigned *widths, unsigned which)
{
    const unsigned width = (number > 0) + (number > UINT16_MAX) + (number > UINT32_MAX);
    memcpy(place, &number, sizeof number);
    *widths |= width << 2 * which;
    return place + rawlog_bytes(width);
}

static void add_compact(struct stream *stream, const struct rawlog_record *record, unsigned number)
{
    struct template *template = &stream->templates[number];
    unsigned char *entry = stream->window + stream->used, *end = entry + 2;
    unsigned widths = 0;
    end = put(end, fold(minus(record->t_start, stream->latest)), &widths, 0);
    end = put(end, (uint64_t)minus(record->t_end, record->t_start), &widths, 1);
    end = put(end, fold(minus(minus(record->position, template->position), template->stride)), &widths, 2);
    end = put(end, fold(minus(record->length, template->length)), &widths, 3);
    entry[0] = (unsigned char)(RAWLOG_COMPACT | number);
    entry[1] = (unsigned char)widths;
    template->stride = minus(record->position, template->position);
    template->position = record->position;
    template->length = record->length;
    commit(stream, (size_t)(end - stream->window));
}

/* `number` is RAWLOG_NO_TEMPLATE or that of the template that the record becomes. */
static void add_full(struct stream *stream, const struct rawlog_record *record, unsigned number)
{
    unsigned char *entry = stream->window + stream->used;
    const uint64_t seq = stream->recorded;
    entry[0] = RAWLOG_FULL;
    entry[1] = (unsigned char)number;
    memcpy(entry + 2, record, sizeof *record);
    memcpy(entry + 2 + offsetof(struct rawlog_record, seq), &seq, sizeof seq);
    if (number < RAWLOG_TEMPLATES)
        stream->templates[number] = (struct template){record->file,     record->view, record->call,  record->flags,
                                                      record->position, 0,            record->length};
    commit(stream, stream->used + 2 + sizeof *record);
}

uint64_t stream_add(struct stream *stream, const struct rawlog_record *record, uint64_t *place)
{
    const uint64_t number = ++stream->recorded;
    if (record->error == 0 && record->moved == record->length && !(record->flags & RAWLOG_PENDING)) {
        const unsigned at = place_of(stream, record);
        if (fits(&stream->templates[at], record))
            add_compact(stream, record, at);
        else
            add_full(stream, record, at);
    } else {
        if (record->flags & RAWLOG_PENDING)
            *place = 1 + stream->before + stream->used + 2;
        add_full(stream, record, RAWLOG_NO_TEMPLATE);
    }
    stream->latest = record->t_end;
    return number;
}
