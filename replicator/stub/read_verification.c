#include "read_verification.h"

#include <stdlib.h>
#include <string.h>

#include "freshness.h"
#include "redirection.h"
#include "replica_choice.h"
#include "replica_read.h"
#include "report.h"

enum { VERIFIED_BYTES = 4 << 20 };

bool verification_wanted(void)
{
    static int wanted; /* 0: not known yet; 1: no; 2: yes */
    int known = __atomic_load_n(&wanted, __ATOMIC_RELAXED);
    if (known == 0) {
        const char *value = getenv("PDLA_VERIFY");
        known = value != NULL && *value == '1' ? 2 : 1;
        __atomic_store_n(&wanted, known, __ATOMIC_RELAXED);
    }
    return known == 2;
}

/* Where byte `position` of the view's data is in the original. */
static int64_t place_of(const struct view_range *range, int64_t position)
{
    struct typemap_cursor cursor;
    typemap_cursor_init(&cursor, range->view, range->displacement, position);
    return typemap_cursor_next(&cursor, 1).offset;
}

/* Reads a part of a range from the replica and from the original. False: a read failed. */
static bool read_both(struct reader *reader, int chosen, const struct view_range *part, int64_t size, char *one,
                      char *other)
{
    struct served served = {0};
    return replica_read(reader, chosen, part, size, one, NULL, &served)
        && replica_read(reader, -1, part, size, other, NULL, &served);
}

const char *verify_read(struct reader *reader, const char *call, int chosen, const struct view_range *range,
                        int64_t size)
{
    struct source *source = reader->source;
    struct difference found = {.call = NULL};
    char *both = malloc(2 * VERIFIED_BYTES);
    const char *why = both == NULL ? "out of memory" : NULL;
    for (int64_t done = 0; why == NULL && done < range->bytes; done += VERIFIED_BYTES) {
        struct view_range part = *range;
        part.position += done;
        part.bytes = range->bytes - done < VERIFIED_BYTES ? range->bytes - done : VERIFIED_BYTES;
        char *other = both + VERIFIED_BYTES;
        if (!read_both(reader, chosen, &part, size, both, other)) {
            why = "a replica could not be read";
        } else if (memcmp(both, other, (size_t)part.bytes) != 0) {
            int64_t i = 0;
            while (both[i] == other[i])
                i++;
            why = "the original was changed";
            if (!freshness_check(source->map, source->file, reader->fd))
                continue;
            why = "differs from the original";
            found = (struct difference){.call = call,
                                        .replica = replica_of(source, (uint32_t)chosen)->id,
                                        .offset = place_of(&part, part.position + i),
                                        .start = place_of(range, range->position),
                                        .bytes = range->bytes,
                                        .original = (unsigned char)other[i],
                                        .got = (unsigned char)both[i]};
        }
    }
    free(both);
    report_compared(source, range->bytes, &found);
    if (found.call != NULL)
        replica_refuse(source, (uint32_t)chosen, why);
    return why;
}
