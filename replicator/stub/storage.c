#define _GNU_SOURCE
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "locks.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* of all architectures; older headers do not have it */
#endif

#ifdef STATX_MNT_ID
#define MOUNT_OF_FILE STATX_MNT_ID
#else
#define MOUNT_OF_FILE 0
#endif

enum {
    SLICES = 10, /* of a second. RATIONALE: counted, so that time in which the process was stopped does not count */
    STACK_BYTES = 256 << 10,
    PLACES = STATE_PLACES / 2, /* for each timeout; the last one is that of all storage */
    MOVED_BYTES = 1 << 20,     /* at a time, within one timeout */
    HINTED_BYTES = 1 << 20     /* the kernel fetches little more at once */
};

/* ---- which storage is reachable ---------------------------------------------------------------------------------- */

static uint64_t born; /* seconds since 1970 */

__attribute__((constructor)) static void note_birth(void) { born = (uint64_t)time(NULL); }

/* Of the directory of a component. */
static uint32_t hash_of(const char *path) { return crc32c(0, path, (size_t)(strrchr(path, '/') - path)); }

/* Hashes of directories that this process knows to be on local file systems, or on network file
 * systems. 0: none. */
static uint32_t local[PLACES], remote[PLACES];
static bool any_remote;

static bool is_in(const uint32_t *hashes, uint32_t hash)
{
    return __atomic_load_n(&hashes[hash % PLACES], __ATOMIC_RELAXED) == hash;
}

static bool is_local(const char *path) { return is_in(local, hash_of(path)); }

bool storage_remote(const char *path)
{
    return __atomic_load_n(&any_remote, __ATOMIC_RELAXED) && !is_local(path);
}

/* Whether files of this type answer without a server. RATIONALE: a type that is missing here costs
 * a thread for each call; one that was missing in a list of the others kept programs from ending. */
static bool is_local_type(const char *type)
{
    static const char *const types[] = {
        "ext2",      "ext3",       "ext4",      "xfs",         "btrfs",    "bcachefs", "zfs",     "f2fs",     "jfs",
        "nilfs2",    "reiserfs",   "tmpfs",     "ramfs",       "rootfs",   "overlay",  "erofs",   "squashfs", "vfat",
        "exfat",     "ntfs3",      "iso9660",   "udf",         "proc",     "sysfs",    "cgroup",  "cgroup2",  "cpuset",
        "devtmpfs",  "devpts",     "mqueue",    "debugfs",     "tracefs",  "configfs", "fusectl", "nsfs",     "autofs",
        "hugetlbfs", "securityfs", "selinuxfs", "binfmt_misc", "efivarfs", "pstore",   "bpf",     "rpc_pipefs"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t length = strlen(types[i]);
        if (strncmp(type, types[i], length) == 0 && type[length] == ' ')
            return true;
    }
    return false;
}

/* A mount, as /proc/self/mountinfo has it. */
struct mount {
    uint64_t id;
    unsigned major, minor; /* of its files; those of btrfs may have others */
    const char *type;      /* up to a space */
};

/* Whether some mount fulfils the condition; `unreadable` if the mounts cannot be read. RATIONALE:
 * statfs() calls servers, on some file systems even those that do not have the file. */
static bool any_mount(bool (*is)(const struct mount *, const struct statx *), const struct statx *file, bool unreadable)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = mounts == NULL && unreadable;
    while (mounts != NULL && !found && getline(&line, &room, mounts) > 0) {
        struct mount mount;
        const char *type = strstr(line, " - ");
        if (type == NULL || sscanf(line, "%" SCNu64 " %*d %u:%u", &mount.id, &mount.major, &mount.minor) != 3)
            continue;
        mount.type = type + strlen(" - ");
        found = is(&mount, file);
    }
    free(line);
    if (mounts != NULL)
        fclose(mounts);
    return found;
}

static bool is_remote_mount(const struct mount *mount, const struct statx *file)
{
    (void)file;
    return !is_local_type(mount->type);
}

