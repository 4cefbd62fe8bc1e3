/* striping_fs lustre|beegfs BACKING DIRECTORY
 *
 * mounts in DIRECTORY, until it gets a signal. BACKING has
 *     names/       the name space: directories, and a file for each file, whose content is its layout
 *     target0/ ... the targets: INODE.NUMBER is an object, INODE that of the file in names
 *     defaults/    INODE of a directory: the layout of new files in it
 *     state0 ...   where one exists: "full", a write to the target has no space, or "inactive", it fails */
#define _GNU_SOURCE
#include "striping_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const struct kind *kind;
static const char *backing;
static uint32_t target_count, next_target;

enum { LONGEST = 4096 };
typedef char place[LONGEST];

/* An open file. */
struct handle {
    int name; /* in names */
    struct layout layout;
    int object[MOST_STRIPES];
};

static const char *named(place found, const char *path)
{
    snprintf(found, LONGEST, "%s/names%s", backing, path);
    return found;
}

static const char *object_at(place found, const struct layout *layout, ino_t inode, uint32_t number)
{
    snprintf(found, LONGEST, "%s/target%u/%ju.%u", backing, layout->target[number], (uintmax_t)inode, number);
    return found;
}

uint32_t targets(void)
{
    return target_count;
}

static int state_of(uint32_t target)
{
    place path;
    char text[16] = "";
    FILE *file;
    snprintf(path, LONGEST, "%s/state%u", backing, target);
    if (!(file = fopen(path, "r")))
        return 0;
    const int read = fscanf(file, "%15s", text);
    fclose(file);
    return read != 1 ? 0 : strcmp(text, "full") ? -EIO : -ENOSPC;
}

int usable(uint32_t target)
{
    return state_of(target) == 0;
}

int in_pool(unsigned pool, uint32_t number)
{
    place path;
    unsigned found;
    int has = !pool;
    snprintf(path, LONGEST, "%s/pools/%u", backing, pool);
    FILE *file = pool ? fopen(path, "r") : NULL;
    while (file && !has && fscanf(file, "%u", &found) == 1)
        has = found == number;
    if (file)
        fclose(file);
    return has;
}

static int read_layout(int name, struct layout *found)
{
    memset(found, 0, sizeof *found);
    return pread(name, found, sizeof *found, 0) == sizeof *found ? 0 : -ENODATA;
}

