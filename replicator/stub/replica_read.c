#include "replica_read.h"

#include <stdlib.h>
#include <string.h>

#include "open.h"
#include "redirection.h"
#include "replica_choice.h"
#include "report.h"

enum { BOUNCE_BYTES = 4 << 20 };

/* Reads a range into contiguous memory. False: a read failed; *blame: it was a read of the
 * replica. */
static bool read_stream(struct reader *reader, int chosen, const struct view_range *range, struct runs *runs,
                        int64_t size, char *buffer, bool *blame)
{
    const struct source *source = reader->source;
    const struct map_replica *replica = chosen < 0 ? NULL : replica_of(source, (uint32_t)chosen);
    struct walk walk;
    struct piece piece;
    walk_start(&walk, source->map, replica, range);
    while (walk_next(&walk, &piece)) {
        /* Extents that do not ascend can pass the end of the file before the last one does. */
        if (piece.offset < 0 || piece.length > size - piece.offset)
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
                *blame = outcome == FAILED;
                return false;
            }
            buffer += strip.length;
            piece.replica_offset += strip.length;
            piece.length -= strip.length;
        }
    }
    for (uint32_t i = 0; i <= runs->components; i++) {
        enum outcome outcome = run_flush(runs, &runs->each[i]);
        if (outcome != DONE) {
            *blame = outcome == FAILED && i < runs->components;
            return false;
        }
    }
    return true;
}

/* The same into scattered memory, through a buffer: a read into many small places costs more than
 * the copy. */
static bool read_scattered(struct reader *reader, int chosen, const struct view_range *range, struct runs *runs,
                           int64_t size, char *buffer, const struct typemap *memory, bool *blame)
{
    struct typemap_cursor cursor;
    char *bounce = malloc(range->bytes < BOUNCE_BYTES ? (size_t)range->bytes : BOUNCE_BYTES);
    bool read = bounce != NULL;
    typemap_cursor_init(&cursor, memory, 0, 0);
    for (int64_t done = 0; read && done < range->bytes;) {
        struct view_range part = *range;
        part.position += done;
        part.bytes = range->bytes - done < BOUNCE_BYTES ? range->bytes - done : BOUNCE_BYTES;
        read = read_stream(reader, chosen, &part, runs, size, bounce, blame);
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
    struct runs runs = {.map = reader->source->map,
                        .components = chosen < 0 ? 0 : replica_of(reader->source, (uint32_t)chosen)->servers,
                        .no_nowait = chosen < 0 ? NULL : &reader->replicas[chosen].no_nowait};
    if ((runs.each = calloc(runs.components + 1, sizeof *runs.each)) == NULL)
        return false;
    for (uint32_t i = 0; i < runs.components; i++)
        runs.each[i] = (struct run){.fd = __atomic_load_n(&reader->replicas[chosen].components[i], __ATOMIC_ACQUIRE),
                                    .progress = &reader->replicas[chosen].progress[i],
                                    .tally = &served->replica};
    runs.each[runs.components] = (struct run){.fd = reader->fd, .progress = &reader->progress,
                                              .tally = &served->original};
    bool blame = false;
    bool read = memory == NULL ? read_stream(reader, chosen, range, &runs, size, buffer, &blame)
                               : read_scattered(reader, chosen, range, &runs, size, buffer, memory, &blame);
    for (uint32_t i = 0; i <= runs.components; i++)
        free(runs.each[i].memory);
    free(runs.each);
    if (blame)
        replica_refuse(reader->source, (uint32_t)chosen, "a read from it failed or was short");
    return read;
}
