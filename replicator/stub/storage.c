#define _GNU_SOURCE
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "locks.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* of all architectures; older headers do not have it */
#endif

enum {
    SLICES = 10, /* of a second. RATIONALE: they are counted, so that a process that was stopped or had no turn has not waited */
    STACK_BYTES = 256 << 10,
    PLACES = STATE_PLACES / 2, /* for each patience; the last one is that of all storage */
    MOVED_BYTES = 1 << 20,     /* at a time, within the seconds that are waited */
    HINTED_BYTES = 1 << 20     /* the kernel takes not much more at once */
};

/* ---- what is known of storage ------------------------------------------------------------------------------------------ */

static uint64_t born; /* seconds since 1970 */

__attribute__((constructor)) static void note_birth(void) { born = (uint64_t)time(NULL); }

/* Of the directory of a component. */
static uint32_t hash_of(const char *path) { return crc32c(0, path, (size_t)(strrchr(path, '/') - path)); }

/* Hashes of directories of which this process knows that they are on the node's own file systems, or that they are
 * not; 0: none. */
static uint32_t own[PLACES], remote[PLACES];
static bool any_remote;

static bool is_in(const uint32_t *hashes, uint32_t hash)
{
    return __atomic_load_n(&hashes[hash % PLACES], __ATOMIC_RELAXED) == hash;
}

static bool is_own(const char *path) { return is_in(own, hash_of(path)); }

bool storage_remote(const char *path)
{
    return __atomic_load_n(&any_remote, __ATOMIC_RELAXED) && !is_own(path);
}

static bool names_network(const char *type)
{
    static const char *const types[] = {"fuse", "nfs", "ceph", "lustre", "pvfs2", "beegfs", "gpfs", "cifs", "smb3", "9p", "afs"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(type, types[i], strlen(types[i])) == 0)
            return true;
    return false;
}

/* Whether there is a mount of which this is true, or none can be seen. */
static bool any_mount(bool (*is)(const char *type, dev_t device, dev_t wanted), dev_t wanted)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = mounts == NULL;
    while (!found && getline(&line, &room, mounts) > 0) {
        unsigned high, low;
        const char *type = strstr(line, " - ");
        found = type != NULL && sscanf(line, "%*d %*d %u:%u", &high, &low) == 2
            && is(type + strlen(" - "), makedev(high, low), wanted);
    }
    free(line);
    if (mounts != NULL)
        fclose(mounts);
    return found;
}

static bool is_remote(const char *type, dev_t device, dev_t wanted) { return device == wanted && names_network(type); }

static bool is_fuse(const char *type, dev_t device, dev_t wanted)
{
    (void)device, (void)wanted;
    return strncmp(type, "fuse.", 5) == 0 || strncmp(type, "fuse ", 5) == 0;
}

/* RATIONALE: of the list of mounts. statfs() asks servers, and of some file systems those, too, that do not concern
 * the file. */
static bool by_network(dev_t device) { return any_mount(is_remote, device); }

static void note_kind(const char *path, dev_t device)
{
    const uint32_t hash = hash_of(path);
    if (is_in(own, hash) || is_in(remote, hash))
        return;
    const bool far = by_network(device);
    __atomic_store_n(&(far ? remote : own)[hash % PLACES], hash, __ATOMIC_RELAXED);
    if (far)
        __atomic_store_n(&any_remote, true, __ATOMIC_RELAXED);
}

static bool lately(const uint64_t *place)
{
    const uint64_t then = __atomic_load_n(place, __ATOMIC_RELAXED);
    return then != 0 && (uint64_t)time(NULL) - then < AWAY_SECONDS;
}

/* RATIONALE: a program asks no storage twice that did not answer: it may last long, and the storage come and go. Where
 * its writes wait, though, each wish to bring them home counts. */
static bool tells_away(const uint64_t *place, enum patience patience)
{
    return lately(place) || (patience == HURRIED && __atomic_load_n(place, __ATOMIC_RELAXED) >= born);
}

static bool away(const struct loaded_map *map, const char *path, enum patience patience)
{
    const uint64_t *places = map->away + patience * PLACES;
    return tells_away(&places[hash_of(path) % (PLACES - 1)], patience) || tells_away(&places[PLACES - 1], patience);
}

