/* Records the POSIX calls of the process in a log of their own (rawlog.h), from MPI_Init on: calls
 * on regular files that an MPI_File_open of the process named, or that PDLA_TRACE_INCLUDE names.
 *
 * A signal handler may make a call and may have interrupted anything, also this file. If recording
 * the call needs a lock that its thread may hold, the call is dropped and counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "posix.h"
#include "recorder.h"

#define PRIVATE static __thread __attribute__((tls_model("initial-exec")))

static bool present; /* libpdla-posix.so is loaded */
static int on;       /* the log is open, and this is not the child of a fork */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
PRIVATE bool busy; /* the thread holds the mutex, or is about to take it */

static struct output output;
static struct rawlog_header *header; /* mapped, with the window after it */
static struct rawlog_record *window;
static uint64_t recorded;
static bool full;

void pdla_posix_present(void)
{
    present = true;
}

bool posix_wanted(void)
{
    return present;
}

static void leave_to_parent(void)
{
    on = false;
}

void posix_start(const struct output *made)
{
    output = *made;
    header = output_map(&output);
    if (!header)
        return;
    window = (struct rawlog_record *)((char *)header + RAWLOG_HEADER_SIZE);
    *header = (struct rawlog_header){.header_size = RAWLOG_HEADER_SIZE, .record_size = RAWLOG_RECORD_SIZE,
                                     .window_records = WINDOW_RECORDS, .pid = (int32_t)getpid()};
    memcpy(header->magic, RAWLOG_POSIX_MAGIC, sizeof header->magic);
    find_own_code();
    pthread_atfork(NULL, NULL, leave_to_parent);
    __atomic_store_n(&on, true, __ATOMIC_RELEASE);
}

static void lock(void)
{
    busy = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    busy = false;
}

void pdla_posix_drop(void)
{
    __atomic_add_fetch(&header->dropped, 1, __ATOMIC_RELAXED);
}

static void append(const struct rawlog_record *record)
{
    if (busy) {
        pdla_posix_drop();
        return;
    }
    lock();
    const int error = errno;
    const uint64_t appended = (uint64_t)(output.end - LOG_START_SIZE) / RAWLOG_RECORD_SIZE;
    if (recorded - appended == WINDOW_RECORDS && !full)
        full = !output_append(&output, window, RAWLOG_WINDOW_SIZE);
    errno = error;
    if (full) {
        pdla_posix_drop();
    } else {
        struct rawlog_record *place = &window[recorded % WINDOW_RECORDS];
        memcpy(&place->t_start, &record->t_start, sizeof *record - offsetof(struct rawlog_record, t_start));
        __atomic_store_n(&place->seq, ++recorded, __ATOMIC_RELEASE);
    }
    unlock();
}

/* ---- the MPI call around it -------------------------------------------------------------------------------------- */

static uint32_t current_group(void)
{
    static uint32_t groups;
    uint32_t *group = call_note();
    if (*group == 0 && inside_call())
        *group = __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED);
    return *group;
}

void posix_link(uint64_t operation)
{
    if (operation > 0 && __atomic_load_n(&on, __ATOMIC_ACQUIRE))
        append(&(struct rawlog_record){.call = POSIX_COUNT, .view = *call_note(), .position = (int64_t)operation});
}

/* ---- the files that are of interest ------------------------------------------------------------------------------ */

enum { FILES = 1 << 14, BUCKETS = 1 << 10, DESCRIPTORS = 1 << 16 };

/* RATIONALE: files are added and never removed, so that a look-up needs no lock. */
static struct known {
    uint64_t device, inode, path; /* path: its hash */
    struct known *next;
    uint32_t id;
} files[FILES], *buckets[BUCKETS];
static uint32_t known_files;

/* What each descriptor means. The lower half is the file's id or 0, the upper half the value of
 * `changes` for which that holds. */
static uint64_t descriptors[DESCRIPTORS];
static uint32_t changes = 1; /* of the files of interest */

PRIVATE const char *opening; /* named by the MPI_File_open under way */

static struct known **bucket_of(uint64_t device, uint64_t inode)
{
    return &buckets[((device * 31 + inode) * UINT64_C(0x9E3779B97F4A7C15)) >> 54];
}

static struct known *find_file(uint64_t device, uint64_t inode)
{
    struct known *file = __atomic_load_n(bucket_of(device, inode), __ATOMIC_ACQUIRE);
    while (file && (file->device != device || file->inode != inode))
        file = file->next;
    return file;
}

static uint64_t hash_of(const char *path)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash;
}

/* The id of the file, which is of interest from now on. 0: not possible. `id` 0: it gets a new one.
 */
