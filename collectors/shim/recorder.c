/* The recorder: appends to the two files of rawlog.h. If something goes wrong (a full disk, no
 * memory), it ends the recording, notes that in the log, and never disturbs the program. */
#include <errno.h>
#include <fcntl.h>
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

#include "file_size.h"
#include "output.h"
#include "posix.h"
#include "recorder.h"
#include "stream.h"

_Static_assert(CALL_COUNT <= sizeof((struct rawlog_header *)0)->unrecorded / sizeof(uint32_t), "a count for each");

/* IDLE: not begun. OFF: for ever, since recording was not asked for, is impossible, or has ended.
 */
enum state { IDLE, ON, OFF };

static int state; /* enum state; changes under `mutex`, read by anyone */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct output log_output, side_output;
static struct rawlog_header *header; /* mapped, with the window after it */
static struct stream stream;         /* of the log */
static int64_t anchor_due;           /* ticks after which the clocks are read together again */
static uint32_t files, views;
static bool full; /* nothing more can be stored: records are only counted */
static off_t limit; /* bytes of the log at most (PDLA_TRACE_BYTES) */

static int64_t nanoseconds(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void set_state(enum state next)
{
    __atomic_store_n(&state, next, __ATOMIC_RELEASE);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum { MOST_NAMES = 4096 /* of processes of one host name and number */ };

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

/* Room for the words of a command line; longer ones are cut. */
enum { COMMAND_SIZE = 1 << 16 };

/* The bytes of a file of /proc/self, as many as there is room for; 0: it cannot be read. */
static size_t read_words(const char *path, char *words, size_t room)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got;
    if (file < 0)
        return 0;
    while (used < room && (got = read(file, words + used, room - used)) > 0)
        used += (size_t)got;
    close(file);
    return used;
}

/* Which program this is. */
static bool write_program(void)
{
    char paths[2 * PATH_MAX], *words = malloc(COMMAND_SIZE);
    const ssize_t executable = readlink("/proc/self/exe", paths, PATH_MAX - 1);
    if (!words || executable < 0) {
        free(words);
        return true; /* nobody knows it then */
    }
    paths[executable] = '\0';
    char *directory = paths + executable + 1;
    if (!getcwd(directory, PATH_MAX))
        *directory = '\0';
    const size_t used = read_words("/proc/self/cmdline", words, COMMAND_SIZE);
    const bool written =
        write_entry(RAWLOG_PROGRAM, paths, (size_t)executable + strlen(directory) + 2, words, used);
    free(words);
    return written;
}

/* ---- the log's life ---------------------------------------------------------------------------------------------- */

static struct rawlog_pair both_clocks(void)
{
    const struct ticks_anchor now = ticks_now();
    return (struct rawlog_pair){now.ticks, now.ns};
}

static void fill_header(const char *host)
{
    const struct mpi *mpi = running_mpi();
    char version[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of every family */
    int length;
    struct timespec realtime;
    struct stat namespace;
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
        .rank = rank,
        .ranks = ranks,
        .pid = (int32_t)getpid(),
        .family = (int32_t)mpi->family,
        .realtime_ns = nanoseconds(realtime),
        .monotonic_ns = clock_ns(),
        .clock = clocks_own(),
        .loaded = {ticks_chosen.ticks, ticks_chosen.ns},
    };
    snprintf(header->host, sizeof header->host, "%s", host);
    header->boot[read_words("/proc/sys/kernel/random/boot_id", header->boot, sizeof header->boot - 4)] = '\0';
    header->pid_namespace = stat("/proc/self/ns/pid", &namespace) == 0 ? namespace.st_ino : 0;
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

/* RATIONALE: the rate of the processor's counter is known only by comparison. Between two anchors
 * it is taken for constant; the clock of the kernel changes its rate by some parts in a million. */
enum { ANCHOR_TICKS = 1 << 28 }; /* 0.1 s or less at 2.7 GHz */

static void add_anchor(void)
{
    const struct rawlog_pair now = both_clocks();
    stream_anchor(&stream, now);
    anchor_due = now.ticks + ANCHOR_TICKS;
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
        } else if (errno != EEXIST || ++number > MOST_NAMES) {
            return false;
        }
    if (!create(&side_output, directory, host, number, "side") || !write_names())
        return false;
    header = output_map(&log_output);
    if (!header)
        return false;
    fill_header(host);
    stream_begin(&stream, (char *)header + RAWLOG_HEADER_SIZE, &header->committed);
    add_anchor();
    const char *most = getenv("PDLA_TRACE_BYTES");
    const long long bytes = most ? atoll(most) : 0;
    limit = bytes > 0 ? (off_t)bytes : INT64_MAX;
    if (header->rank == 0 && !write_program())
        return false;
    if (posix_wanted() && create(&posix_output, directory, host, number, "posix"))
        posix_start(&posix_output);
    return true;
}

/* RATIONALE: the state is read before the mutex is taken. In the child of a fork another thread of
 * the parent may hold the mutex for ever. */
static bool is_on(void)
{
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == ON;
}

static void end_in_child(void)
{
    set_state(OFF);
}

static void note_exit(int status, void *unused)
{
    (void)unused;
    if (is_on())
        header->exited = 1 + ((uint32_t)status & 0xff);
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
            on_exit(note_exit, NULL);
        }
        set_state(opened ? ON : OFF);
    }
    pthread_mutex_unlock(&mutex);
}