static void note_away(const struct loaded_map *map, const char *path, enum patience patience)
{
    uint64_t *places = map->away + patience * PLACES, now = (uint64_t)time(NULL);
    const uint32_t mine = hash_of(path) % (PLACES - 1);
    bool others = false;
    for (uint32_t i = 0; i < PLACES - 1; i++)
        others = others || (i != mine && lately(&places[i]));
    __atomic_store_n(&places[mine], now, __ATOMIC_RELAXED);
    if (others)
        __atomic_store_n(&places[PLACES - 1], now, __ATOMIC_RELAXED);
}

/* ---- calls that may be left behind ------------------------------------------------------------------------------------- */

struct job {
    void (*work)(struct job *);
    pthread_mutex_t mutex; /* of the two that follow */
    pthread_cond_t change;
    bool ended, left;      /* the thread is done; nobody waits for it */
    int fd, flags, error;  /* `error` 0 or an errno */
    bool opens;            /* `fd` is the job's */
    int lock;              /* is the job's; -1: none */
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
    const bool left = job->left;
    pthread_cond_signal(&job->change);
    pthread_mutex_unlock(&job->mutex);
    if (left)
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

/* Whether it ends within these seconds, and before somebody else finds that the storage is away. *slow: it took more
 * than a slice. */
static bool ends_within(const struct loaded_map *map, struct job *job, int seconds, enum patience patience, bool *slow)
{
    pthread_mutex_lock(&job->mutex);
    for (int slice = 0; !job->ended && slice < seconds * SLICES && !away(map, job->path, patience); slice++) {
        wait_a_slice(job);
        *slow = *slow || slice > 0;
    }
    const bool ended = job->ended;
    pthread_mutex_unlock(&job->mutex);
    return ended;
}

/* It is not waited for any more; `lock` as in struct component_file. False: it has just ended. */
static bool leave(struct job *job, int lock)
{
    pthread_mutex_lock(&job->mutex);
    job->left = !job->ended;
    if (job->left && lock >= 0)
        job->lock = lock_left(lock);
    const bool left = job->left;
    pthread_mutex_unlock(&job->mutex);
    return left;
}

/* RATIONALE: an error after a while is what a client makes of a server that is gone. */
static bool means_away(int error)
{
    return error != 0 && error != ENOENT && error != EACCES && error != ENOMEM && error != ENOSPC && error != EDQUOT;
}

static bool is_there(const struct loaded_map *, const char *path);

static int seconds_for(const struct loaded_map *map, enum patience patience)
{
    return patience == HURRIED ? ANSWER_SECONDS : lately(&map->away[PLACES - 1]) ? PROBE_SECONDS : PATIENT_SECONDS;
}

/* Does *job, which may be NULL. 0 or an errno. *job is NULL when it was left behind. `lasting`: not as long as the
 * storage is there. `lock` as in struct component_file. */
static int done(const struct loaded_map *map, struct job **job, enum patience patience, bool lasting, int lock)
{
    char path[PATH_MAX];
    bool slow = false, ended;
    if (*job == NULL)
        return ENOMEM;
    if (is_own((*job)->path) || !start_thread(*job)) {
        (*job)->work(*job);
        return (*job)->error;
    }
    do
        ended = ends_within(map, *job, seconds_for(map, patience), patience, &slow);
    while (!ended && lasting && !away(map, (*job)->path, patience) && is_there(map, (*job)->path));
    snprintf(path, sizeof path, "%s", (*job)->path);
    ended = ended || !leave(*job, lock);
    if (!ended || (slow && means_away((*job)->error)))
        for (int each = HURRIED; each <= (int)patience; each++)
            note_away(map, path, each);
    if (ended)
        return (*job)->error;
    *job = NULL;
    return ETIMEDOUT;
}

/* ---- asking by another process ----------------------------------------------------------------------------------------- */

static bool has_fuse;

static void look_for_fuse(void) { has_fuse = any_mount(is_fuse, 0); }

/* RATIONALE: with the memory of the thread, which waits: it calls nothing that a library could have in its hands. It
 * asks only where it could close the program's descriptors (Linux 5.9): locks would last as long as it waits. */
static int look_apart(void *path)
{
    struct statx found;
    if (syscall(SYS_close_range, 0, ~0U, 0) == 0)
        syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &found);
    syscall(SYS_exit_group, 0);
    return 0;
}

