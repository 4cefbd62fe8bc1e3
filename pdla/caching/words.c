/* Refusals in words. */
#include <inttypes.h>
#include <stdio.h>

#include "core.h"

int64_t caching_reason(const struct caching_wish *wish, char *text, int64_t size)
{
    return wish->value == 0 ? snprintf(text, (size_t)size, "%s", wish->reason)
                            : snprintf(text, (size_t)size, "%s with a return of %.3g s", wish->reason, wish->value);
}

static int64_t names(const struct caching *core, char *text, int64_t size)
{
    int64_t length = snprintf(text, (size_t)size, "copies may be in ");
    for (int64_t i = 0; i < core->setup.spaces; i++) {
        int64_t at = length < size ? length : size;
        length += snprintf(text + at, (size_t)(size - at), "%s%s", i > 0 ? ", " : "", core->setup.space[i].name);
    }
    return length;
}

int64_t caching_why(const struct caching *core, const struct caching_refusal *refusal, char *text, int64_t size)
{
    static const char *const WORDS[] = {
        [CACHING_WAITS_FOR_ITSELF] = "a request cannot wait for what it writes: make this wish at the close",
        [CACHING_NAMES_NO_PART] = "a wish of this policy names a part",
        [CACHING_NAMES_A_PART] = "a wish of this policy names no part",
        [CACHING_NO_BYTES] = "it names no bytes",
        [CACHING_NOT_OF_THE_FILE] = "not bytes of the file",
        [CACHING_NOT_OF_THE_REQUEST] = "not bytes of the request",
        [CACHING_NO_WRITES] = "the space takes no writes",
        [CACHING_WRITTEN_AGAIN] = "it was written before its write-back was done",
    };
    const struct caching_wish *wish = &refusal->wish;
    switch (refusal->why) {
    case CACHING_NO_SUCH_SPACE:
        return names(core, text, size);
    case CACHING_OTHER_SERVER:
        return snprintf(text, (size_t)size, "copies of part %" PRId64 " may be on server %" PRId64, wish->part,
                        wish->part);
    case CACHING_NO_ROOM:
        return snprintf(text, (size_t)size, "it needs %" PRId64 " bytes, but %s has %" PRId64 " left", refusal->needed,
                        core->setup.space[wish->space].name, refusal->left);
    default:
        return snprintf(text, (size_t)size, "%s", WORDS[refusal->why]);
    }
}
