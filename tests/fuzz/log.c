/* libFuzzer on the windows of the recorder's logs: what is decoded stays within its room, is
 * numbered without gaps, and its times are in order. */
#include <stdlib.h>
#include <string.h>

#include "decode.h"

static void expect(int holds)
{
    if (!holds)
        abort();
}

/* As windows.scale() does. Returns their number. */
static int64_t keep_rising(struct rawlog_pair *pairs, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (kept == 0 || (pairs[i].ticks > pairs[kept - 1].ticks && pairs[i].ns > pairs[kept - 1].ns))
            pairs[kept++] = pairs[i];
    return kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Of exactly these sizes, so that the sanitizer sees what is beyond. */
    unsigned char *bytes = malloc(size + !size);
    struct rawlog_record *records = malloc((size / 2 + 1) * sizeof *records);
    struct rawlog_pair *pairs = malloc((size / 25 + 1) * sizeof *pairs);
    int64_t found = 0;
    memcpy(bytes, data, size);
    const int64_t count = rawlog_decode(bytes, (int64_t)size, 1, records, pairs, &found);
    expect(count <= (int64_t)size / 2 && found <= (int64_t)size / 25 && (count <= 0 || found > 0));
    for (int64_t i = 0; i < count; i++)
        expect(records[i].seq == (uint64_t)i + 1);
    if (count > 0) {
        rawlog_convert(records, count, pairs, keep_rising(pairs, found));
        for (int64_t i = 0; i < count; i++)
            expect(records[i].t_start <= records[i].t_end);
    }
    free(bytes);
    free(records);
    free(pairs);
    return 0;
}