int layout_of(const char *path, struct layout *found)
{
    place name;
    const int file = open(named(name, path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return -errno;
    const int failed = read_layout(file, found);
    close(file);
    return failed;
}

int give(const char *path, const struct layout *wanted)
{
    place name, object;
    struct stat status;
    struct layout found;
    int failed = 0;
    if (wanted->count < 1 || wanted->count > MOST_STRIPES || !wanted->strip)
        return -EINVAL;
    for (uint32_t i = 0; i < wanted->count; i++) {
        if (wanted->target[i] >= target_count)
            return -EINVAL;
        if ((failed = state_of(wanted->target[i])))
            return failed;
        for (uint32_t j = 0; j < i && !wanted->again; j++)
            if (wanted->target[i] == wanted->target[j])
                return -EINVAL;
    }
    const int file = open(named(name, path), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return -errno;
    if (read_layout(file, &found) == 0)
        failed = -EEXIST;
    else if (fstat(file, &status))
        failed = -errno;
    for (uint32_t i = 0; !failed && i < wanted->count; i++) {
        const int made = open(object_at(object, wanted, status.st_ino, i), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        failed = made < 0 ? -errno : 0;
        if (made >= 0)
            close(made);
    }
    if (!failed && pwrite(file, wanted, sizeof *wanted, 0) != sizeof *wanted)
        failed = -EIO;
    close(file);
    return failed;
}

int make(const char *path, mode_t mode)
{
    place name;
    if (mknod(named(name, path), S_IFREG | (mode & 07777), 0))
        return -errno;
    return lchown(name, fuse_get_context()->uid, fuse_get_context()->gid) ? -errno : 0;
}

static int file_of_default(place found, const char *directory)
{
    place name;
    struct stat status;
    if (stat(named(name, directory), &status))
        return -errno;
    snprintf(found, LONGEST, "%s/defaults/%ju", backing, (uintmax_t)status.st_ino);
    return 0;
}

int default_of(const char *directory, struct layout *found)
{
    place name;
    const int failed = file_of_default(name, directory);
    const int file = failed ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return failed ? failed : -ENODATA;
    const int none = read_layout(file, found);
    close(file);
    return none;
}

int set_default(const char *directory, const struct layout *wanted)
{
    place name;
    const int failed = file_of_default(name, directory);
    const int file = failed ? -1 : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return failed ? failed : -errno;
    const ssize_t written = write(file, wanted, sizeof *wanted);
    close(file);
    return written == sizeof *wanted ? 0 : -EIO;
}

static int give_default(const char *path)
{
    place parent;
    struct layout layout = {.strip = kind->strip};
    snprintf(parent, LONGEST, "%s", path);
    strrchr(parent, '/')[parent[1] && strrchr(parent, '/') == parent] = '\0';
    if (default_of(parent, &layout) == 0) {
        const int failed = give(path, &layout);
        return failed == -EEXIST ? 0 : failed;
    }
    const uint32_t first = __atomic_fetch_add(&next_target, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < target_count && layout.count < kind->count; i++) /* the next ones that work */
        if (usable((first + i) % target_count))
            layout.target[layout.count++] = (first + i) % target_count;
    const int failed = layout.count ? give(path, &layout) : -ENOSPC;
    return failed == -EEXIST ? 0 : failed;
}

/* Bytes [start, stop) of a file are in strips on `count` objects, from `first` on. Strips count from the file's first
 * byte, so the objects of later parts have holes before their bytes, as Lustre's have. */
struct span {
    off_t start, stop, strip;
    uint32_t first, count;
};

/* The span that has a byte; or, if `byte` is less than 0, an object. */
static struct span span_of(const struct layout *layout, off_t byte, uint32_t number)
{
    struct span span = {0, INT64_MAX, layout->strip, 0, layout->count};
    for (uint32_t i = 0; i < layout->parts; i++) {
        const struct part *part = &layout->part[i];
        const off_t stop = part->stop < INT64_MAX ? (off_t)part->stop : INT64_MAX;
        span = (struct span){i ? span.stop : 0, stop, part->strip, i ? span.first + span.count : 0, part->count};
        if (byte < 0 ? number < span.first + span.count : byte < stop)
            break;
    }
    return span;
}

/* The end in object `number` of those of its bytes that are among the first `bytes` of a file. */
static off_t share(const struct layout *layout, uint32_t number, off_t bytes)
{
    const struct span span = span_of(layout, -1, number);
    const off_t cycle = span.strip * span.count, end = bytes < span.start ? span.start : bytes;
    const off_t within = end < span.stop ? end : span.stop;
    const off_t rest = within % cycle - span.strip * (number - span.first);
    return within / cycle * span.strip + (rest < 0 ? 0 : rest < span.strip ? rest : span.strip);
}

/* The end of a file whose object `number` has `bytes`. */
static off_t reach(const struct layout *layout, uint32_t number, off_t bytes)
{
    const struct span span = span_of(layout, -1, number);
    const off_t last = bytes - 1;
    if (!bytes)
        return 0;
    return (last / span.strip * span.count + number - span.first) * span.strip + last % span.strip + 1;
}

static off_t size_of(const struct layout *layout, ino_t inode, blkcnt_t *blocks)
{
    off_t size = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        place object;
        struct stat status;
        if (stat(object_at(object, layout, inode, i), &status))
            continue;
        const off_t end = reach(layout, i, status.st_size);
        size = end > size ? end : size;
        *blocks += status.st_blocks;
    }
    return size;
}

/* While there is BACKING/silent nothing is answered. What waits for a server that has read its
 * question cannot be killed; if the server were stopped before it reads, it could. */
static void keep_silent(void)
{
    place flag;
    snprintf(flag, LONGEST, "%s/silent", backing);
    while (access(flag, F_OK) == 0)
        usleep(10000);
}

static int on_getattr(const char *path, struct stat *found, struct fuse_file_info *info)
{
    place name;
    struct layout layout;
    keep_silent();
    const struct handle *handle = info ? (const struct handle *)(uintptr_t)info->fh : NULL;
    if (handle ? fstat(handle->name, found) : lstat(named(name, path), found))
        return -errno;
    if (!S_ISREG(found->st_mode))
        return 0;
    found->st_size = found->st_blocks = 0;
    if ((handle ? read_layout(handle->name, &layout) : layout_of(path, &layout)) == 0)
        found->st_size = size_of(&layout, found->st_ino, &found->st_blocks);
    return 0;
}

static int open_objects(struct handle *handle)
{
    struct stat status;
    if (handle->layout.count)
        return 0;
    if (read_layout(handle->name, &handle->layout) || fstat(handle->name, &status))
        return 0;
    for (uint32_t i = 0; i < handle->layout.count; i++) {
        place object;
        handle->object[i] = open(object_at(object, &handle->layout, status.st_ino, i), O_RDWR | O_CLOEXEC);
    }
    return 0;
}

static int on_open(const char *path, struct fuse_file_info *info)
{
    place name;
    keep_silent();
    int failed = (info->flags & O_ACCMODE) != O_RDONLY ? give_default(path) : 0;
    struct handle *handle = failed ? NULL : calloc(1, sizeof *handle);
    if (!handle)
        return failed ? failed : -ENOMEM;
    handle->name = open(named(name, path), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (handle->name < 0) {
        failed = -errno;
        free(handle);
        return failed;
    }
    info->fh = (uintptr_t)handle;
    return open_objects(handle);
}

static int on_release(const char *path, struct fuse_file_info *info)
{
    struct handle *handle = (struct handle *)(uintptr_t)info->fh;
    (void)path;
    for (uint32_t i = 0; i < handle->layout.count; i++)
        close(handle->object[i]);
    close(handle->name);
    free(handle);
    return 0;
}

static int on_mknod(const char *path, mode_t mode, dev_t device)
{
    (void)device;
    return S_ISREG(mode) ? make(path, mode) : -EPERM;
}

/* Writes to a file, or reads from it, strip by strip. */
static ssize_t move(struct handle *handle, char *to, const char *from, size_t length, off_t offset)
{
    size_t done = 0;
    open_objects(handle);
    while (done < length && handle->layout.count) {
        const off_t at = offset + (off_t)done;
        const struct span span = span_of(&handle->layout, at, 0);
        const uint32_t number = span.first + (uint32_t)(at / span.strip % span.count);
        const off_t strip = span.strip - at % span.strip, rest = span.stop - at;
        const size_t left = (size_t)(strip < rest ? strip : rest), part = length - done < left ? length - done : left;
        const off_t within = share(&handle->layout, number, at);
        const int state = state_of(handle->layout.target[number]);
        if (state == -EIO || (state && from))
            return state;
        const ssize_t moved = from ? pwrite(handle->object[number], from + done, part, within)
                                   : pread(handle->object[number], to + done, part, within);
        if (moved < 0 || (from && !moved))
            return moved < 0 ? -errno : -EIO;
        if (!from)
            memset(to + done + moved, 0, part - (size_t)moved); /* a hole, or the end of the file */
        done += from ? (size_t)moved : part;
    }
    return (ssize_t)done;
}

static int on_read(const char *path, char *to, size_t length, off_t offset, struct fuse_file_info *info)
{
    struct handle *handle = (struct handle *)(uintptr_t)info->fh;
    struct stat status;
    const int failed = on_getattr(path, &status, info);
    if (failed || offset >= status.st_size)
        return failed;
    if (offset + (off_t)length > status.st_size)
        length = (size_t)(status.st_size - offset);
    return (int)move(handle, to, NULL, length, offset);
}

static int on_write(const char *path, const char *from, size_t length, off_t offset, struct fuse_file_info *info)
{
    keep_silent();
    struct handle *handle = (struct handle *)(uintptr_t)info->fh;
    const ssize_t moved = move(handle, NULL, from, length, offset);
    (void)path;
    futimens(handle->name, (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}});
    return (int)moved;
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    place name, object;
    struct layout layout;
    struct stat status;
    (void)info;
    int failed = give_default(path);
    if (failed || (failed = layout_of(path, &layout)))
        return failed;
    if (stat(named(name, path), &status))
        return -errno;
    for (uint32_t i = 0; i < layout.count; i++) {
        const off_t own = size <= span_of(&layout, -1, i).start ? 0 : share(&layout, i, size);
        struct stat found;
        if (stat(object_at(object, &layout, status.st_ino, i), &found))
            return -errno;
        /* Only the object with the last byte grows. */
        if ((found.st_size > own || reach(&layout, i, own) == size) && truncate(object, own))
            return -errno;
    }
    return utimensat(AT_FDCWD, name, (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}}, 0) ? -errno : 0;
}

static int on_fallocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *info)
{
    struct handle *handle = (struct handle *)(uintptr_t)info->fh;
    (void)path;
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE))
        return -EOPNOTSUPP;
    for (uint32_t i = 0; i < handle->layout.count; i++) {
        const off_t start = share(&handle->layout, i, offset), stop = share(&handle->layout, i, offset + length);
        const int state = state_of(handle->layout.target[i]);
        if (state)
            return state;
        if (stop > start && fallocate(handle->object[i], mode, start, stop - start))
            return -errno;
    }
    futimens(handle->name, (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}});
    return 0;
}