static uint32_t add_file(const char *path, const struct stat *status, uint32_t id)
{
    const uint64_t hash = hash_of(path);
    struct known **bucket = bucket_of(status->st_dev, status->st_ino), *known;
    if (busy)
        return 0;
    lock();
    known = find_file(status->st_dev, status->st_ino);
    /* Under another path this is another file, which has the inode number of a deleted one. */
    if (known && known->path == hash) {
        id = known->id;
    } else if (known_files == FILES || !(id = id ? id : recorder_posix_file(path, status))) {
        pdla_posix_drop();
        id = 0;
    } else {
        known = &files[known_files++];
        *known = (struct known){status->st_dev, status->st_ino, hash, *bucket, id};
        __atomic_store_n(bucket, known, __ATOMIC_RELEASE);
        __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
    }
    unlock();
    return id;
}

static bool is_opening(const struct stat *status, char path[PATH_MAX])
{
    struct stat named;
    if (!opening)
        return false;
    resolve_path(opening, path);
    return stat(path, &named) == 0 && named.st_dev == status->st_dev && named.st_ino == status->st_ino &&
           recorder_wants(path);
}

/* The path by which the descriptor's file was opened. False: it is not known. */
static bool find_path(int descriptor, char path[PATH_MAX])
{
    static const char deleted[] = " (deleted)";
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1), most = length - (ssize_t)strlen(deleted);
    path[length < 0 ? 0 : length] = 0;
    if (most > 0 && strcmp(path + most, deleted) == 0)
        path[most] = 0;
    return length > 0;
}

static bool is_included(int descriptor, char path[PATH_MAX])
{
    const char *include = getenv("PDLA_TRACE_INCLUDE");
    return include && *include && find_path(descriptor, path) && recorder_wants(path);
}

/* RATIONALE: a new file may have the inode number of a deleted one. */
static bool is_still(const struct known *file, int descriptor, const struct stat *status)
{
    char path[PATH_MAX];
    return status->st_nlink > 1 || !find_path(descriptor, path) || hash_of(path) == file->path;
}

/* Finds out which file the descriptor means. Returns its id or 0. */
static uint32_t examine(int descriptor)
{
    const uint64_t then = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
    const int error = errno;
    struct stat status;
    char path[PATH_MAX];
    uint32_t id = 0;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
        const struct known *known = find_file(status.st_dev, status.st_ino);
        if (known && !is_still(known, descriptor, &status))
            known = NULL;
        if (is_opening(&status, path) || (!known && is_included(descriptor, path)))
            id = add_file(path, &status, 0);
        else if (known)
            id = known->id;
    }
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        __atomic_store_n(&descriptors[descriptor], then << 32 | id, __ATOMIC_RELAXED);
    errno = error;
    return id;
}

static uint32_t file_of(int descriptor)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS) {
        const uint64_t meaning = __atomic_load_n(&descriptors[descriptor], __ATOMIC_RELAXED);
        if (meaning >> 32 == __atomic_load_n(&changes, __ATOMIC_ACQUIRE))
            return (uint32_t)meaning;
    }
    return examine(descriptor);
}

void pdla_posix_forget(int descriptor)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        __atomic_store_n(&descriptors[descriptor], 0, __ATOMIC_RELAXED);
}

void posix_opening(const char *name)
{
    opening = __atomic_load_n(&on, __ATOMIC_ACQUIRE) ? name : NULL;
}

void posix_opened(const char *path, uint32_t id)
{
    struct stat status;
    opening = NULL;
    if (id && __atomic_load_n(&on, __ATOMIC_ACQUIRE) && stat(path, &status) == 0 && S_ISREG(status.st_mode))
        add_file(path, &status, id);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

/* RATIONALE: the child of a vfork shares this memory. */
static bool is_in_child(const struct posix_call *call)
{
    return (call->number == POSIX_open || call->number == POSIX_close) && getpid() != header->pid;
}

bool pdla_posix_begin(struct posix_call *call, int descriptor, const void *caller)
{
    if (!__atomic_load_n(&on, __ATOMIC_ACQUIRE) || is_own_code(caller))
        return false;
    call->file = file_of(descriptor);
    if (!call->file || is_in_child(call))
        return false;
    if (busy) {
        pdla_posix_drop();
        return false;
    }
    call->group = current_group();
    call->t_start = ticks_at_begin();
    return true;
}

int64_t pdla_posix_clock(void)
{
    return ticks_at_end();
}

void pdla_posix_end(const struct posix_call *call, int64_t moved, int error)
{
    const int64_t end = call->t_end ? call->t_end : ticks_at_end();
    append(&(struct rawlog_record){.t_start = call->t_start,
                                   .t_end = end < call->t_start ? call->t_start : end,
                                   .position = call->offset,
                                   .length = call->length,
                                   .moved = moved,
                                   .file = call->file,
                                   .view = call->group,
                                   .call = call->number,
                                   .error = error});
}