static bool is_local_mount_of(const struct mount *mount, const struct statx *file)
{
#ifdef STATX_MNT_ID
    if (file->stx_mask & STATX_MNT_ID)
        return mount->id == file->stx_mnt_id && is_local_type(mount->type);
#endif
    return mount->major == file->stx_dev_major && mount->minor == file->stx_dev_minor && is_local_type(mount->type);
}

/* Notes whether a file, which has just answered, is on a local file system. `fd`: -1, or it is open. */
static void note_kind(const char *path, int fd)
{
    const uint32_t hash = hash_of(path);
    if (is_in(local, hash) || is_in(remote, hash))
        return;
    struct statx found;
    const int flags = (fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW) | AT_STATX_DONT_SYNC;
    const bool network = statx(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path, flags, MOUNT_OF_FILE, &found) != 0
        || !any_mount(is_local_mount_of, &found, false);
    __atomic_store_n(&(network ? remote : local)[hash % PLACES], hash, __ATOMIC_RELAXED);
    if (network)
        __atomic_store_n(&any_remote, true, __ATOMIC_RELAXED);
}

static bool recently(const uint64_t *place)
{
    const uint64_t then = __atomic_load_n(place, __ATOMIC_RELAXED);
    return then != 0 && (uint64_t)time(NULL) - then < UNREACHABLE_SECONDS;
}

/* RATIONALE: a program does not call storage again that did not answer, since the program may run
 * long while the storage comes and goes. But where its newest bytes are there, every write-back
 * tries again. */
static bool counts_as_unreachable(const uint64_t *place, enum timeout timeout)
{
    return recently(place) || (timeout == TIMEOUT_SHORT && __atomic_load_n(place, __ATOMIC_RELAXED) >= born);
}

static bool unreachable(const struct loaded_map *map, const char *path, enum timeout timeout)
{
    const uint64_t *places = map->unreachable + timeout * PLACES;
    return counts_as_unreachable(&places[hash_of(path) % (PLACES - 1)], timeout)
        || counts_as_unreachable(&places[PLACES - 1], timeout);
}

static void note_unreachable(const struct loaded_map *map, const char *path, enum timeout timeout)
{
    uint64_t *places = map->unreachable + timeout * PLACES, now = (uint64_t)time(NULL);
    const uint32_t mine = hash_of(path) % (PLACES - 1);
    bool others = false;
    for (uint32_t i = 0; i < PLACES - 1; i++)
        others = others || (i != mine && recently(&places[i]));
    __atomic_store_n(&places[mine], now, __ATOMIC_RELAXED);
    if (others)
        __atomic_store_n(&places[PLACES - 1], now, __ATOMIC_RELAXED);
}

/* ---- calls that may be abandoned --------------------------------------------------------------------------------- */

struct job {
    void (*work)(struct job *);
    pthread_mutex_t mutex; /* of the two that follow */
    pthread_cond_t change;
    bool ended, abandoned; /* the thread is done; nobody waits for it */
    int fd, flags, error;  /* `error`: 0 or an errno */
    bool opens;            /* `fd` belongs to the job */
    int lock;              /* belongs to the job; -1: none */
    struct stat found;
    size_t length;
    off_t offset;
    struct hint *hints;
    int hint_count;
    char *path, *memory;
};

static void free_job(struct job *job)
{
    if (job->opens && job->fd >= 0)
        close(job->fd);
    if (job->lock >= 0)
        close(job->lock);
    pthread_cond_destroy(&job->change);
    pthread_mutex_destroy(&job->mutex);
    free(job->hints);
    free(job->path);
    free(job->memory);
    free(job);
}

/* NULL: out of memory. */
static struct job *make_job(void (*work)(struct job *), const char *path, int fd, size_t length, int hints)
{
    struct job *job = calloc(1, sizeof *job);
    pthread_condattr_t clock;
    if (job == NULL)
        return NULL;
    job->work = work;
    job->fd = fd;
    job->lock = -1;
    job->length = length;
    job->path = strdup(path);
    job->memory = malloc(length + 1);
    job->hints = calloc((size_t)hints + 1, sizeof *job->hints);
    job->hint_count = hints;
    pthread_mutex_init(&job->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&job->change, &clock);
    pthread_condattr_destroy(&clock);
    if (job->path != NULL && job->memory != NULL && job->hints != NULL)
        return job;
    free_job(job);
    return NULL;
}