static int on_fsync(const char *path, int data, struct fuse_file_info *info)
{
    struct handle *handle = (struct handle *)(uintptr_t)info->fh;
    (void)path;
    (void)data;
    for (uint32_t i = 0; i < handle->layout.count; i++)
        if (fsync(handle->object[i]))
            return -errno;
    return 0;
}

int drop(const char *path)
{
    place name, object;
    struct layout layout;
    struct stat status;
    if (lstat(named(name, path), &status))
        return -errno;
    if (S_ISREG(status.st_mode) && layout_of(path, &layout) == 0)
        for (uint32_t i = 0; i < layout.count; i++)
            unlink(object_at(object, &layout, status.st_ino, i));
    return unlink(name) ? -errno : 0;
}

static int on_rename(const char *from, const char *to, unsigned flags)
{
    place old, new;
    if (!flags)
        drop(to); /* fails for a directory, which rename treats */
    return renameat2(AT_FDCWD, named(old, from), AT_FDCWD, named(new, to), flags) ? -errno : 0;
}

static int on_mkdir(const char *path, mode_t mode)
{
    place name;
    if (mkdir(named(name, path), mode))
        return -errno;
    return lchown(name, fuse_get_context()->uid, fuse_get_context()->gid) ? -errno : 0;
}

static int on_rmdir(const char *path)
{
    place name;
    return rmdir(named(name, path)) ? -errno : 0;
}

