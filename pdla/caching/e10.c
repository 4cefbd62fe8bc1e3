/* E10: collective writes go to the aggregators' own devices; write-back happens in the background
 * (pdla/policies/e10.py describes it). */
#include "core.h"

struct e10 {
    struct caching_e10 with;
    struct table files; /* that were written */
};

static int request(void *state, struct caching *core, const struct caching_request *request)
{
    struct e10 *e10 = state;
    if (request->op != CACHING_WRITE || !request->collective || request->node >= core->setup.spaces)
        return 0;
    table_put(&core->memory, &e10->files, request->file, 0, 0, 0);
    struct caching_wish made = {
        .kind = CACHING_PLACE, .file = request->file, .part = -1, .start = request->start, .stop = request->stop,
        .space = request->node, .node = -1, .reason = "a collective write"};
    wish(core, &made);
    if (!e10->with.flush_on_close) {
        made.kind = CACHING_WRITE_BACK;
        made.reason = "flush_immediate";
        wish(core, &made);
    }
    return 0;
}

static void close_file(const struct e10 *e10, struct caching *core, int64_t file)
{
    struct caching_wish made = {
        .kind = CACHING_WRITE_BACK, .file = file, .part = -1, .stop = (int64_t)1 << 62, .space = -1, .wait = 1,
        .node = -1, .reason = "the file is closed"};
    wish(core, &made);
    if (e10->with.discard) {
        made.kind = CACHING_DROP;
        made.wait = 0;
        wish(core, &made);
    }
}

/* The close returns when everything is written back; then the cache file is removed. */
static int close(void *state, struct caching *core, int64_t file)
{
    const struct e10 *e10 = state;
    if (file >= 0)
        close_file(e10, core, file);
    for (const struct entry *one = file < 0 ? table_first(&e10->files) : NULL; one; one = table_next(&e10->files, one))
        close_file(e10, core, one->key[0]);
    return 0;
}

static int begin(struct caching *core, const void *parameters)
{
    struct e10 *e10 = memory_take(&core->memory, sizeof *e10);
    e10->with = *(const struct caching_e10 *)parameters;
    core->policy = (struct caching_policy){.state = e10, .request = request, .close = close};
    return CACHING_DONE;
}

int caching_use_e10(struct caching *core, const struct caching_e10 *parameters)
{
    return use_policy(core, begin, parameters);
}
