/* Moves: transfers in the background. Each node (for a policy of the data servers, each server) makes
 * its moves one after another, unless the driver makes them together. */
#include "core.h"

struct job *job_known(const struct caching *core, int64_t token)
{
    struct entry *entry = table_find(&core->under_way, token, 0, 0, 0);
    return entry ? entry->more : NULL;
}

struct job *job_new(struct caching *core, struct part *part, int64_t level, int64_t start, int64_t stop, int64_t node,
                    enum move_kind kind)
{
    uint32_t number = number_take(&core->memory, &core->jobs);
    struct job *job = job_at(core, number);
    *job = (struct job){.token = ++core->serial, .number = number, .part = part, .level = level,
                        .first = {start, stop, NULL}, .node = node, .size = stop - start, .kind = kind,
                        .after = kind == PASS ? core->clock : core->after};
    job->last = &job->first;
    return job;
}

/* `follows`: what is between the copy and the move's last one is no copy of this move, and never will be. */
static void job_add(struct caching *core, struct job *job, const struct copy *copy, bool follows)
{
    job->size += (int64_t)copy->length;
    if (follows || job->last->stop == copy->start) {
        job->last->stop = stop_of(copy);
        return;
    }
    struct span *span = item_take(&core->memory, &core->spans);
    *span = (struct span){copy->start, stop_of(copy), NULL};
    job->last->next = span;
    job->last = span;
}

/* The copies that have bytes of this move. */
static void copies_of(struct caching *core, const struct job *job, struct vector *copies)
{
    copies->count = 0;
    for (const struct span *span = &job->first; span; span = span->next)
        overlapping(core, extents_of(job->part, job->level), span->start, span->stop, copies);
}

/* Whether it is one of the moves that a node makes one after another. */
static bool is_queued(const struct caching *core, const struct job *job)
{
    return !core->setup.together && (job->kind == BACK || job->kind == FETCH);
}

static struct queue *queue_of(struct caching *core, int64_t node)
{
    struct entry *entry = table_put(&core->memory, &core->turns, node, 0, 0, 0);
    if (!entry->more) {
        struct queue *queue = item_take(&core->memory, &core->queues);
        *queue = (struct queue){0};
        entry->more = queue;
    }
    return entry->more;
}

struct job *job_moving(const struct caching *core, const struct copy *copy)
{
    struct job *job = copy->moving ? job_at(core, copy->moving) : NULL;
    return job && job->started ? job : NULL;
}

const struct chain *keepers_of(const struct caching *core, uint32_t number)
{
    return copy_at(core, number)->kept ? table_find(&core->keepers, number, 0, 0, 0)->more : NULL;
}

void keep(struct caching *core, uint32_t number, int64_t token)
{
    struct entry *entry = table_put(&core->memory, &core->keepers, number, 0, 0, 0);
    struct chain *made = item_take(&core->memory, &core->chains), *first = entry->more, **at = &first;
    while (*at && (*at)->token != token) {
        struct chain *one = *at;
        if (job_known(core, one->token)) {
            at = &one->next;
        } else {
            *at = one->next;
            item_give(&core->chains, one);
        }
    }
    if (*at) {
        item_give(&core->chains, made);
    } else {
        *made = (struct chain){.token = token};
        *at = made;
    }
    entry->more = first;
    copy_at(core, number)->kept = true;
}

void transfer(struct caching *core, struct vector *stage, enum caching_op op, const struct part *part,
              const struct copy *copy, int64_t start, int64_t stop, int64_t node)
{
    int64_t level = CACHING_HOME, server = part->number, address = start;
    if (copy) {
        const struct caching_space *space = cache_of(core, copy)->space;
        level = space->level;
        server = space->server;
        address = copy->address + start - copy->start;
        if (space->on_nodes && server == node)
            node = -1;
    }
    struct caching_transfer *last = stage->count > 0 ? (struct caching_transfer *)stage->at + stage->count - 1 : NULL;
    if (last && last->stop == address && last->first + last->stop - last->start == start && last->level == level &&
        last->server == server && last->file == part->file && last->op == op && last->node == node) {
        last->stop = address + stop - start;
        return;
    }
    struct caching_transfer *added = vector_add(&core->memory, stage, sizeof *added);
    *added = (struct caching_transfer){.level = level, .server = server, .file = part->file, .op = op,
                                       .start = address, .stop = address + stop - start, .node = node, .first = start};
}