static int on_symlink(const char *to, const char *path)
{
    place name;
    return symlink(to, named(name, path)) ? -errno : 0;
}

static int on_readlink(const char *path, char *to, size_t size)
{
    place name;
    const ssize_t length = readlink(named(name, path), to, size - 1);
    if (length < 0)
        return -errno;
    to[length] = '\0';
    return 0;
}

static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    place name;
    (void)info;
    return chmod(named(name, path), mode) ? -errno : 0;
}

static int on_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info)
{
    place name;
    (void)info;
    return lchown(named(name, path), user, group) ? -errno : 0;
}

static int on_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    place name;
    (void)info;
    return utimensat(AT_FDCWD, named(name, path), times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int on_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags)
{
    place name;
    DIR *directory = opendir(named(name, path));
    (void)offset;
    (void)info;
    (void)flags;
    if (!directory)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory));)
        fill(list, entry->d_name, &(struct stat){.st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type)}, 0, 0);
    closedir(directory);
    return 0;
}

static int on_statfs(const char *path, struct statvfs *found)
{
    keep_silent();
    (void)path;
    return statvfs(backing, found) ? -errno : 0;
}

static int is_directory(const char *path)
{
    place name;
    struct stat status;
    return lstat(named(name, path), &status) == 0 && S_ISDIR(status.st_mode);
}

static int on_getxattr(const char *path, const char *name, char *value, size_t size)
{
    return kind->get ? kind->get(path, is_directory(path), name, value, size) : -EOPNOTSUPP;
}

static int on_setxattr(const char *path, const char *name, const char *value, size_t size, int flags)
{
    (void)flags;
    return kind->set ? kind->set(path, is_directory(path), name, value, size) : -EOPNOTSUPP;
}

static int on_ioctl(const char *path, unsigned command, void *argument, struct fuse_file_info *info, unsigned flags,
                    void *data)
{
    (void)info;
    (void)flags;
    return kind->ioctl ? kind->ioctl(path, command, argument, data) : -ENOTTY;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    config->hard_remove = 0;
    return NULL;
}

/* RATIONALE: with `create`, libfuse would make mknod's files by it, and they would have a layout at once. */
static const struct fuse_operations OPERATIONS = {
    .init = on_init,         .getattr = on_getattr,   .open = on_open,         .release = on_release,
    .mknod = on_mknod,       .read = on_read,         .write = on_write,
    .truncate = on_truncate, .fsync = on_fsync,       .fallocate = on_fallocate, .unlink = drop,
    .rename = on_rename,     .mkdir = on_mkdir,       .rmdir = on_rmdir,       .symlink = on_symlink,
    .readlink = on_readlink, .chmod = on_chmod,       .chown = on_chown,       .utimens = on_utimens,
    .readdir = on_readdir,   .statfs = on_statfs,     .getxattr = on_getxattr, .setxattr = on_setxattr,
    .ioctl = on_ioctl,
};

int main(int argc, char **argv)
{
    static place options; /* fsname is how the stand-ins of tools find BACKING */
    char *words[] = {argv[0], (char *)"-f", (char *)"-o", options, argc > 3 ? argv[3] : NULL, NULL};
    if (argc != 4) {
        fprintf(stderr, "striping_fs: wants lustre|beegfs BACKING DIRECTORY\n");
        return 2;
    }
    kind = strcmp(argv[1], "beegfs") ? &lustre : &beegfs;
    backing = argv[2];
    for (place path; target_count < MOST_TARGETS; target_count++) {
        snprintf(path, LONGEST, "%s/target%u", backing, target_count);
        if (access(path, W_OK))
            break;
    }
    if (!target_count) {
        fprintf(stderr, "striping_fs: there is no %s/target0\n", backing);
        return 1;
    }
    umask(0);
    snprintf(options, LONGEST, "default_permissions,%sfsname=%s,subtype=%s_like",
             geteuid() == 0 ? "allow_other," : "", backing, kind->name);
    return fuse_main(5, words, &OPERATIONS, NULL);
}