static void *run_job(void *argument)
{
    struct job *job = argument;
    job->work(job);
    pthread_mutex_lock(&job->mutex);
    job->ended = true;
    const bool abandoned = job->abandoned;
    pthread_cond_signal(&job->change);
    pthread_mutex_unlock(&job->mutex);
    if (abandoned)
        free_job(job);
    return NULL;
}

static bool start_thread(struct job *job)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread, &attributes, run_job, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

static void wait_a_slice(struct job *job)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000000000 / SLICES;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&job->change, &job->mutex, &until);
}

/* Whether the job ends within these seconds, and before another process finds the storage
 * unreachable. *slow: it took more than a slice. */
static bool ends_within(const struct loaded_map *map, struct job *job, int seconds, enum timeout timeout, bool *slow)
{
    pthread_mutex_lock(&job->mutex);
    for (int slice = 0; !job->ended && slice < seconds * SLICES && !unreachable(map, job->path, timeout); slice++) {
        wait_a_slice(job);
        *slow = *slow || slice > 0;
    }
    const bool ended = job->ended;
    pthread_mutex_unlock(&job->mutex);
    return ended;
}

/* Stops waiting for the job; `lock` as in struct component_file. False: it has just ended. */
static bool abandon(struct job *job, int lock)
{
    pthread_mutex_lock(&job->mutex);
    job->abandoned = !job->ended;
    if (job->abandoned && lock >= 0)
        job->lock = lock_abandoned(lock);
    const bool abandoned = job->abandoned;
    pthread_mutex_unlock(&job->mutex);
    return abandoned;
}

/* RATIONALE: a client may report an error, after a while, for a server that is gone. */
static bool means_unreachable(int error)
{
    return error != 0 && error != ENOENT && error != EACCES && error != ENOMEM && error != ENOSPC && error != EDQUOT;
}

static bool storage_answers(const struct loaded_map *, const char *path);

static int seconds_for(const struct loaded_map *map, enum timeout timeout)
{
    if (timeout == TIMEOUT_SHORT)
        return SHORT_SECONDS;
    return recently(&map->unreachable[PLACES - 1]) ? PROBE_SECONDS : LONG_SECONDS;
}

/* Does *job, which may be NULL. 0 or an errno. *job is NULL afterwards if it was abandoned.
 * `lasting`: waits as long as the storage answers other calls. `lock` as in struct component_file.
 */
static int perform(const struct loaded_map *map, struct job **job, enum timeout timeout, bool lasting, int lock)
{
    char path[PATH_MAX];
    bool slow = false, ended;
    if (*job == NULL)
        return ENOMEM;
    if (is_local((*job)->path) || !start_thread(*job)) {
        (*job)->work(*job);
        return (*job)->error;
    }
    do
        ended = ends_within(map, *job, seconds_for(map, timeout), timeout, &slow);
    while (!ended && lasting && !unreachable(map, (*job)->path, timeout) && storage_answers(map, (*job)->path));
    snprintf(path, sizeof path, "%s", (*job)->path);
    ended = ended || !abandon(*job, lock);
    if (!ended || (slow && means_unreachable((*job)->error)))
        for (int each = TIMEOUT_SHORT; each <= (int)timeout; each++)
            note_unreachable(map, path, each);
    if (ended)
        return (*job)->error;
    *job = NULL;
    return ETIMEDOUT;
}

/* ---- examining a file in another process ------------------------------------------------------------------------- */

static bool has_remote;

static void find_remote(void) { has_remote = any_mount(is_remote_mount, NULL, true); }

/* Whether this node has a file system that waits for a server. */
static bool any_waits(void)
{
    static pthread_once_t looked = PTHREAD_ONCE_INIT;
    pthread_once(&looked, find_remote);
    return has_remote;
}

/* RATIONALE: this runs in the memory of the thread, which waits, so it calls no library function.
 * It examines the file only if it could close the program's descriptors (Linux 5.9): otherwise the
 * program's locks would last as long as this process waits. */
