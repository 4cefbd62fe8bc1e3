/* The recorder: appends to the two files of rawlog.h. If something goes wrong (a full disk, no
 * memory), it ends the recording, notes that in the log, and never disturbs the program. */
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "output.h"
#include "posix.h"
#include "recorder.h"

_Static_assert(CALL_COUNT <= sizeof((struct rawlog_header *)0)->unrecorded / sizeof(uint32_t), "a count for each");

/* IDLE: not begun. OFF: for ever, since recording was not asked for, is impossible, or has ended.
 */
enum state { IDLE, ON, OFF };

static int state; /* enum state; changes under `mutex`, read by anyone */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct output log_output, side_output;
static struct rawlog_header *header; /* mapped, with the window after it */
static struct rawlog_record *window;
static uint64_t recorded; /* records in the log */
static uint32_t files, views;
static bool full; /* nothing more can be stored: records are only counted */

static int64_t nanoseconds(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void set_state(enum state next)
{
    __atomic_store_n(&state, next, __ATOMIC_RELEASE);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Makes <directory>/<host>/<host>-<pid>.<suffix>. If containers share a host name, the name gets a number.
 * RATIONALE: a directory for each node, since a file system makes names in one directory one after the other. */
static bool create(struct output *output, const char *directory, const char *host, int number, const char *suffix)
{
    char path[PATH_MAX], unique[16] = "";
    if (number > 0)
        snprintf(unique, sizeof unique, ".%d", number);
    int length = snprintf(path, sizeof path, "%s/%s/%s-%d%s.%s", directory, host, host, (int)getpid(), unique, suffix);
    return length < (int)sizeof path && output_create(output, path);
}

/* One entry of the side file: `head` and then `tail`. */
static bool write_entry(enum rawlog_side_kind kind, const void *head, size_t head_size, const void *tail,
                        size_t tail_size)
{
    static const char zeros[8];
    struct rawlog_side entry = {(uint32_t)kind, (uint32_t)(head_size + tail_size)};
    return head_size + tail_size <= UINT32_MAX && output_append(&side_output, &entry, sizeof entry) &&
           output_append(&side_output, head, head_size) && output_append(&side_output, tail, tail_size) &&
           output_append(&side_output, zeros, -(head_size + tail_size) % 8);
}

static bool write_names(void)
{
#define NAME(name) #name "\0"
    static const char posix_names[] = POSIX_CALLS(NAME);
#undef NAME
    char names[16384];
    size_t used = 0;
    for (const char *const *name = call_names; *name; name++) {
        size_t size = strlen(*name) + 1;
        if (used + size > sizeof names)
            return false;
        memcpy(names + used, *name, size);
        used += size;
    }
    return output_append(&side_output, RAWLOG_SIDE_MAGIC, 8) && write_entry(RAWLOG_CALLS, names, used, NULL, 0) &&
           (!posix_wanted() || write_entry(RAWLOG_POSIX_CALLS, posix_names, sizeof posix_names - 1, NULL, 0));
}

/* ---- the log's life ---------------------------------------------------------------------------------------------- */

static void fill_header(const char *host)
{
    const struct mpi *mpi = running_mpi();
    char version[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of every family */
    int length;
    struct timespec realtime;
    int rank = 0, ranks = 1, world = 0;
    mpi->Initialized(&world); /* not with sessions */
    if (world) {
        mpi->Comm_rank(mpi->comm_world, &rank);
        mpi->Comm_size(mpi->comm_world, &ranks);
    }
    mpi->Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    clock_gettime(CLOCK_REALTIME, &realtime);
    *header = (struct rawlog_header){
        .header_size = RAWLOG_HEADER_SIZE,
        .record_size = RAWLOG_RECORD_SIZE,
        .window_records = WINDOW_RECORDS,
        .rank = rank,
        .ranks = ranks,
        .pid = (int32_t)getpid(),
        .family = (int32_t)mpi->family,
        .realtime_ns = nanoseconds(realtime),
        .monotonic_ns = clock_ns(),
        .clock = clocks_own(),
    };
    snprintf(header->host, sizeof header->host, "%s", host);
    snprintf(header->mpi, sizeof header->mpi, "%.*s", (int)sizeof header->mpi - 1, version);
    memcpy(header->magic, RAWLOG_MAGIC, sizeof header->magic);
}

static void make_directories(const char *directory, const char *host)
{
    char path[PATH_MAX];
    mkdir(directory, 0700);
    if (snprintf(path, sizeof path, "%s/%s", directory, host) < (int)sizeof path)
        mkdir(path, 0700);
}

static bool open_log(const char *directory)
{
    struct output posix_output;
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    for (char *c = host; (c = strchr(c, '/'));)
        *c = '_';
    int number = 0;
    bool made = false;
    while (!create(&log_output, directory, host, number, "log"))
        if (errno == ENOENT && !made) {
            make_directories(directory, host);
            made = true;
        } else if (errno != EEXIST || ++number > 100) {
            return false;
        }
    if (!create(&side_output, directory, host, number, "side") || !write_names())
        return false;
    header = output_map(&log_output);
    if (!header)
        return false;
    window = (struct rawlog_record *)((char *)header + RAWLOG_HEADER_SIZE);
    fill_header(host);
    if (posix_wanted() && create(&posix_output, directory, host, number, "posix"))
        posix_start(&posix_output);
    return true;
}

static void end_in_child(void)
{
    set_state(OFF);
}

void recorder_start(void)
{
    const struct mpi *mpi = running_mpi();
    const char *directory = getenv("PDLA_TRACE");
    if (!mpi)
        return;
    pthread_mutex_lock(&mutex);
    if (state == IDLE) {
        bool opened = directory && *directory && open_log(directory);
        if (opened) {
            learn_moved_bytes();
            pthread_atfork(NULL, NULL, end_in_child);
        }
        set_state(opened ? ON : OFF);
    }
    pthread_mutex_unlock(&mutex);
}

/* RATIONALE: the state is read before the mutex is taken. In the child of a fork another thread of
 * the parent may hold the mutex for ever. */
static bool is_on(void)
{
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == ON;
}

bool recorder_on(void)
{
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == IDLE)
        recorder_start();
    return is_on();
}

void recorder_finalize(void)
{
    if (is_on())
        header->finalized = (uint64_t)clock_ns();
}

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

/* Whether one of the globs, one a line, matches the path. */
static bool matches(const char *globs, const char *path)
{
    char glob[PATH_MAX];
    for (; *globs; globs += *globs == '\n') {
        size_t length = strcspn(globs, "\n");
        if (length > 0 && length < sizeof glob) {
            memcpy(glob, globs, length);
            glob[length] = 0;
            if (fnmatch(glob, path, 0) == 0)
                return true;
        }
        globs += length;
    }
    return false;
}

bool recorder_wants(const char *path)
{
    const char *include = getenv("PDLA_TRACE_INCLUDE"), *exclude = getenv("PDLA_TRACE_EXCLUDE");
    return (!include || !*include || matches(include, path)) && !(exclude && matches(exclude, path));
}

/* ---- views that recur -------------------------------------------------------------------------------------------- */

/* RATIONALE: libraries such as HDF5 set a view for every access, the same few again and again. The
 * latest are remembered. */
enum { REMEMBERED = 64, REMEMBERED_WORDS = 64 };

static struct {
    struct rawlog_view view;
    size_t count;
    int64_t words[REMEMBERED_WORDS];
} remembered[REMEMBERED];

/* With the mutex held: the id of the same view if it was written before, or 0. `words` may be NULL.
 */
static uint32_t find_view(const struct rawlog_view *view, const int64_t *words, size_t count)
{
    for (int i = 0; words && i < REMEMBERED; i++) {
        struct rawlog_view same = *view;
        same.id = remembered[i].view.id;
        if (same.id && remembered[i].count == count && memcmp(&remembered[i].view, &same, sizeof same) == 0 &&
            memcmp(remembered[i].words, words, count * sizeof *words) == 0)
            return same.id;
    }
    return 0;
}

static void remember_view(const struct rawlog_view *view, const int64_t *words, size_t count)
{
    if (count > REMEMBERED_WORDS)
        return;
    remembered[view->id % REMEMBERED].view = *view;
    remembered[view->id % REMEMBERED].count = count;
    memcpy(remembered[view->id % REMEMBERED].words, words, count * sizeof *words);
}

/* ---- what is recorded -------------------------------------------------------------------------------------------- */

/* With the mutex held: writes an entry of the side file. A failure ends the recording, since the
 * entry may be there in part. */
static bool name_in_side(enum rawlog_side_kind kind, const void *head, size_t head_size, const void *tail,
                         size_t tail_size)
{
    if (!full && !write_entry(kind, head, head_size, tail, tail_size))
        full = true;
    return !full;
}

static void identify(struct rawlog_file *file, const struct stat *status)
{
    file->device = status->st_dev;
    file->inode = status->st_ino;
    file->size = status->st_size;
    file->mtime_ns = nanoseconds(status->st_mtim);
    file->ctime_ns = nanoseconds(status->st_ctim);
}

uint32_t recorder_file(const char *path, int amode, mpi_handle comm)
{
    struct rawlog_file file = {.amode = (uint32_t)amode};
    struct stat status;
    int rank = 0, size = 0;
    if (!recorder_on())
        return 0;
    running_mpi()->Comm_rank(comm, &rank);
    running_mpi()->Comm_size(comm, &size);
    file.comm_rank = (uint32_t)rank;
    file.comm_size = (uint32_t)size;
    if (stat(path, &status) == 0)
        identify(&file, &status);
    pthread_mutex_lock(&mutex);
    file.id = files + 1;
    if (name_in_side(RAWLOG_FILE, &file, sizeof file, path, strlen(path)))
        files++;
    pthread_mutex_unlock(&mutex);
    return file.id;
}

/* Names a file in the side file, under the mutex. Its number, or 0. */
static uint32_t add_file(struct rawlog_file *file, const char *path)
{
    file->id = files + 1;
    if (!name_in_side(RAWLOG_FILE, file, sizeof *file, path, strlen(path)))
        return 0;
    files++;
    return file->id;
}

uint32_t recorder_deleted_file(const char *path)
{
    struct rawlog_file file = {0};
    if (!recorder_on())
        return 0;
    pthread_mutex_lock(&mutex);
    const uint32_t id = add_file(&file, path);
    pthread_mutex_unlock(&mutex);
    return id;
}

/* RATIONALE: a signal handler may make the call and may have interrupted the holder of the mutex.
 */
uint32_t recorder_posix_file(const char *path, const struct stat *status)
{
    struct rawlog_file file = {0};
    identify(&file, status);
    for (int i = 0; pthread_mutex_trylock(&mutex) != 0; i++, sched_yield())
        if (i == 1000)
            return 0;
    const uint32_t id = add_file(&file, path);
    pthread_mutex_unlock(&mutex);
    return id;
}

uint32_t recorder_view(const struct file_view *view)
{
    struct rawlog_view entry = {.etype_size = (uint32_t)view->etype_size, .displacement = view->displacement};
    if (!recorder_on() || !view->map || (view->displacement == 0 && typemap_is_contiguous(view->map)))
        return 0;
    size_t count = typemap_encode(view->map, NULL, 0);
    int64_t *words = malloc(count * sizeof *words);
    if (words)
        typemap_encode(view->map, words, count);
    entry.extent = typemap_extent(view->map);
    entry.size = typemap_size(view->map);
    pthread_mutex_lock(&mutex);
    entry.id = find_view(&entry, words, count);
    if (!entry.id) {
        entry.id = views + 1;
        if (!words)
            full = true;
        if (name_in_side(RAWLOG_VIEW, &entry, sizeof entry, words, count * sizeof *words)) {
            views++;
            remember_view(&entry, words, count);
        }
    }
    pthread_mutex_unlock(&mutex);
    free(words);
    return entry.id;
}

/* With the mutex held: the number of records in the file. They are no longer in the window. */
static uint64_t appended(void)
{
    return (uint64_t)(log_output.end - LOG_START_SIZE) / RAWLOG_RECORD_SIZE;
}

/* With the mutex held: the place of the next record. NULL: the disk is full. */
static struct rawlog_record *next_record(void)
{
    if (recorded - appended() == WINDOW_RECORDS && !full) {
        const int error = errno; /* the program's */
        full = !output_append(&log_output, window, WINDOW_SIZE);
        errno = error;
    }
    return full ? NULL : &window[recorded % WINDOW_RECORDS];
}

/* RATIONALE: threads need the mutex to agree on numbers, on places, and on who appends the window.
 * A free mutex costs less than one reading of the clock. */
uint64_t recorder_append(const struct rawlog_record *record)
{
    uint64_t number = 0;
    pthread_mutex_lock(&mutex);
    struct rawlog_record *place = state == ON ? next_record() : NULL;
    if (place) {
        memcpy(&place->t_start, &record->t_start, sizeof *record - offsetof(struct rawlog_record, t_start));
        number = ++recorded;
        __atomic_store_n(&place->seq, number, __ATOMIC_RELEASE);
    } else if (state == ON) {
        header->dropped++;
    }
    pthread_mutex_unlock(&mutex);
    return number;
}

static void end_operation(struct rawlog_record *record, int64_t moved, int error)
{
    record->t_end = clock_ns();
    record->error = error;
    if (moved >= 0)
        record->moved = moved;
    record->flags &= (uint16_t) ~(RAWLOG_PENDING | (moved >= 0 ? RAWLOG_MOVED_UNKNOWN : 0));
}

/* With the mutex held. */
static void end_appended(uint64_t number, int64_t moved, int error)
{
    struct rawlog_record record;
    off_t place = (off_t)(LOG_START_SIZE + (number - 1) * RAWLOG_RECORD_SIZE);
    if (!output_keep(&log_output) || pread(log_output.file, &record, sizeof record, place) != sizeof record)
        return;
    end_operation(&record, moved, error);
    /* Without an end the record still says that the operation was under way. */
    if (pwrite(log_output.file, &record, sizeof record, place) != sizeof record)
        return;
}

void recorder_end(uint64_t number, int64_t moved, int error)
{
    if (!is_on())
        return;
    pthread_mutex_lock(&mutex);
    if (number > appended())
        end_operation(&window[(number - 1) % WINDOW_RECORDS], moved, error);
    else
        end_appended(number, moved, error);
    pthread_mutex_unlock(&mutex);
}

void recorder_passed(enum call call)
{
    if (recorder_on())
        __atomic_add_fetch(&header->unrecorded[call], 1, __ATOMIC_RELAXED);
}
