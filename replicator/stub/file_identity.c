#define _GNU_SOURCE
#include "file_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "loadedmap.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

enum { MOST_MOUNTS = 64 /* that a process remembers */ };

/* ---- the file system --------------------------------------------------------------------------------------------- */

static const char *const local_types[] = {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay",
                                          "zfs", "f2fs", "bcachefs", "jfs", "vfat", "exfat"};

static enum file_reach reach_of(const char *type)
{
    for (size_t i = 0; i < sizeof local_types / sizeof *local_types; i++)
        if (strcmp(type, local_types[i]) == 0)
            return REACH_LOCAL;
    return strncmp(type, "fuse", 4) == 0 || strcmp(type, "virtiofs") == 0 ? REACH_FUSE : REACH_NETWORK;
}

/* A mount, by its number. */
struct mounted {
    uint64_t number, device;
    uint32_t system, reach;
};

/* The mount that a line of /proc/self/mountinfo describes. */
static bool parse_mount(const char *line, struct mounted *mount)
{
    char type[64], source[1024];
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(rest, " - %63s %1023s", type, source) != 2)
        return false;
    mount->reach = reach_of(type);
    mount->system = crc32c(0, type, strlen(type));
    /* RATIONALE: a local file system may be mounted from another device the next time. */
    if (mount->reach != REACH_LOCAL)
        mount->system = crc32c(mount->system, source, strlen(source));
    return true;
}

/* The mount of this number or, if that is 0, of this device. RATIONALE: statfs() asks servers, of some file systems all
 * of them, and waits for those that do not answer. */
static bool find_mount(struct mounted *mount)
{
    char line[8192];
    bool found = false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts != NULL && !found && fgets(line, sizeof line, mounts) != NULL) {
        unsigned long long number;
        unsigned major, minor;
        found = sscanf(line, "%llu %*u %u:%u ", &number, &major, &minor) == 3
            && (mount->number != 0 ? mount->number == number : mount->device == makedev(major, minor))
            && parse_mount(line, mount);
    }
    if (mounts != NULL)
        fclose(mounts);
    return found;
}

/* The file system of a mount, read once. A number is used again after an unmount, for another device. */
static void add_system(struct file_identity *file, uint64_t number)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct mounted known[MOST_MOUNTS];
    static unsigned count;
    struct mounted mount = {.number = number, .device = file->device};
    bool found = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; !found && i < count && i < MOST_MOUNTS; i++)
        if (known[i].number == number && known[i].device == file->device) {
            mount = known[i];
            found = true;
        }
    if (!found && find_mount(&mount)) {
        known[count++ % MOST_MOUNTS] = mount;
        found = true;
    }
    pthread_mutex_unlock(&lock);
    file->system = found ? mount.system : 0;
    file->reach = found ? mount.reach : REACH_UNKNOWN;
}

/* ---- examining --------------------------------------------------------------------------------------------------- */

static void add_handle(struct file_identity *file, int at, const char *path, int flags)
{
    union {
        struct file_handle_head {
            unsigned bytes;
            int type;
        } head;
        unsigned char all[sizeof(struct file_handle_head) + HANDLE_BYTES];
    } handle = {.head = {.bytes = HANDLE_BYTES}};
    int mount;
    if (file->reach == REACH_FUSE
        || name_to_handle_at(at, path, (struct file_handle *)&handle, &mount, flags) != 0)
        return;
    file->handle_type = handle.head.type;
    file->handle_bytes = handle.head.bytes;
    memcpy(file->handle, handle.all + sizeof handle.head, handle.head.bytes);
}

bool file_identify(int fd, const char *path, struct file_identity *file, struct statx *found)
{
    const int at = fd < 0 ? AT_FDCWD : fd, empty = fd < 0 ? 0 : AT_EMPTY_PATH;
    const char *name = fd < 0 ? path : "";
    if (statx(at, name, empty, STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, found) != 0)
        return false;
    *file = (struct file_identity){.device = makedev(found->stx_dev_major, found->stx_dev_minor),
                                   .inode = found->stx_ino};
    if (found->stx_mask & STATX_BTIME)
        file->birth_ns = found->stx_btime.tv_sec * INT64_C(1000000000) + found->stx_btime.tv_nsec;
    if (found->stx_mask & STATX_MNT_ID)
        add_system(file, found->stx_mnt_id);
    /* RATIONALE: statx() follows links, name_to_handle_at() only if it is told to. */
    add_handle(file, at, name, fd < 0 ? AT_SYMLINK_FOLLOW : empty);
    return true;
}

int file_hold(int directory, const char *path)
{
    return openat(directory, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static bool handles_known(const struct file_identity *one, const struct file_identity *other)
{
    return one->handle_bytes > 0 && other->handle_bytes > 0;
}

static bool handles_equal(const struct file_identity *one, const struct file_identity *other)
{
    return one->handle_type == other->handle_type && one->handle_bytes == other->handle_bytes
        && memcmp(one->handle, other->handle, one->handle_bytes) == 0;
}

static bool births_known(const struct file_identity *one, const struct file_identity *other)
{
    return one->birth_ns != 0 && other->birth_ns != 0;
}

static bool both_reach(const struct file_identity *one, const struct file_identity *other, enum file_reach reach)
{
    return one->reach == (uint32_t)reach && other->reach == (uint32_t)reach;
}

bool file_agrees(const struct file_identity *one, const struct file_identity *other)
{
    return one->inode == other->inode && (!births_known(one, other) || one->birth_ns == other->birth_ns)
        && (!handles_known(one, other) || handles_equal(one, other))
        && (one->reach == REACH_UNKNOWN || other->reach == REACH_UNKNOWN || one->reach == other->reach)
        && (!both_reach(one, other, REACH_LOCAL) || one->system == other->system);
}

bool file_same_here(const struct file_identity *noted, const struct file_identity *found)
{
    return noted->device == found->device && file_agrees(noted, found);
}

/* Whether mounts of one file system may have both. */
static bool of_one_network(const struct file_identity *one, const struct file_identity *other)
{
    const bool told = handles_known(one, other) || births_known(one, other);
    return told && one->system == other->system
        && (both_reach(one, other, REACH_NETWORK) || both_reach(one, other, REACH_FUSE));
}

/* Whether the file system of the noted file is mounted, too: then one with another device number is another one, such
 * as a clone or a snapshot. */
static bool is_mounted_beside(const struct file_identity *noted, const struct file_identity *found)
{
    struct mounted mount = {.device = noted->device};
    return both_reach(noted, found, REACH_LOCAL) && find_mount(&mount);
}

enum which_file file_compare(const struct noted_file *noted, const struct file_identity *found, const char *path)
{
    const struct file_identity *file = noted->file;
    if (!file_agrees(file, found))
        return FILE_OTHER;
    /* RATIONALE: after a restart of the node, or on another one, a device number says nothing by itself. */
    if (file->device == found->device && (noted->this_boot || handles_known(file, found)))
        return FILE_THIS;
    if (noted->this_boot && is_mounted_beside(file, found))
        return FILE_OTHER;
    return strcmp(noted->path, path) == 0 || of_one_network(file, found) ? FILE_THIS : FILE_UNKNOWN;
}