static int examine_and_exit(void *path)
{
    struct statx found;
    if (syscall(SYS_close_range, 0, ~0U, 0) == 0)
        syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &found);
    syscall(SYS_exit_group, 0);
    return 0;
}

/* Has a child process examine a file on network storage first. RATIONALE: a process cannot end while
 * one of its threads waits in the kernel for a server, as those of FUSE and Lustre do. The child can
 * be abandoned, and the program could not. The child's end sends no signal, since the program may
 * wait for its own children. */
static void examine_in_child(char *path)
{
    if (!any_waits() || is_local(path))
        return;
    _Alignas(16) char stack[STACK_BYTES / 8];
    const pid_t child = clone(examine_and_exit, stack + sizeof stack, CLONE_VM | CLONE_VFORK, path);
    while (child > 0 && waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR)
        continue;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static void open_work(struct job *job)
{
    examine_in_child(job->path);
    job->fd = open(job->path, job->flags);
    job->opens = true;
    job->error = job->fd < 0 || fstat(job->fd, &job->found) != 0 ? errno : 0;
    if (job->error == 0)
        note_kind(job->path, job->fd);
}

int storage_open(const struct loaded_map *map, const char *path, int flags, enum timeout timeout, struct stat *found)
{
    errno = ETIMEDOUT;
    if (unreachable(map, path, timeout))
        return -1;
    struct job *job = make_job(open_work, path, -1, 0, 0);
    if (job != NULL)
        job->flags = flags;
    const int error = perform(map, &job, timeout, false, -1), fd = error == 0 ? job->fd : -1;
    if (error == 0) {
        *found = job->found;
        job->opens = false;
    }
    if (job != NULL)
        free_job(job);
    errno = error;
    return fd;
}

static void examine_work(struct job *job)
{
    examine_in_child(job->path);
    job->error =
        lstat(job->path, &job->found) != 0 || faccessat(AT_FDCWD, job->path, R_OK | W_OK, AT_EACCESS) != 0 ? errno : 0;
    if (job->error == 0)
        note_kind(job->path, -1);
}

int storage_examine(const struct loaded_map *map, const char *path, enum timeout timeout, struct stat *found)
{
    if (unreachable(map, path, timeout))
        return ETIMEDOUT;
    struct job *job = make_job(examine_work, path, -1, 0, 0);
    const int error = perform(map, &job, timeout, false, -1);
    if (error == 0)
        *found = job->found;
    if (job != NULL)
        free_job(job);
    return error;
}

bool storage_responds(const char *directory, enum timeout timeout)
{
    static uint64_t places[2 * PLACES];
    static const struct loaded_map own = {.unreachable = places};
    char path[PATH_MAX];
    struct stat ignored;
    return !any_waits() || snprintf(path, sizeof path, "%s/.", directory) >= (int)sizeof path || is_local(path)
        || storage_examine(&own, path, timeout, &ignored) != ETIMEDOUT;
}

static bool storage_answers(const struct loaded_map *map, const char *path)
{
    struct job *job = make_job(examine_work, path, -1, 0, 0);
    bool slow = false;
    if (job == NULL || !start_thread(job)) {
        if (job != NULL)
            free_job(job);
        return true;
    }
    const bool ended = ends_within(map, job, PROBE_SECONDS, TIMEOUT_LONG, &slow) || !abandon(job, -1);
    if (ended)
        free_job(job);
    return ended;
}

void hint_give(const struct hint *hint)
{
    for (int64_t given = 0; given < hint->length; given += HINTED_BYTES)
        posix_fadvise(hint->fd, hint->start + given,
                      hint->length - given < HINTED_BYTES ? hint->length - given : HINTED_BYTES, POSIX_FADV_WILLNEED);
}

/* Moves a job's memory, in as many calls as it takes. */
static void move_work(struct job *job, ssize_t (*move)(struct job *, size_t done))
{
    for (size_t moved = 0; moved < job->length;) {
        const ssize_t got = move(job, moved);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            job->error = got < 0 ? errno : EIO;
            return;
        }
        moved += (size_t)got;
    }
}