/* Has a process of its own look at a file by network first. RATIONALE: one that waits for an answer of FUSE cannot
 * end. This one is left behind, which the program could not be. Nobody is told when it ends: the program may wait for
 * its own children. */
static void ask(char *path)
{
    static pthread_once_t looked = PTHREAD_ONCE_INIT;
    pthread_once(&looked, look_for_fuse);
    if (!has_fuse || is_own(path))
        return;
    _Alignas(16) char stack[STACK_BYTES / 8];
    const pid_t child = clone(look_apart, stack + sizeof stack, CLONE_VM | CLONE_VFORK, path);
    while (child > 0 && waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR)
        continue;
}

/* ---- the calls --------------------------------------------------------------------------------------------------------- */

static void open_work(struct job *job)
{
    ask(job->path);
    job->fd = open(job->path, job->flags);
    job->opens = true;
    job->error = job->fd < 0 || fstat(job->fd, &job->found) != 0 ? errno : 0;
    if (job->error == 0)
        note_kind(job->path, job->found.st_dev);
}

int storage_open(const struct loaded_map *map, const char *path, int flags, enum patience patience, struct stat *found)
{
    errno = ETIMEDOUT;
    if (away(map, path, patience))
        return -1;
    struct job *job = make_job(open_work, path, -1, 0, 0);
    if (job != NULL)
        job->flags = flags;
    const int error = done(map, &job, patience, false, -1), fd = error == 0 ? job->fd : -1;
    if (error == 0) {
        *found = job->found;
        job->opens = false;
    }
    if (job != NULL)
        free_job(job);
    errno = error;
    return fd;
}

static void look_work(struct job *job)
{
    ask(job->path);
    job->error = lstat(job->path, &job->found) != 0 || faccessat(AT_FDCWD, job->path, R_OK | W_OK, AT_EACCESS) != 0 ? errno : 0;
    if (job->error == 0)
        note_kind(job->path, job->found.st_dev);
}

int storage_look(const struct loaded_map *map, const char *path, enum patience patience, struct stat *found)
{
    if (away(map, path, patience))
        return ETIMEDOUT;
    struct job *job = make_job(look_work, path, -1, 0, 0);
    const int error = done(map, &job, patience, false, -1);
    if (error == 0)
        *found = job->found;
    if (job != NULL)
        free_job(job);
    return error;
}

static bool is_there(const struct loaded_map *map, const char *path)
{
    struct job *job = make_job(look_work, path, -1, 0, 0);
    bool slow = false;
    if (job == NULL || !start_thread(job)) {
        if (job != NULL)
            free_job(job);
        return true;
    }
    const bool ended = ends_within(map, job, PROBE_SECONDS, PATIENT, &slow) || !leave(job, -1);
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

/* Moves a job's memory, as many calls as it takes. */
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

/* Where parts of memory have come to. */
struct place {
    const struct iovec *part;
    size_t done; /* of it */
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

/* Moves the next `left` bytes of the parts, some at a time; job->work says whereto. */
static int move(const struct component_file *file, void (*work)(struct job *), struct place *place, int64_t left, int64_t offset,
                const struct hint *hints, int hint_count)
{
    int error = away(file->map, file->path, file->patience) ? ETIMEDOUT : 0;
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
        error = done(file->map, &job, file->patience, false, file->lock);
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
    if (away(file->map, file->path, file->patience))
        return ETIMEDOUT;
    struct job *job = make_job(begin ? begin_work : sync_work, file->path, file->fd, 0, 0);
    const int error = done(file->map, &job, file->patience, !begin, file->lock);
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
    else if (!away(map, path, HURRIED) && (job = make_job(close_work, path, fd, 0, 0)) != NULL)
        done(map, &job, HURRIED, false, -1);
    if (job != NULL)
        free_job(job);
}
