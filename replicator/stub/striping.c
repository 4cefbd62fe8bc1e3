#include "striping.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

enum { LONGEST = 4096 };

/* An extended attribute that says how a file is striped. */
struct attribute {
    const char *name;
    const char *(*read)(const char *path, const char *value, size_t size, const struct striping *home,
                        struct striping *);
    long system; /* f_type of file systems whose files always have it; 0: they have none of their own */
    const char *missing;
};

static const char not_known[] = "how the file is striped is not known: its layout cannot be read";

/* Ceph: "stripe_unit=65536 stripe_count=2 object_size=4194304 pool=data" (docs.ceph.com, File Layouts). RATIONALE: with
 * one column a file is contiguous in each object. Where objects are, a client does not see: they count as taking turns
 * on the home servers. */
static const char *read_ceph(const char *path, const char *value, size_t size, const struct striping *home,
                             struct striping *found)
{
    int64_t unit, columns, object;
    (void)path;
    (void)size;
    if (sscanf(value, "stripe_unit=%" SCNd64 " stripe_count=%" SCNd64 " object_size=%" SCNd64, &unit, &columns, &object)
            != 3
        || unit < 1 || columns < 1 || object < unit)
        return not_known;
    *found = columns > 1 ? (struct striping){unit, columns} : (struct striping){object, home->servers};
    return NULL;
}

/* Lustre: struct lov_user_md_v1 or _v3, little endian (lustre/include/uapi/linux/lustre/lustre_user.h): magic, pattern
 * (1 is RAID 0), 16 bytes for the object, bytes of a strip, and their number. */
static const char *read_lustre(const char *path, const char *value, size_t size, const struct striping *home,
                               struct striping *found)
{
    enum { V1 = 0x0BD10BD0, V3 = 0x0BD30BD0, RAID0 = 1 };
    struct {
        uint32_t magic, pattern;
        char object[16];
        uint32_t strip;
        uint16_t strips, generation;
    } layout;
    (void)path;
    (void)home;
    if (size < sizeof layout)
        return not_known;
    memcpy(&layout, value, sizeof layout);
    if (layout.magic != V1 && layout.magic != V3)
        return "how the file is striped is not known: its layout has several components";
    if (layout.pattern != RAID0 || layout.strip == 0 || layout.strips == 0 || layout.strips == UINT16_MAX)
        return not_known;
    *found = (struct striping){layout.strip, layout.strips};
    return NULL;
}

/* OrangeFS: the distribution's name, with its length before it and in multiples of 8 bytes, and its parameters
 * (src/io/description/pint-distribution.h, dist-simple-stripe.c); another attribute has 8 bytes for each data file
 * (src/apps/admin/pvfs2-viewdist.c). */
static const char *read_orangefs(const char *path, const char *value, size_t size, const struct striping *home,
                                 struct striping *found)
{
    static const char simple[] = "simple_stripe";
    enum { HANDLE = 8, PARAMETERS = (4 + sizeof simple + 7) / 8 * 8 };
    char handles[LONGEST];
    const ssize_t files = getxattr(path, "system.pvfs2.dh", handles, sizeof handles);
    (void)home;
    if (size < PARAMETERS + sizeof found->strip || memcmp(value + 4, simple, sizeof simple) != 0)
        return "how the file is striped is not known: its distribution is not simple_stripe";
    memcpy(&found->strip, value + PARAMETERS, sizeof found->strip);
    found->servers = files < 0 ? 0 : files / HANDLE;
    return found->strip > 0 && found->servers > 0 ? NULL : not_known;
}

static const struct attribute attributes[] = {
    {"ceph.file.layout", read_ceph, 0x00c36400, "how the file is striped is not known: CephFS does not say it"},
    {"lustre.lov", read_lustre, 0x0BD00BD0, "how the file is striped is not known: Lustre does not say it"},
    {"system.pvfs2.md", read_orangefs, 0x20030528, "how the file is striped is not known: OrangeFS does not say it"},
};

const char *striping_of(const char *path, const struct striping *home, struct striping *found)
{
    char value[LONGEST + 1];
    struct statfs system;
    const long type = statfs(path, &system) == 0 ? (long)system.f_type : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        const ssize_t size = getxattr(path, attributes[i].name, value, LONGEST);
        if (size > 0) {
            value[size] = '\0';
            return attributes[i].read(path, value, (size_t)size, home, found);
        }
        if (type == attributes[i].system)
            return attributes[i].missing;
    }
    *found = *home;
    return NULL;
}