/* Adds the stages of a move so far: what it reads, and then what it writes. */
static int64_t add_stages(struct caching *core, int64_t stage)
{
    struct vector *of[] = {&core->reads, &core->writes};
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < of[i]->count; j++) {
            struct caching_transfer *added = vector_add(&core->memory, &core->moved, sizeof *added);
            *added = ((struct caching_transfer *)of[i]->at)[j];
            added->stage = stage;
        }
        stage += of[i]->count > 0;
        of[i]->count = 0;
    }
    return stage;
}

static void add_chunk(struct caching *core, const struct job *job, const struct copy *copy, int64_t start, int64_t stop,
                      int64_t node)
{
    if (job->kind == BACK) {
        transfer(core, &core->reads, CACHING_READ, job->part, copy, start, stop, node);
        transfer(core, &core->writes, CACHING_WRITE, job->part, NULL, start, stop, node);
        return;
    }
    if (job->kind != PASS) {
        sources(core, job->part, start, stop, false, &core->move_sources);
        for (int64_t i = 0; i < core->move_sources.count; i++) {
            struct source *source = (struct source *)core->move_sources.at + i;
            if (source->copy)
                keep(core, source->copy, job->token);
            transfer(core, &core->reads, CACHING_READ, job->part, source->copy ? copy_at(core, source->copy) : NULL,
                     source->start, source->stop, node);
        }
    }
    transfer(core, &core->writes, CACHING_WRITE, job->part, copy, start, stop, node);
}

/* Adds what is read and written for a move. */
static void list_transfers(struct caching *core, const struct job *job)
{
    int64_t node = core->setup.by_part ? -1 : job->node, size = 0, stage = 0;
    copies_of(core, job, &core->starting);
    core->reads.count = core->writes.count = 0;
    for (int64_t i = 0; i < core->starting.count; i++) {
        const struct copy *copy = copy_of(core, &core->starting, i);
        if (copy->moving != job->number)
            continue;
        int64_t chunk = cache_of(core, copy)->space->chunk, end = stop_of(copy);
        for (int64_t start = copy->start; start < end; start += chunk) {
            int64_t stop = end - start > chunk ? start + chunk : end;
            if (size + stop - start > chunk) {
                stage = add_stages(core, stage);
                size = 0;
            }
            size += stop - start;
            add_chunk(core, job, copy, start, stop, node);
            if (stop == end)
                break;
        }
    }
    add_stages(core, stage);
}

static void job_start(struct caching *core, struct job *job)
{
    int64_t first = core->moved.count;
    job->started = true;
    if (!core->setup.tokens_only || job->kind != BACK)
        list_transfers(core, job);
    struct caching_move *move = vector_add(&core->memory, &core->moves, sizeof *move);
    *move = (struct caching_move){job->token, job->kind == LOAD, job->after, first, core->moved.count - first};
}

void job_queue(struct caching *core, struct job *job)
{
    table_put(&core->memory, &core->under_way, job->token, 0, 0, 0)->more = job;
    if (is_queued(core, job)) {
        struct queue *queue = queue_of(core, job->node);
        *(queue->last ? &queue->last->next : &queue->first) = job;
        queue->last = job;
        if (queue->first != job)
            return;
    }
    job_start(core, job);
}

static bool are_in_order(const struct caching *core, const struct vector *copies)
{
    for (int64_t i = 1; i < copies->count; i++)
        if (copy_of(core, copies, i)->start < stop_of(copy_of(core, copies, i - 1)))
            return false;
    return true;
}