bool recorder_on(void)
{
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == IDLE)
        recorder_start();
    return is_on();
}

void recorder_finalize(void)
{
    if (!is_on())
        return;
    header->ended = both_clocks();
    header->finalized = (uint64_t)header->ended.ns;
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

/* With the mutex held: the bytes of whole windows in the file. They are no longer in the mapped
 * one. */
static uint64_t appended(void)
{
    const uint64_t bytes = (uint64_t)(log_output.end - LOG_START_SIZE);
    return bytes - bytes % RAWLOG_WINDOW_SIZE;
}

/* With the mutex held: makes room for an entry. */
static void next_window(void)
{
    const int error = errno; /* the program's */
    stream_end_window(&stream);
    full = log_output.end >= limit || !output_append(&log_output, stream.window, RAWLOG_WINDOW_SIZE);
    if (!full) {
        stream_next_window(&stream);
        add_anchor();
    }
    errno = error;
}

/* With the mutex held. False: the disk is full. */
static bool append(const struct rawlog_record *record, struct recorded *made)
{
    if (stream_is_full(&stream) && !full)
        next_window();
    if (full)
        return false;
    if (record->t_end >= anchor_due)
        add_anchor();
    made->number = stream_add(&stream, record, &made->place);
    return true;
}

/* RATIONALE: threads need the mutex to agree on numbers, on places, and on who appends the window.
 * A free mutex costs less than one reading of the clock. */
struct recorded recorder_append(const struct rawlog_record *record)
{
    struct recorded made = {0, 0};
    pthread_mutex_lock(&mutex);
    if (state == ON && !append(record, &made))
        header->dropped++;
    pthread_mutex_unlock(&mutex);
    return made;
}

static void end_operation(struct rawlog_record *record, int64_t moved, int error)
{
    const int64_t now = ticks_at_end();
    record->t_end = now < record->t_start ? record->t_start : now;
    record->error = error;
    if (moved >= 0)
        record->moved = moved;
    record->flags &= (uint16_t) ~(RAWLOG_PENDING | (moved >= 0 ? RAWLOG_MOVED_UNKNOWN : 0));
}

/* With the mutex held: the number of the record. */
static uint64_t end_in_window(unsigned char *place, int64_t moved, int error)
{
    struct rawlog_record record;
    memcpy(&record, place, sizeof record);
    end_operation(&record, moved, error);
    memcpy(place, &record, sizeof record);
    return record.seq;
}

/* With the mutex held: the number of the record; 0: not known. */
static uint64_t end_appended(off_t place, int64_t moved, int error)
{
    struct rawlog_record record;
    if (!file_size_allowed(place + (off_t)sizeof record) || !output_keep(&log_output)
        || pread(log_output.file, &record, sizeof record, place) != sizeof record)
        return 0;
    end_operation(&record, moved, error);
    /* Without an end the record still says that the operation was under way. */
    return pwrite(log_output.file, &record, sizeof record, place) == sizeof record ? record.seq : 0;
}

uint64_t recorder_end(uint64_t place, int64_t moved, int error)
{
    uint64_t number;
    if (!is_on())
        return 0;
    pthread_mutex_lock(&mutex);
    if (place > appended())
        number = end_in_window(stream.window + (place - 1 - stream.before), moved, error);
    else
        number = end_appended(LOG_START_SIZE + (off_t)place - 1, moved, error);
    pthread_mutex_unlock(&mutex);
    return number;
}

void recorder_passed(enum call call)
{
    if (recorder_on())
        __atomic_add_fetch(&header->unrecorded[call], 1, __ATOMIC_RELAXED);
}
