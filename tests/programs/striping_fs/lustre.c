/* Lustre's extended attribute lustre.lov, as its clients take and give it. Fields: struct lov_user_md_v1 and _v3,
 * struct lov_user_ost_data_v1, struct lov_comp_md_v1 and lov_comp_md_entry_v1 in lustre_user.h, Lustre 2.17
 * (include/uapi/linux/lustre). What clients and servers make
 * of them: ll_setstripe_ea and ll_adjust_lum in lustre/llite/xattr.c, lod_alloc_ost_list in lustre/lod/lod_qos.c,
 * lod_verify_v1v3 in lustre/lod/lod_lov.c. Lustre gives a component its objects at the first write to it; here all have
 * theirs at once. */
#include "striping_fs.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum {
    V1 = 0x0BD10BD0,       /* LOV_USER_MAGIC_V1 */
    V3 = 0x0BD30BD0,       /* LOV_USER_MAGIC_V3, with the name of a pool */
    SPECIFIC = 0x0BD50BD0, /* LOV_USER_MAGIC_SPECIFIC: like V3, and the OSTs are given */
    RAID0 = 1,             /* LOV_PATTERN_RAID0 */
    AGAIN = 0x200,         /* LOV_PATTERN_OVERSTRIPING */
    UNIT = 1 << 16,        /* LOV_MIN_STRIPE_SIZE */
    COMPOSITE = 0x0BD60BD0, /* LOV_USER_MAGIC_COMP_V1 */
    INIT = 0x10,            /* LCME_FL_INIT */
};

struct object {
    uint64_t id, sequence; /* l_ost_oi */
    uint32_t generation;   /* l_ost_gen */
    uint32_t target;       /* l_ost_idx */
} __attribute__((packed));

struct head {
    uint32_t magic, pattern; /* lmm_magic, lmm_pattern */
    uint64_t id, sequence;   /* lmm_oi */
    uint32_t strip;          /* lmm_stripe_size */
    uint16_t count;          /* lmm_stripe_count */
    uint16_t first;          /* lmm_stripe_offset; when read, lmm_layout_gen */
} __attribute__((packed));

struct value {
    struct head head;
    char pool[MOST_POOL]; /* lmm_pool_name; not in V1 */
    struct object object[MOST_STRIPES];
} __attribute__((packed));

struct component {
    uint32_t id, flags;              /* lcme_id, lcme_flags */
    uint64_t start, stop;            /* lcme_extent */
    uint32_t offset, size, generation; /* lcme_offset, lcme_size, lcme_layout_gen */
    uint64_t time;                   /* lcme_time_and_id */
    uint32_t rest;
} __attribute__((packed));

struct composite {
    uint32_t magic, size, generation;     /* lcm_magic, lcm_size, lcm_layout_gen */
    uint16_t flags, components, mirrors; /* lcm_flags, lcm_entry_count, lcm_mirror_count */
    uint16_t padding[7];
    struct component component[MOST_PARTS];
} __attribute__((packed));

_Static_assert(sizeof(struct component) == 48 && offsetof(struct composite, component) == 32, "as in lustre_user.h");
_Static_assert(sizeof(struct object) == 24 && sizeof(struct head) == 32, "as in lustre_user.h");

static const char attribute[] = "lustre.lov";

static int get_composite(const struct layout *layout, char *value, size_t size)
{
    const size_t entries = offsetof(struct composite, component) + layout->parts * sizeof(struct component);
    const size_t length = entries + layout->parts * sizeof(struct head) + layout->count * sizeof(struct object);
    struct composite header = {.magic = COMPOSITE, .size = (uint32_t)length, .components = (uint16_t)layout->parts};
    size_t at = entries;
    uint32_t object = 0;
    if (!size)
        return (int)length;
    if (size < length)
        return -ERANGE;
    for (uint32_t i = 0; i < layout->parts; i++) {
        const struct part *part = &layout->part[i];
        const struct head head = {.magic = V1, .pattern = RAID0, .id = 1, .strip = part->strip,
                                  .count = (uint16_t)part->count};
        header.component[i] = (struct component){.id = i + 1, .flags = INIT, .start = i ? part[-1].stop : 0,
                                                 .stop = part->stop, .offset = (uint32_t)at};
        memcpy(value + at, &head, sizeof head);
        at += sizeof head;
        for (uint32_t j = 0; j < part->count; j++, object++, at += sizeof(struct object)) {
            const struct object one = {.id = object + 2, .target = layout->target[object]};
            memcpy(value + at, &one, sizeof one);
        }
        header.component[i].size = (uint32_t)at - header.component[i].offset;
    }
    memcpy(value, &header, entries);
    return (int)length;
}

