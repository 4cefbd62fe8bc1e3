#include "striping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "originals.h"

enum { LONGEST = 65536 }; /* XATTR_SIZE_MAX */

/* An extended attribute that says how a file is striped. */
struct attribute {
    const char *name;
    const char *(*read)(const char *path, const char *value, size_t size, int64_t home_servers, struct striped *);
    long system; /* f_type of file systems whose files always have it; 0: they have none of their own */
    const char *missing;
};

#define NOT_KNOWN "how the file is striped is not known: "
static const char not_known[] = NOT_KNOWN "its layout cannot be read";

/* A file that is striped in one way. */
static struct striped whole(int64_t strip, int64_t servers)
{
    return (struct striped){1, {{0, INT64_MAX, strip, servers, 0}}};
}

/* Ceph: "stripe_unit=65536 stripe_count=2 object_size=4194304 pool=data" (docs.ceph.com, File Layouts). RATIONALE: with
 * one column a file is contiguous in each object. Where objects are, a client does not see: they count as taking turns
 * on the home servers. */
static const char *read_ceph(const char *path, const char *value, size_t size, int64_t home_servers,
                             struct striped *found)
{
    int64_t unit, columns, object;
    (void)path;
    (void)size;
    if (sscanf(value, "stripe_unit=%" SCNd64 " stripe_count=%" SCNd64 " object_size=%" SCNd64, &unit, &columns, &object)
            != 3
        || unit < 1 || columns < 1 || object < unit)
        return not_known;
    *found = columns > 1 ? whole(unit, columns) : whole(object, home_servers);
    return NULL;
}

/* Lustre, little endian (lustre/include/uapi/linux/lustre/lustre_user.h). */
enum { V1 = 0x0BD10BD0, V3 = 0x0BD30BD0, COMPOSITE = 0x0BD60BD0, FOREIGN = 0x0BD70BD0, EXTENDED = 0x0BD80BD0 };

/* struct lov_user_md_v1 or _v3: magic, pattern, 16 bytes for the object, bytes of a strip, and their number. Each
 * object counts as a server; with overstriping an OST has several, which it serves one by one all the same. */
static const char *read_strips(const char *value, size_t size, struct striping *found)
{
    enum { RAID0 = 1, MDT = 0x100, OVERSTRIPING = 0x200, COMPRESS = 0x800 };
    const uint32_t released = 0x80000000;
    struct {
        uint32_t magic, pattern;
        char object[16];
        uint32_t strip;
        uint16_t strips, generation;
    } layout = {0};
    memcpy(&layout, value, size < sizeof layout ? size : sizeof layout);
    if (layout.magic == FOREIGN)
        return NOT_KNOWN "another system has its bytes, and Lustre its name only";
    if (size < sizeof layout || (layout.magic != V1 && layout.magic != V3))
        return not_known;
    if (layout.pattern & released)
        return NOT_KNOWN "its bytes are archived (lfs hsm_restore gets them back)";
    if (layout.pattern & MDT)
        return NOT_KNOWN "its bytes are on a metadata server";
    if ((layout.pattern & ~(uint32_t)(OVERSTRIPING | COMPRESS)) != RAID0)
        return not_known;
    if (layout.strip == 0 || layout.strips == 0 || layout.strips == UINT16_MAX)
        return not_known;
    found->strip = layout.strip;
    found->servers = layout.strips;
    return NULL;
}

/* struct lov_comp_md_v1: a header and components, each with a layout of its own for bytes of the file. One that was not
 * written to has no objects. */
static const char *read_components(const char *value, size_t size, struct striped *found)
{
    enum { INIT = 0x10 };
    struct {
        uint32_t magic, size, generation;
        uint16_t flags, components, mirrors, padding[5];
    } header;
    struct {
        uint32_t id, flags;
        uint64_t start, stop;
        uint32_t offset, size, rest[4];
    } one;
    _Static_assert(sizeof header == 28 && sizeof one == 48, "without the header's last padding");
    enum { HEADER = 32 };
    if (size < HEADER)
        return not_known;
    memcpy(&header, value, sizeof header);
    if (header.mirrors > 0)
        return NOT_KNOWN "it has several mirrors";
    *found = (struct striped){0};
    for (size_t i = 0; i < header.components && found->count < MOST_STRIPINGS; i++) {
        const int last = found->count - 1;
        struct striping part = {.first = last < 0 ? 0 : found->part[last].first + found->part[last].servers};
        if (size < HEADER + (i + 1) * sizeof one)
            return not_known;
        memcpy(&one, value + HEADER + i * sizeof one, sizeof one);
        if (one.offset > size || size - one.offset < one.size)
            return not_known;
        if (!(one.flags & INIT) || read_strips(value + one.offset, one.size, &part) != NULL)
            continue;
        part.start = one.start < INT64_MAX ? (int64_t)one.start : INT64_MAX;
        part.stop = one.stop < INT64_MAX ? (int64_t)one.stop : INT64_MAX;
        found->part[found->count++] = part;
    }
    return found->count > 0 ? NULL : NOT_KNOWN "no component of its layout has strips yet";
}