static ssize_t read_some(struct job *job, size_t done)
{
    return pread(job->fd, job->memory + done, job->length - done, job->offset + (off_t)done);
}

static ssize_t write_some(struct job *job, size_t done)
{
    return pwrite(job->fd, job->memory + done, job->length - done, job->offset + (off_t)done);
}

static void read_work(struct job *job)
{
    for (int i = 0; i < job->hint_count; i++)
        hint_give(&job->hints[i]);
    move_work(job, read_some);
}

static void write_work(struct job *job) { move_work(job, write_some); }

/* A position in the parts of memory. */
struct place {
    const struct iovec *part;
    size_t done; /* bytes of it */
};

/* Copies between a job's memory and the parts from a place on. */
static void copy(struct place *place, char *memory, size_t length, bool out)
{
    while (length > 0) {
        const size_t left = place->part->iov_len - place->done, some = left < length ? left : length;
        char *part = (char *)place->part->iov_base + place->done;
        memcpy(out ? part : memory, out ? memory : part, some);
        memory += some;
        length -= some;
        place->done += some;
        if (place->done == place->part->iov_len)
            *place = (struct place){place->part + 1, 0};
    }
}

/* Moves the next `left` bytes of the parts, some at a time; `work` says in which direction. */
static int move(const struct component_file *file, void (*work)(struct job *), struct place *place, int64_t left,
                int64_t offset, const struct hint *hints, int hint_count)
{
    int error = unreachable(file->map, file->path, file->timeout) ? ETIMEDOUT : 0;
    while (error == 0 && left > 0) {
        const int64_t some = left < MOVED_BYTES ? left : MOVED_BYTES;
        struct job *job = make_job(work, file->path, file->fd, (size_t)some, hint_count);
        if (job != NULL) {
            job->offset = offset;
            for (int i = 0; i < hint_count; i++)
                job->hints[i] = hints[i];
            if (work == write_work)
                copy(place, job->memory, job->length, false);
        }
        error = perform(file->map, &job, file->timeout, false, file->lock);
        if (error == 0 && work == read_work)
            copy(place, job->memory, job->length, true);
        if (job != NULL)
            free_job(job);
        hint_count = 0;
        offset += some;
        left -= some;
    }
    return error;
}

static int64_t length_of(const struct iovec *parts, int count)
{
    int64_t length = 0;
    for (int i = 0; i < count; i++)
        length += (int64_t)parts[i].iov_len;
    return length;
}

int storage_read(const struct component_file *file, const struct iovec *parts, int count, int64_t offset,
                 const struct hint *hints, int hint_count)
{
    struct place place = {parts, 0};
    return move(file, read_work, &place, length_of(parts, count), offset, hints, hint_count);
}

int storage_write(const struct component_file *file, const struct iovec *parts, int count, int64_t offset)
{
    struct place place = {parts, 0};
    return move(file, write_work, &place, length_of(parts, count), offset, NULL, 0);
}

static void sync_work(struct job *job) { job->error = fdatasync(job->fd) == 0 ? 0 : errno; }

static void begin_work(struct job *job) { sync_file_range(job->fd, 0, 0, SYNC_FILE_RANGE_WRITE); }

int storage_sync(const struct component_file *file, bool begin)
{
    if (unreachable(file->map, file->path, file->timeout))
        return ETIMEDOUT;
    struct job *job = make_job(begin ? begin_work : sync_work, file->path, file->fd, 0, 0);
    const int error = perform(file->map, &job, file->timeout, !begin, file->lock);
    if (job != NULL)
        free_job(job);
    return error;
}

static void close_work(struct job *job) { close(job->fd); }

void storage_close(const struct loaded_map *map, const char *path, int fd)
{
    struct job *job = NULL;
    if (!storage_remote(path))
        close(fd);
    else if (!unreachable(map, path, TIMEOUT_SHORT) && (job = make_job(close_work, path, fd, 0, 0)) != NULL)
        perform(map, &job, TIMEOUT_SHORT, false, -1);
    if (job != NULL)
        free_job(job);
}