void write_back(struct caching *core, struct part *part, int64_t level, const struct vector *copies)
{
    struct vector *made = &core->jobs_made, *last = &core->jobs_last; /* all moves; the last one of each node */
    const struct job *before = NULL;
    bool in_order = are_in_order(core, copies);
    made->count = last->count = 0;
    for (int64_t i = 0; i < copies->count; i++) {
        struct copy *copy = copy_of(core, copies, i);
        const struct group *group = group_of(core, copy);
        struct job **of = last->at, *job = NULL;
        int64_t number = 0;
        if (copy->moving)
            continue;
        while (number < last->count && of[number]->node != group->node)
            number++;
        if (number < last->count)
            job = of[number];
        if (job && job->size < core->cache[group->space].space->chunk) {
            job_add(core, job, copy, in_order && job == before);
        } else {
            job = job_new(core, part, level, copy->start, stop_of(copy), group->node, BACK);
            struct job **into = vector_add(&core->memory, made, sizeof *into);
            *into = job;
            into = number < last->count ? &of[number] : vector_add(&core->memory, last, sizeof *into);
            *into = job;
        }
        copy->moving = job->number;
        before = job;
    }
    for (int64_t i = 0; i < made->count; i++)
        job_queue(core, ((struct job **)made->at)[i]);
}

void await(struct caching *core, struct job *job)
{
    if (job->awaited == core->steps)
        return;
    job->awaited = core->steps;
    int64_t *into = vector_add(&core->memory, &core->wait, sizeof *into);
    *into = job->token;
}

/* The move that will free a copy's addresses; NULL: no move uses them. RATIONALE: of several, one whose number the
 * copy has, since it takes the number off the copy before another move can have it. */
static struct job *user_of(const struct caching *core, uint32_t number)
{
    struct job *user = job_moving(core, copy_at(core, number));
    for (const struct chain *one = keepers_of(core, number); one && !user; one = one->next)
        user = job_known(core, one->token);
    return user;
}

static void forget_keepers(struct caching *core, uint32_t number)
{
    struct entry *entry = table_find(&core->keepers, number, 0, 0, 0);
    for (struct chain *one = entry->more, *next; one; one = next) {
        next = one->next;
        item_give(&core->chains, one);
    }
    table_remove(&core->keepers, entry);
}

/* Frees a copy's addresses, or lets the last move that uses them do it. */
static void copy_free(struct caching *core, uint32_t number)
{
    struct copy *copy = copy_at(core, number);
    struct job *user = user_of(core, number);
    if (user) {
        struct chain *one = item_take(&core->memory, &core->chains);
        *one = (struct chain){.next = user->freed, .copy = number};
        user->freed = one;
        copy->moving = copy->moving == user->number ? copy->moving : 0;
        return;
    }
    if (copy->kept)
        forget_keepers(core, number);
    addresses_free(core, &cache_of(core, copy)->addresses, copy->address, (int64_t)copy->length);
    number_give(&core->copies, number);
}

void copy_remove(struct caching *core, struct extents *extents, uint32_t number)
{
    ordered_remove(&core->nodes, &extents->copies, copy_at(core, number)->start, 0);
    unlist(core, number);
    copy_free(core, number);
}

static void job_end(struct caching *core, struct job *job)
{
    for (struct chain *one = job->freed, *next; one; one = next) {
        next = one->next;
        copy_at(core, one->copy)->moving = 0;
        copy_free(core, one->copy);
        item_give(&core->chains, one);
    }
    for (struct span *span = job->first.next, *next; span; span = next) {
        next = span->next;
        item_give(&core->spans, span);
    }
    if (is_queued(core, job)) {
        struct queue *queue = queue_of(core, job->node);
        queue->first = job->next;
        if (!queue->first)
            queue->last = NULL;
        else
            job_start(core, queue->first);
    }
    number_give(&core->jobs, job->number);
}

void job_finish(struct caching *core, int64_t token)
{
    struct entry *entry = table_find(&core->under_way, token, 0, 0, 0);
    struct job *job = entry->more;
    struct extents *extents = extents_made(job->part, job->level);
    table_remove(&core->under_way, entry);
    copies_of(core, job, &core->ended);
    for (int64_t i = 0; i < core->ended.count; i++) {
        uint32_t number = number_of(&core->ended, i);
        struct copy *copy = copy_at(core, number);
        if (copy->moving != job->number)
            continue;
        copy->moving = 0;
        if (copy->dirty && copy->doomed) {
            copy_remove(core, extents, number);
        } else {
            copy->dirty = false;
            settle(core, number);
        }
    }
    job_end(core, job);
}