static const char *read_lustre(const char *path, const char *value, size_t size, int64_t home_servers,
                               struct striped *found)
{
    uint32_t magic = 0;
    (void)path;
    (void)home_servers;
    memcpy(&magic, value, size < sizeof magic ? size : sizeof magic);
    if (magic == COMPOSITE || magic == EXTENDED)
        return read_components(value, size, found);
    *found = whole(0, 0);
    return read_strips(value, size, &found->part[0]);
}

/* OrangeFS: the distribution's name, with its length before it and in multiples of 8 bytes, and its parameters
 * (src/io/description/pint-distribution.h, dist-simple-stripe.c); another attribute has 8 bytes for each data file
 * (src/apps/admin/pvfs2-viewdist.c). */
static const char *read_orangefs(const char *path, const char *value, size_t size, int64_t home_servers,
                                 struct striped *found)
{
    static const char simple[] = "simple_stripe";
    enum { HANDLE = 8, PARAMETERS = (4 + sizeof simple + 7) / 8 * 8 };
    const ssize_t files = getxattr(path, "system.pvfs2.dh", NULL, 0);
    int64_t strip;
    (void)home_servers;
    if (size < PARAMETERS + sizeof strip || memcmp(value + 4, simple, sizeof simple) != 0)
        return "how the file is striped is not known: its distribution is not simple_stripe";
    memcpy(&strip, value + PARAMETERS, sizeof strip);
    *found = whole(strip, files < 0 ? 0 : files / HANDLE);
    return strip > 0 && found->part[0].servers > 0 ? NULL : not_known;
}

static const struct attribute attributes[] = {
    {"ceph.file.layout", read_ceph, 0x00c36400, NOT_KNOWN "CephFS does not say it"},
    {"lustre.lov", read_lustre, 0x0BD00BD0, NOT_KNOWN "Lustre does not say it"},
    {"system.pvfs2.md", read_orangefs, 0x20030528, NOT_KNOWN "OrangeFS does not say it"},
};

/* BeeGFS: BEEGFS_IOC_TEST_IS_BEEGFS and BEEGFS_IOC_GET_STRIPEINFO (client_module/include/uapi/beegfs_client.h, BeeGFS
 * 8.3). A pair of mirrored targets is a server. False: the file is on another file system.
 * RATIONALE: on kinds of file systems that cannot be BeeGFS, the file is not opened. */
static bool is_on_beegfs(const char *path, long type, struct striped *found, const char **why)
{
    enum { SUPER = 0x19830326, FUSE = 0x65735546, RAID0 = 1, BUDDY_MIRROR = 3 };
    struct {
        unsigned pattern, chunk;
        uint16_t targets;
    } layout = {0};
    char is_beegfs[16] = ""; /* the client writes more than the number of the ioctl says */
    if (type != SUPER && type != FUSE)
        return false;
    *why = NOT_KNOWN "BeeGFS does not say it";
    const int opened = original_open(path, O_RDONLY | O_NOCTTY);
    const bool is = opened >= 0 && ioctl(opened, _IOR('f', 22, char[6]), is_beegfs) == 0
        && memcmp(is_beegfs, "_FhGFS", 6) == 0;
    if (is && ioctl(opened, _IOR('f', 25, layout), &layout) == 0 && layout.chunk > 0 && layout.targets > 0
        && (layout.pattern == RAID0 || layout.pattern == BUDDY_MIRROR)) {
        *found = whole(layout.chunk, layout.targets);
        *why = NULL;
    }
    original_close(opened);
    return is || type == SUPER;
}

/* RATIONALE: a file system that has no such attributes says so in one of these ways. Any other error is no answer, and
 * [home] would be a guess. */
static bool has_no_attributes(int error)
{
    return error == ENODATA || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EPERM;
}

const char *striping_of(const char *path, int64_t home_strip, int64_t home_servers, struct striped *found)
{
    struct statfs system;
    const long type = statfs(path, &system) == 0 ? (long)system.f_type : 0;
    const char *why = NULL;
    char *value = malloc(LONGEST + 1);
    bool answered = value == NULL;
    for (size_t i = 0; !answered && i < sizeof attributes / sizeof *attributes; i++) {
        const ssize_t size = getxattr(path, attributes[i].name, value, LONGEST);
        answered = size > 0 || type == attributes[i].system || (size < 0 && !has_no_attributes(errno));
        if (size > 0) {
            value[size] = '\0';
            why = attributes[i].read(path, value, (size_t)size, home_servers, found);
        } else if (answered)
            why = type == attributes[i].system ? attributes[i].missing : not_known;
    }
    if (value == NULL)
        why = not_known;
    free(value);
    if (!answered && !is_on_beegfs(path, type, found, &why)) {
        *found = whole(home_strip, home_servers);
        why = NULL;
    }
    return why;
}
