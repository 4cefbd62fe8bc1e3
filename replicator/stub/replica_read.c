#include "replica_read.h"

#include <stdlib.h>
#include <string.h>

#include "open.h"
#include "redirection.h"
#include "replica_choice.h"
#include "report.h"

enum {
    BOUNCE_BYTES = 4 << 20,
    FEW_RUNS = 5 /* need no allocation */
};

struct replica_runs {
    struct reader *reader;
    int chosen;
    int64_t size; /* of the original */
    struct runs runs;
    bool blame;   /* out: a read of the replica failed */
};

/* Reads a range into contiguous memory. */
static bool read_stream(void *context, const struct view_range *range, char *buffer)
{
    struct replica_runs *to = context;
    struct reader *reader = to->reader;
    struct runs *runs = &to->runs;
    const int chosen = to->chosen;
    const struct source *source = reader->source;
    const struct map_replica *replica = chosen < 0 ? NULL : replica_of(source, (uint32_t)chosen);
    struct walk walk;
    struct piece piece;
    walk_start(&walk, source->map, replica, range);
    while (walk_next(&walk, &piece)) {
        /* Extents that do not ascend can pass the end of the file before the last one does. */
        if (piece.offset < 0 || piece.length > to->size - piece.offset)
            return false;
        if (piece.replica_offset < 0) {
            if (run_add(runs, &runs->each[runs->components], piece.offset, piece.length, buffer) != DONE)
                return false;
            buffer += piece.length;
            continue;
        }
        while (piece.length > 0) {
            struct strip strip = locate_strip(source->map, replica, piece.replica_offset);
            if (strip.length > piece.length)
                strip.length = piece.length;
            struct run *run = &runs->each[strip.component];
            if (run->fd < 0 && (run->fd = component_of(reader, chosen, strip.component)) < 0)
                return false;
            enum outcome outcome = run_add(runs, run, strip.offset, strip.length, buffer);
            if (outcome != DONE) {
                to->blame = outcome == FAILED;
                return false;
            }
            buffer += strip.length;
            piece.replica_offset += strip.length;
            piece.length -= strip.length;
        }
    }
    /* RATIONALE: the original first, since it takes longest: its devices are slower, or it would have no replica. */
    if (run_flush(runs, &runs->each[runs->components]) != DONE)
        return false;
    for (uint32_t i = 0; i < runs->components; i++) {
        enum outcome outcome = run_flush(runs, &runs->each[i]);
        if (outcome != DONE) {
            to->blame = outcome == FAILED;
            return false;
        }
    }
    return true;
}

bool read_scattered(const struct view_range *range, char *buffer, const struct typemap *memory,
                    bool (*read_stream)(void *context, const struct view_range *, char *buffer), void *context)
{
    struct typemap_cursor cursor;
    char *bounce = malloc(range->bytes < BOUNCE_BYTES ? (size_t)range->bytes : BOUNCE_BYTES);
    bool read = bounce != NULL;
    typemap_cursor_init(&cursor, memory, 0, 0);
    for (int64_t done = 0; read && done < range->bytes;) {
        struct view_range part = *range;
        part.position += done;
        part.bytes = range->bytes - done < BOUNCE_BYTES ? range->bytes - done : BOUNCE_BYTES;
        read = read_stream(context, &part, bounce);
        for (int64_t copied = 0; read && copied < part.bytes;) {
            struct extent place = typemap_cursor_next(&cursor, part.bytes - copied);
            memcpy(buffer + place.offset, bounce + copied, (size_t)place.length);
            copied += place.length;
        }
        done += part.bytes;
    }
    free(bounce);
    return read;
}

bool replica_read(struct reader *reader, int chosen, const struct view_range *range, int64_t size, char *buffer,
                  const struct typemap *memory, struct served *served)
{
    struct replica_runs to = {
        .reader = reader,
        .chosen = chosen,
        .size = size,
        .runs = {.map = reader->source->map,
                 .components = chosen < 0 ? 0 : replica_of(reader->source, (uint32_t)chosen)->servers,
                 .no_nowait = chosen < 0 ? NULL : &reader->replicas[chosen].no_nowait},
    };
    struct runs *runs = &to.runs;
    struct run few[FEW_RUNS];
    runs->each = runs->components < FEW_RUNS ? few : malloc((runs->components + 1) * sizeof *runs->each);
    if (runs->each == NULL)
        return false;
    for (uint32_t i = 0; i < runs->components; i++)
        runs->each[i] = (struct run){.fd = __atomic_load_n(&reader->replicas[chosen].components[i], __ATOMIC_ACQUIRE),
                                     .progress = &reader->replicas[chosen].progress[i],
                                     .tally = &served->replica};
    runs->each[runs->components] = (struct run){.fd = reader->fd, .progress = &reader->progress,
                                                .tally = &served->original};
    const bool read = memory == NULL ? read_stream(&to, range, buffer)
                                     : read_scattered(range, buffer, memory, read_stream, &to);
    for (uint32_t i = 0; i <= runs->components; i++)
        run_free(&runs->each[i]);
    if (runs->each != few)
        free(runs->each);
    if (to.blame)
        replica_refuse(reader->source, (uint32_t)chosen, "a read from it failed or was short");
    return read;
}
