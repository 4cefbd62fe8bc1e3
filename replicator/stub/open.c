#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_hints.h"
#include "collective_consensus.h"
#include "critical_requests.h"
#include "deferred_close.h"
#include "freshness.h"
#include "leased_open.h"
#include "originals.h"
#include "posix_coherence.h"
#include "published_map.h"
#include "recovery.h"
#include "report.h"
#include "roll_call.h"
#include "staleness.h"
#include "step_aside.h"
#include "storage.h"
#include "redirection.h"
#include "write_open.h"
#include "writer.h"

/* Whether anything may be redirected: the same on all ranks. */
static bool redirects(void)
{
    const char *name = getenv("PDLA_MAP");
    return name != NULL && *name != '\0' && roll_call_missing() == NULL;
}

/* With equal members, ranks mean the same file in the same state, by the same map. */
struct common_state {
    uint64_t generation, checksum; /* of the map */
    uint64_t file;                 /* index in it */
    uint64_t inode;
    int64_t size, mtime_ns;
};
enum { COMMON_WORDS = sizeof(struct common_state) / sizeof(uint64_t) };

/* What the ranks agree on: the AND of what each can do, all bits or none unless said otherwise. The
 * ANDs of a word and of its complement are complements of each other only if all ranks have the
 * same word. */
struct read_abilities {
    uint64_t common_state[COMMON_WORDS], not_common[COMMON_WORDS];
    uint64_t node, not_node; /* node_hash() */
    uint64_t usable;         /* there are replicas to read from */
    uint64_t no_target;      /* rank 0 knows no replicas for writes to it */
    uint64_t measures;       /* critical_requests_measures() */
};

enum { DESCRIPTOR_SHARE = 4 /* components may use at most a quarter of the descriptors of the process */ };

/* Ranks with the same hash have the same state file in the same memory. */
static uint64_t node_hash(const struct loaded_map *map)
{
    struct {
        uint64_t device, inode;
        char kernel[64];
    } node = {.device = map->state_device, .inode = map->state_inode};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, node.kernel, sizeof node.kernel) <= 0)
        gethostname(node.kernel, sizeof node.kernel);
    if (fd >= 0)
        close(fd);
    return (uint64_t)crc32c(0, &node, sizeof node) << 32 | crc32c(1, &node, sizeof node);
}

/* Descriptors of components, over all open files. */
static uint64_t descriptors;

/* RATIONALE: the program needs most of the descriptors that the process may have. Its own opens
 * must not fail because of the redirector's. */
static bool too_many_descriptors(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) != 0
        || __atomic_load_n(&descriptors, __ATOMIC_RELAXED) >= limit.rlim_cur / DESCRIPTOR_SHARE;
}

static void close_component(const struct loaded_map *map, const struct map_component *component, int fd)
{
    storage_close(map, map_at(map, component->path), fd);
    __atomic_sub_fetch(&descriptors, 1, __ATOMIC_RELAXED);
}

static void close_replica(const struct loaded_map *map, const struct map_replica *replica,
                          struct opened_replica *opened)
{
    const struct map_component *files = map_at(map, replica->components);
    if (opened->components == NULL)
        return;
    for (uint32_t i = 0; i < replica->servers; i++)
        if (opened->components[i] >= 0 && !opened->progress[i].abandoned)
            close_component(map, &files[i], opened->components[i]);
    free(opened->components);
    free(opened->progress);
    *opened = (struct opened_replica){.next = -1};
}

/* -1: it cannot be used, and *why says why. */
static int open_component(const struct loaded_map *map, const struct map_component *component, const char **why)
{
    struct stat found;
    const char *path = map_at(map, component->path);
    int fd = storage_open(map, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, TIMEOUT_SHORT, &found);
    if (fd < 0)
        *why = errno == ENOENT ? "a component is missing"
            : errno == ETIMEDOUT ? "its storage does not answer"
                                 : "a component cannot be opened";
    else if (!S_ISREG(found.st_mode) || found.st_ino != component->inode
             || found.st_size != component->size || nanoseconds(found.st_mtim) != component->mtime_ns)
        *why = "a component was changed";
    else if (found.st_uid != 0 && found.st_uid != geteuid())
        *why = "a component is neither the user's nor root's";
    else
        return fd;
    if (fd >= 0)
        storage_close(map, path, fd);
    return -1;
}