/* The OSTs of a component are the next ones in turn. */
static int parse_composite(const char *value, size_t size, struct layout *layout)
{
    struct composite header = {0};
    memcpy(&header, value, size < sizeof header ? size : sizeof header);
    if (header.size != size || !header.components || header.components > MOST_PARTS || header.mirrors)
        return -EINVAL;
    *layout = (struct layout){.again = 1, .parts = header.components};
    for (uint32_t i = 0; i < layout->parts; i++) {
        const struct component *one = &header.component[i];
        struct head head;
        if (one->flags || one->start != (i ? layout->part[i - 1].stop : 0) || one->stop <= one->start
            || one->offset > size || size - one->offset < sizeof head)
            return -EINVAL;
        memcpy(&head, value + one->offset, sizeof head);
        if (head.magic != V1 || head.pattern != RAID0 || head.strip % UNIT || !head.strip || !head.count
            || head.count > targets() || layout->count + head.count > MOST_STRIPES || one->start % head.strip)
            return -EINVAL;
        layout->part[i] = (struct part){one->stop, head.strip, head.count};
        for (uint32_t j = 0; j < head.count; j++, layout->count++)
            layout->target[layout->count] = layout->count % targets();
    }
    layout->strip = layout->part[0].strip;
    return 0;
}

static int get(const char *path, int directory, const char *name, char *value, size_t size)
{
    struct layout layout;
    struct value made = {0};
    if (strcmp(name, attribute))
        return -ENODATA;
    const int failed = directory ? default_of(path, &layout) : layout_of(path, &layout);
    if (failed)
        return failed;
    if (layout.parts)
        return get_composite(&layout, value, size);
    made.head = (struct head){
        .magic = layout.pool[0] ? V3 : V1,
        .pattern = RAID0 | (layout.again ? AGAIN : 0),
        .id = 1,
        .strip = layout.strip,
        .count = (uint16_t)layout.count,
        .first = directory ? (uint16_t)layout.target[0] : 0,
    };
    if (directory)
        layout.count = 0; /* it has no objects */
    memcpy(made.pool, layout.pool, MOST_POOL);
    for (uint32_t i = 0; i < layout.count; i++)
        made.object[i] = (struct object){.id = i + 2, .target = layout.target[i]};
    const size_t objects = layout.count * sizeof *made.object, pool = layout.pool[0] ? MOST_POOL : 0;
    const size_t length = sizeof made.head + pool + objects;
    if (!size)
        return (int)length;
    if (size < length)
        return -ERANGE;
    memcpy(value, &made.head, sizeof made.head);
    memcpy(value + sizeof made.head, made.pool, pool);
    memcpy(value + sizeof made.head + pool, made.object, objects);
    return (int)length;
}

static int set(const char *path, int directory, const char *name, const char *value, size_t size)
{
    struct value asked = {0};
    struct layout layout = {0};
    if (strcmp(name, attribute))
        return -EOPNOTSUPP;
    if (size < sizeof asked.head || size > sizeof asked)
        return -ERANGE;
    memcpy(&asked, value, size);
    if (asked.head.magic == COMPOSITE) {
        const int wrong = parse_composite(value, size, &layout);
        const int given = wrong ? wrong : directory ? set_default(path, &layout) : give(path, &layout);
        return given == -EEXIST ? 0 : given;
    }
    if (directory) { /* ll_dir_setstripe; here only one object, on a given OST */
        if ((asked.head.magic != V1 && asked.head.magic != V3) || asked.head.count != 1 || asked.head.strip % UNIT)
            return -EINVAL;
        layout = (struct layout){.strip = asked.head.strip, .count = 1, .target = {asked.head.first}};
        if (asked.head.magic == V3)
            memcpy(layout.pool, asked.pool, MOST_POOL);
        return layout.target[0] < targets() ? set_default(path, &layout) : -EINVAL;
    }
    if (asked.head.magic != SPECIFIC || (asked.head.pattern & ~(uint32_t)AGAIN) != RAID0)
        return -EINVAL;
    if (asked.head.strip % UNIT || asked.head.count > MOST_STRIPES)
        return -EINVAL;
    if (size < sizeof asked.head + MOST_POOL + asked.head.count * sizeof *asked.object)
        return -ERANGE;
    layout.strip = asked.head.strip;
    layout.count = asked.head.count;
    layout.again = (asked.head.pattern & AGAIN) != 0;
    memcpy(layout.pool, asked.pool, MOST_POOL);
    /* The list is taken from the place where it has lmm_stripe_offset, and goes round. */
    uint32_t start = 0;
    while (start < layout.count && asked.object[start].target != asked.head.first)
        start++;
    if (start == layout.count)
        return -EINVAL;
    for (uint32_t i = 0; i < layout.count; i++)
        layout.target[i] = asked.object[(start + i) % layout.count].target;
    const int failed = give(path, &layout);
    return failed == -EEXIST ? 0 : failed; /* ll_setstripe_ea ignores it */
}

const struct kind lustre = {.name = "lustre", .strip = 1 << 20, .count = 1, .get = get, .set = set};
