/* The ioctls by which BeeGFS's client says how a file is striped and makes one on preferred targets. Structures and
 * numbers: client_module/include/uapi/beegfs_client.h (BeeGFS 8.3). How the server chooses:
 * DirInode::createFileStripePatternUnlocked (meta), TargetCapacityPools::chooseStorageNodesWithPref (common): the
 * preferred targets that exist, in turn, beginning with any; at most the directory's number of targets.
 *
 * RATIONALE: FUSE hands over only what the number of an ioctl says, so what pointers refer to, and what _IOR reads, is
 * read in the caller's memory. Targets have the numbers 1, 2 ...; 0 ends a list. The file pools/NUMBER has the targets
 * of a storage pool. */
#define _GNU_SOURCE
#include "striping_fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

enum { RAID0 = 1, REGULAR = 8, LONGEST = 4096 };

struct stripe_info {
    unsigned pattern, chunk;
    uint16_t targets;
};
struct stripe_target {
    uint32_t index, target, primary, secondary, primary_node, secondary_node;
    char primary_alias[256], secondary_alias[256];
};
struct entry_info {
    uint32_t owner;
    char parent[27], entry[27];
    int kind, features;
};
struct make_file {
    uint32_t owner;
    const char *grandparent;
    int grandparent_length;
    const char *parent;
    int parent_length, parent_mirrored;
    const char *parent_name;
    int parent_name_length;
    const char *name;
    int name_length, kind;
    char *symlink;
    int symlink_length, mode;
    uid_t user;
    gid_t group;
    int targets;
    uint16_t *preferred;
    int preferred_length;
    uint16_t pool;
};

#define TEST_IS_BEEGFS _IOR('f', 22, char[6])
#define GET_STRIPEINFO _IOR('f', 25, struct stripe_info)
#define GET_STRIPETARGET_V2 _IOR('f', 26, struct stripe_target)
#define CREATE_FILE_V3 _IOW('f', 29, struct make_file)
#define GETENTRYINFO _IOR('f', 31, struct entry_info)

static int from_caller(void *to, const void *from, size_t size)
{
    const struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
    return process_vm_readv(fuse_get_context()->pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -EFAULT;
}

static int create(const char *directory, const struct make_file *wanted)
{
    char name[256], parent[27], path[LONGEST];
    uint16_t preferred[MOST_STRIPES + 1];
    struct layout layout = {.strip = beegfs.strip};
    const int count = wanted->targets;
    if (wanted->name_length < 2 || wanted->name_length > (int)sizeof name || wanted->kind != REGULAR)
        return -EINVAL;
    if (count < 1 || count > MOST_STRIPES || wanted->preferred_length != (count + 1) * (int)sizeof *preferred)
        return -EINVAL;
    if (wanted->parent_length < 2 || wanted->parent_length > (int)sizeof parent)
        return -EINVAL;
    if (from_caller(name, wanted->name, (size_t)wanted->name_length)
        || from_caller(parent, wanted->parent, (size_t)wanted->parent_length)
        || from_caller(preferred, wanted->preferred, (size_t)wanted->preferred_length))
        return -EFAULT;
    if (name[wanted->name_length - 1] || parent[wanted->parent_length - 1] || preferred[count]
        || strcmp(parent, "1-5F000000-1"))
        return -EINVAL;
    const int start = rand() % count;
    for (int i = 0; i < count && layout.count < beegfs.count; i++) {
        const uint16_t target = preferred[(start + i) % count];
        if (target >= 1 && target <= targets() && usable(target - 1u) && in_pool(wanted->pool, target))
            layout.target[layout.count++] = target - 1u;
    }
    for (uint32_t target = 1; target <= targets() && !layout.count; target++)
        if (usable(target - 1) && in_pool(wanted->pool, target))
            layout.target[layout.count++] = target - 1;
    if (!layout.count)
        return -ENOSPC;
    snprintf(path, sizeof path, "%s/%s", strcmp(directory, "/") ? directory : "", name);
    const int failed = make(path, (mode_t)wanted->mode & 07777);
    return failed ? failed : give(path, &layout);
}

static int control(const char *path, unsigned command, const void *argument, void *data)
{
    struct layout layout;
    struct stripe_target *target = data;
    if (command == TEST_IS_BEEGFS) {
        memcpy(data, "_FhGFS", 6);
        return 0;
    }
    if (command == GETENTRYINFO) {
        *(struct entry_info *)data = (struct entry_info){.owner = 1, .parent = "root", .entry = "1-5F000000-1"};
        return 0;
    }
    if (command == CREATE_FILE_V3)
        return create(path, data);
    if (command != GET_STRIPEINFO && command != GET_STRIPETARGET_V2)
        return -ENOTTY;
    if (layout_of(path, &layout))
        return -EISDIR;
    if (command == GET_STRIPEINFO) {
        *(struct stripe_info *)data = (struct stripe_info){RAID0, layout.strip, (uint16_t)layout.count};
        return 0;
    }
    uint32_t index;
    if (from_caller(&index, argument, sizeof index) || index >= layout.count)
        return -EINVAL;
    *target = (struct stripe_target){.index = index, .target = layout.target[index] + 1, .primary_node = 1};
    return 0;
}

/* The directory's pattern, as beegfs-ctl --setpattern --chunksize=64k --numtargets=4 makes it. */
const struct kind beegfs = {.name = "beegfs", .strip = 1 << 16, .count = 4, .ioctl = control};