int component_of(struct reader *reader, int replica, uint32_t number)
{
    const struct loaded_map *map = reader->source->map;
    const struct map_component *component = map_at(map, replica_of(reader->source, (uint32_t)replica)->components);
    int *place = &reader->replicas[replica].components[number], fd = __atomic_load_n(place, __ATOMIC_ACQUIRE),
        none = -1;
    const char *why;
    if (fd >= 0 || too_many_descriptors())
        return fd;
    if ((fd = open_component(map, &component[number], &why)) < 0) {
        replica_refuse(reader->source, (uint32_t)replica, why);
        return -1;
    }
    const char *path = map_at(map, component[number].path);
    struct progress *progress = &reader->replicas[replica].progress[number];
    __atomic_store_n(&progress->remote, storage_remote(path) ? path : NULL, __ATOMIC_RELAXED);
    __atomic_add_fetch(&descriptors, 1, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(place, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fd;
    close_component(map, &component[number], fd); /* another thread was faster */
    return none;
}

bool replica_prepare(const struct map_replica *replica, struct opened_replica *opened)
{
    opened->components = malloc(replica->servers * sizeof *opened->components);
    opened->progress = malloc(replica->servers * sizeof *opened->progress);
    for (uint32_t i = 0; opened->components != NULL && opened->progress != NULL && i < replica->servers; i++) {
        opened->components[i] = -1;
        opened->progress[i] = (struct progress){.end = -1, .streams = {{.end = -1}, {.end = -1}}};
    }
    if (opened->components != NULL && opened->progress != NULL)
        return true;
    free(opened->components);
    free(opened->progress);
    *opened = (struct opened_replica){.next = -1};
    return false;
}

void reader_free(struct reader *reader)
{
    for (uint32_t i = 0; i < reader->source->file->replica_count; i++)
        close_replica(reader->source->map, replica_of(reader->source, i), &reader->replicas[i]);
    original_close(reader->fd);
    free(reader->replicas);
    free(reader);
}

static struct reader *make_reader(const struct loaded_map *map, const struct map_file *file)
{
    struct source *source = report_source(map, file);
    struct reader *reader = source == NULL ? NULL : calloc(1, sizeof *reader);
    if (reader == NULL || (reader->replicas = calloc(file->replica_count, sizeof *reader->replicas)) == NULL) {
        free(reader);
        return NULL;
    }
    reader->source = source;
    reader->progress.end = -1;
    step_aside_start(reader);
    for (uint32_t i = 0; i < file->replica_count; i++)
        reader->replicas[i].next = -1;
    return reader;
}

/* Why no read of a file opened in this mode is redirected. NULL: they may be. */
static const char *unsuitable(int amode)
{
    if (amode & AMODE_DELETE_ON_CLOSE)
        return "deleted on close";
    if (amode & AMODE_SEQUENTIAL)
        return "sequential access";
    return amode & (AMODE_RDONLY | AMODE_RDWR) ? NULL : "not opened for reading";
}

/* Prepares the replicas that may be read from; whether there are any. `found`: the original,
 * examined just now. */
static bool use_replicas(struct reader *reader, const struct stat *found)
{
    struct source *source = reader->source;
    bool any = false;
    if (!freshness_seems_fresh(source->file, found) && !freshness_check(source->map, source->file, reader->fd))
        return false;
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        const struct map_replica *replica = replica_of(source, i);
        if (!replica_refused(source, i) && freshness_stale(source->map, replica) == STALE_NOT)
            any |= replica_prepare(replica, &reader->replicas[i]);
    }
    return any;
}

static uint64_t all_bits(bool truth) { return truth ? ~UINT64_C(0) : 0; }

/* What this rank can do. *reader: its own for the file, if the file has replicas. */
static struct read_abilities own_abilities(const struct loaded_map *map, const char *path, int amode, bool alone,
                                           struct reader **reader)
{
    struct read_abilities mine = {0};
    struct stat found;
    *reader = NULL;
    int fd = map == NULL ? -1 : freshness_find(path, &found);
    const struct map_file *file = fd < 0 ? NULL : map_find(map, path, found.st_dev, found.st_ino);
    if (file == NULL || file->replica_count == 0 || (*reader = make_reader(map, file)) == NULL) {
        if (fd >= 0)
            close(fd);
        return mine;
    }
    const bool readable = !(amode & AMODE_WRONLY) && freshness_reopen(&fd);
    (*reader)->fd = fd;
    const struct common_state common_state = {map->header->generation, map->header->checksum,
                                              (uint64_t)(file - map->files),
                                found.st_ino, found.st_size, nanoseconds(found.st_mtim)};
    memcpy(mine.common_state, &common_state, sizeof common_state);
    for (int i = 0; i < COMMON_WORDS; i++)
        mine.not_common[i] = ~mine.common_state[i];
    mine.node = alone || amode & AMODE_RDONLY ? 0 : node_hash(map);
    mine.not_node = ~mine.node;
    mine.usable = all_bits(readable && unsuitable(amode) == NULL && use_replicas(*reader, &found));
    return mine;
}

static void apply_agreement(struct reader *reader, int amode, mpi_handle comm, const struct read_abilities *all)
{
    const struct mpi *mpi = running_mpi();
    bool one_node = (all->node ^ all->not_node) == ~UINT64_C(0), usable = all->usable != 0;
    bool writable = !(amode & AMODE_RDONLY);
    for (int i = 0; i < COMMON_WORDS; i++)
        usable = usable && (all->common_state[i] ^ all->not_common[i]) == ~UINT64_C(0);
    /* Only some file systems show another node's writes in the attributes. So collective reads ask
     * the other ranks. */
    reader->independent = one_node || !writable;
    reader->why_not = unsuitable(amode);
    if (reader->why_not == NULL && !usable)
        reader->why_not = "no replica is usable";
    reader->comm = mpi->comm_null;
    reader->reads = reader->why_not == NULL && (comm == mpi->comm_null || agree_apart(comm, &reader->comm));
    if (reader->why_not == NULL && !reader->reads)
        reader->why_not = "the communicator could not be duplicated";
}

static void open_agreed(struct file_handle *handle, struct opening *opening)
{
    const struct mpi *mpi = running_mpi();
    const char *path = opening->path;
    const int amode = opening->amode;
    mpi_handle comm = opening->comm;
    int rank, ranks;
    if (mpi == NULL || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return;
    if (ranks == 1)
        comm = mpi->comm_null;
    const char *why = NULL, *nowhere;
    const struct loaded_map *map = published_map(&why);
    report_opened(map, published_map_path(&nowhere), map == NULL ? why : NULL, rank);
    struct reader *reader;
    struct read_abilities mine = own_abilities(handle == NULL ? NULL : map, path, amode, ranks == 1, &reader), all;
    char ignored[4096];
    const bool native = opening->notes[NOTE_NATIVE] != 0;
    struct critical_requests *critical = handle == NULL || native ? NULL
        : critical_requests_open(handle, path, rank, &redirection_of(handle)->unjudged);
    mine.measures = all_bits(critical_requests_measures(critical));
    mine.no_target = all_bits(rank != 0 || handle == NULL || !writer_place(map, path, ignored));
    if (map != NULL && map_damage(map) != NULL)
        report_opened(map, published_map_path(&nowhere), map_damage(map), rank);
    if (native || !agree_reduce(&mine, &all, (int)(sizeof mine / sizeof(uint64_t)), mpi->op_band, comm))
        all = (struct read_abilities){.no_target = ~UINT64_C(0)};
    if (handle != NULL) {
        redirection_of(handle)->critical = critical;
        redirection_of(handle)->measures = all.measures != 0;
    }
    if (all.measures != 0)
        critical_requests_exchange(critical, comm);
    if (reader != NULL) {
        apply_agreement(reader, amode, comm, &all);
        redirection_of(handle)->reader = reader;
    }
    writer_open(handle, comm, rank, ranks, map, opening, all.no_target == 0);
    struct leased *leased = (struct leased *)(intptr_t)opening->notes[NOTE_LEASED];
    opening->notes[NOTE_LEASED] = 0;
    if (leased != NULL)
        leased_opened(leased, handle, comm, rank, ranks);
}

/* Whether this rank knows that nothing of the file at `path` is redirected. RATIONALE: if it is rank 0, the ranks need
 * not agree after the open, and most files of a program are such ones. Where ranks outnumber processors, that agreement
 * made short programs up to 14 % slower. */
static bool stays_native(const char *path)
{
    const char *ignored;
    char journals[4096];
    struct stat found;
    const struct loaded_map *map = published_map(&ignored);
    const struct map_file *file = map == NULL || stat(path, &found) != 0 ? NULL
        : map_find(map, path, found.st_dev, found.st_ino);
    return (file == NULL || file->replica_count == 0) && cache_policy(path) == POLICY_NONE
        && !writer_place(map, path, journals);
}

/* Why the file must not be opened, the same on all ranks: a literal. *native: see NOTE_NATIVE. */
static const char *recover_before_open(const struct opening *opening, const char *path, int *lock,
                                       struct leased **leased, uint32_t *native)
{
    const struct mpi *mpi = running_mpi();
    const mpi_handle comm = opening->comm;
    int rank, ranks, inter = 1;
    /* RATIONALE: in a program that is only traced, some ranks may run without the library and would
     * join no collective call of it. */
    *native = 0;
    if (!redirects())
        return recovery_by_one_process(path) == 0 ? NULL : "its newest bytes are in replicas";
    if (mpi == NULL || comm == mpi->comm_null || mpi->Comm_test_inter(comm, &inter) != 0 || inter
        || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return NULL;
    if (ranks == 1 && deferred_close_error() != 0)
        return DEFERRED_CLOSE_FAILED;
    agree_opening(roll_call_complete() ? NULL : opening->name, rank);
    char journals[4096];
    const char *ignored;
    const bool keep = rank == 0 && writer_wanted(path, opening->amode)
        && writer_place(published_map(&ignored), path, journals);
    const bool only_reads = opening->amode & AMODE_RDONLY && unsuitable(opening->amode) == NULL;
    *native = ranks > 1 && rank == 0 && stays_native(path);
    return recovery_before_open(ranks == 1 ? mpi->comm_null : comm, rank, ranks, path, keep ? journals : NULL, lock,
                                only_reads ? leased : NULL, native);
}

int redirector_opening(struct opening *opening)
{
    int error = errno, lock = -1;
    const struct mpi *mpi = running_mpi();
    const char *refused = NULL;
    struct leased *leased = NULL;
    uint32_t native = 0;
    char path[PATH_MAX];
    originals_close_kept();
    if (opening->name != NULL) {
        resolve_path(opening->name, path);
        opening->notes[NOTE_OPEN_BY_POSIX] =
            redirects() && writer_wanted(path, opening->amode) && coherence_is_open(opening->name);
        if (cache_policy(path) == POLICY_E10)
            deferred_close_await(path, cache_guard_of(opening, path));
        refused = recover_before_open(opening, path, &lock, &leased, &native);
    }
    opening->notes[NOTE_LOCK] = lock;
    opening->notes[NOTE_LEASED] = (intptr_t)leased;
    opening->notes[NOTE_NATIVE] = native;
    int rc = refused == NULL ? 0 : mpi->err_io;
    if (rc != 0)
        raise_open_error(rc);
    errno = error;
    return rc;
}

/* False: out of memory. */
static bool redirection_make(struct file_handle *handle)
{
    return (handle->intercepted = calloc(1, sizeof(struct redirection))) != NULL;
}

static void redirection_free(struct file_handle *handle)
{
    free(handle->intercepted);
    handle->intercepted = NULL;
}

void redirector_opened(struct opening *opening, struct file_handle *handle)
{
    int error = errno, rank;
    if (roll_call_missing() != NULL && running_mpi()->Comm_rank(opening->comm, &rank) == 0)
        report_opened(NULL, NULL, roll_call_missing(), rank);
    if (handle != NULL && (!redirects() || !redirection_make(handle)))
        handle = NULL;
    if (redirects())
        open_agreed(handle, opening);
    if (handle != NULL && reader_of(handle) == NULL && writer_of(handle) == NULL
        && redirection_of(handle)->leased == NULL && redirection_of(handle)->critical == NULL)
        redirection_free(handle);
    redirector_not_opened(opening);
    errno = error;
}

void redirector_not_opened(struct opening *opening)
{
    agree_opening(NULL, 0);
    if (opening->notes[NOTE_LOCK] >= 0)
        close((int)opening->notes[NOTE_LOCK]);
    opening->notes[NOTE_LOCK] = -1;
    if (opening->notes[NOTE_LEASED] != 0)
        leased_free((struct leased *)(intptr_t)opening->notes[NOTE_LEASED]);
    opening->notes[NOTE_LEASED] = 0;
}

struct reader *reader_to_mark(const struct loaded_map *map, const char *path)
{
    struct stat found;
    int fd = freshness_find(path, &found);
    const struct map_file *file = fd < 0 ? NULL : map_find(map, path, found.st_dev, found.st_ino);
    struct reader *reader = file == NULL || file->replica_count == 0 ? NULL : make_reader(map, file);
    if (reader != NULL)
        reader->fd = -1; /* it reads nothing */
    if (fd >= 0)
        close(fd);
    return reader;
}

static void close_reader(struct file_handle *handle)
{
    struct reader *reader = reader_of(handle);
    redirection_of(handle)->reader = NULL;
    if (reader->reads && reader->comm != running_mpi()->comm_null)
        agree_apart_free(&reader->comm);
    reader_free(reader);
}

int redirector_closing(struct file_handle *handle)
{
    int error = errno, rc = 0;
    if (writer_of(handle) != NULL) {
        writer_exchange_service_times(handle);
        rc = writer_close(handle);
    }
    rc = rc != 0 ? rc : writer_raise(handle, deferred_close_error());
    if (reader_of(handle) != NULL)
        close_reader(handle);
    if (redirection_of(handle)->leased != NULL)
        leased_free(redirection_of(handle)->leased);
    critical_requests_close(redirection_of(handle)->critical);
    redirection_free(handle);
    errno = error;
    return rc;
}
