#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collective_consensus.h"
#include "freshness.h"
#include "posix_coherence.h"
#include "recovery.h"
#include "report.h"
#include "staleness.h"
#include "storage.h"
#include "stub.h"
#include "write_open.h"
#include "writer.h"

static const char *map_name(void)
{
    const char *name = getenv("PDLA_MAP");
    return name != NULL && *name != '\0' ? name : NULL;
}

/* What tells whether ranks mean the same file and state of it by the same map. */
struct sight {
    uint64_t generation, checksum; /* of the map */
    uint64_t file;                 /* index in it */
    uint64_t inode;
    int64_t size, mtime_ns;
};
enum { SIGHT_WORDS = sizeof(struct sight) / sizeof(uint64_t) };

/* What the ranks agree on: the AND of what each has to say. All bits or none where nothing else is said. The ANDs of
 * words and of their complements stay complements only where all ranks have the same words. */
struct read_abilities {
    uint64_t sight[SIGHT_WORDS], not_sight[SIGHT_WORDS];
    uint64_t node, not_node; /* node_hash() */
    uint64_t usable;         /* there are replicas to read from */
    uint64_t publishes;
    uint64_t no_target;      /* none of the replicas that rank 0 knows are for writes to it */
};

enum { DESCRIPTOR_SHARE = 4 /* one of so many descriptors of the process may be a component's */ };

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

/* RATIONALE: most of the descriptors that the process may have are the program's: its own opens must not fail for
 * ours. */
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

static void close_replica(const struct loaded_map *map, const struct map_replica *replica, struct opened_replica *opened)
{
    const struct map_component *files = map_at(map, replica->components);
    if (opened->components == NULL)
        return;
    for (uint32_t i = 0; i < replica->servers; i++)
        if (opened->components[i] >= 0 && !opened->progress[i].left)
            close_component(map, &files[i], opened->components[i]);
    free(opened->components);
    free(opened->progress);
    *opened = (struct opened_replica){.next = -1};
}

/* -1: it cannot be used, and *why says why not. */
static int open_component(const struct loaded_map *map, const struct map_component *component, const char **why)
{
    struct stat found;
    const char *path = map_at(map, component->path);
    int fd = storage_open(map, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, HURRIED, &found);
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

int component_of(struct stub_file *stub, int replica, uint32_t number)
{
    const struct loaded_map *map = stub->source->map;
    const struct map_component *component = map_at(map, replica_of(stub->source, (uint32_t)replica)->components);
    int *place = &stub->replicas[replica].components[number], fd = __atomic_load_n(place, __ATOMIC_ACQUIRE), none = -1;
    const char *why;
    if (fd >= 0 || too_many_descriptors())
        return fd;
    if ((fd = open_component(map, &component[number], &why)) < 0) {
        replica_refuse(stub->source, (uint32_t)replica, why);
        return -1;
    }
    const char *path = map_at(map, component[number].path);
    struct progress *progress = &stub->replicas[replica].progress[number];
    __atomic_store_n(&progress->remote, storage_remote(path) ? path : NULL, __ATOMIC_RELAXED);
    __atomic_add_fetch(&descriptors, 1, __ATOMIC_RELAXED);
    if (__atomic_compare_exchange_n(place, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fd;
    close_component(map, &component[number], fd); /* another thread was faster */
    return none;
}

/* Makes a replica one that can be read from. */
static bool use_replica(const struct map_replica *replica, struct opened_replica *opened)
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

void stub_forget(struct stub_file *stub)
{
    for (uint32_t i = 0; i < stub->source->file->replica_count; i++)
        close_replica(stub->source->map, replica_of(stub->source, i), &stub->replicas[i]);
    if (stub->fd >= 0)
        close(stub->fd);
    free(stub->replicas);
    free(stub);
}

static struct stub_file *make_stub(const struct loaded_map *map, const struct map_file *file)
{
    struct source *source = report_source(map, file);
    struct stub_file *stub = source == NULL ? NULL : calloc(1, sizeof *stub);
    if (stub == NULL || (stub->replicas = calloc(file->replica_count, sizeof *stub->replicas)) == NULL) {
        free(stub);
        return NULL;
    }
    stub->source = source;
    stub->progress.end = -1;
    for (uint32_t i = 0; i < file->replica_count; i++)
        stub->replicas[i].next = -1;
    return stub;
}

/* Why no read through a file opened in this way is redirected; NULL: they may be. */
static const char *unsuitable(int amode)
{
    if (amode & AMODE_DELETE_ON_CLOSE)
        return "deleted on close";
    if (amode & AMODE_SEQUENTIAL)
        return "sequential access";
    return amode & (AMODE_RDONLY | AMODE_RDWR) ? NULL : "not opened for reading";
}

/* Whether any of the file's replicas may be read from, which are then made so. `found`: of the original, just now. */
static bool use_replicas(struct stub_file *stub, const struct stat *found)
{
    struct source *source = stub->source;
    int64_t size;
    bool any = false;
    if (!freshness_seems_fresh(source->map, source->file, found)
        && freshness_check(source->map, source->file, stub->fd, &size) == STATE_CHANGED)
        return false;
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        const struct map_replica *replica = replica_of(source, i);
        if (!replica_refused(source, i) && freshness_stale(source->map, replica) == STALE_NOT)
            any |= use_replica(replica, &stub->replicas[i]);
    }
    return any;
}

static uint64_t all_bits(bool truth) { return truth ? ~UINT64_C(0) : 0; }

/* What this rank has to say. *stub: its own for the file, if there are replicas to speak of. */
static struct read_abilities look(const struct loaded_map *map, const char *path, int amode, bool alone, struct stub_file **stub)
{
    struct read_abilities mine = {0};
    struct stat found;
    *stub = NULL;
    int fd = map == NULL ? -1 : freshness_find(path, &found);
    const struct map_file *file = fd < 0 ? NULL : map_find(map, path, found.st_dev, found.st_ino);
    if (file == NULL || file->replica_count == 0 || (*stub = make_stub(map, file)) == NULL) {
        if (fd >= 0)
            close(fd);
        return mine;
    }
    const bool readable = !(amode & AMODE_WRONLY) && freshness_reopen(&fd);
    (*stub)->fd = fd;
    const struct sight sight = {map->header->generation, map->header->checksum, (uint64_t)(file - map->files),
                                found.st_ino, found.st_size, nanoseconds(found.st_mtim)};
    memcpy(mine.sight, &sight, sizeof sight);
    for (int i = 0; i < SIGHT_WORDS; i++)
        mine.not_sight[i] = ~mine.sight[i];
    mine.node = alone || amode & AMODE_RDONLY ? 0 : node_hash(map);
    mine.not_node = ~mine.node;
    mine.publishes = ~UINT64_C(0);
    mine.usable = all_bits(readable && unsuitable(amode) == NULL && use_replicas(*stub, &found));
    return mine;
}

static void agreed(struct stub_file *stub, int amode, mpi_handle comm, const struct read_abilities *all)
{
    struct source *source = stub->source;
    const struct mpi *mpi = pdla_mpi();
    bool one_node = (all->node ^ all->not_node) == ~UINT64_C(0), usable = all->usable != 0;
    bool writable = !(amode & AMODE_RDONLY);
    for (int i = 0; i < SIGHT_WORDS; i++)
        usable = usable && (all->sight[i] ^ all->not_sight[i]) == ~UINT64_C(0);
    if (writable && !(one_node && all->publishes))
        __atomic_store_n(&source->shared_by_nodes, true, __ATOMIC_RELAXED);
    /* Another node's writes show in the attributes only when its file system cares; collective reads ask the other ranks. */
    stub->independent = one_node || !writable;
    stub->why_not = unsuitable(amode);
    if (stub->why_not == NULL && !usable)
        stub->why_not = "no replica is usable";
    stub->comm = mpi->comm_null;
    stub->reads = stub->why_not == NULL && (comm == mpi->comm_null || mpi->Comm_dup(comm, &stub->comm) == 0);
    if (stub->why_not == NULL && !stub->reads)
        stub->why_not = "no communicator";
}

static void open_agreed(struct file_handle *handle, struct opening *opening)
{
    const struct mpi *mpi = pdla_mpi();
    const char *path = opening->path;
    const int amode = opening->amode;
    mpi_handle comm = opening->comm;
    int rank, ranks;
    if (mpi == NULL || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return;
    if (ranks == 1)
        comm = mpi->comm_null;
    const char *why = NULL;
    const struct loaded_map *map = map_current(map_name(), &why);
    report_opened(map, map_name(), map == NULL ? why : NULL, rank);
    struct stub_file *stub;
    struct read_abilities mine = look(handle == NULL ? NULL : map, path, amode, ranks == 1, &stub), all;
    mine.no_target = all_bits(rank != 0 || handle == NULL || map == NULL || recovery_target(map, path) == NULL);
    if (!agree_reduce(&mine, &all, (int)(sizeof mine / sizeof(uint64_t)), mpi->op_band, comm))
        all = (struct read_abilities){.no_target = ~UINT64_C(0)};
    if (stub != NULL) {
        agreed(stub, amode, comm, &all);
        redirection_of(handle)->stub = stub;
    }
    writer_open(handle, comm, rank, ranks, map, opening, all.no_target == 0);
}

/* Why the file must not be opened, on all ranks alike: a literal. */
static const char *settled(const struct opening *opening, int *lock)
{
    const struct mpi *mpi = pdla_mpi();
    const mpi_handle comm = opening->comm;
    char path[PATH_MAX];
    int rank, ranks, inter = 1;
    if (opening->name == NULL)
        return NULL;
    resolve_path(opening->name, path);
    /* RATIONALE: some ranks of a program that is only recorded may be without the library, and join no collective of it. */
    if (map_name() == NULL)
        return recovery_alone(path) == 0 ? NULL : "its newest bytes wait for pdla sync";
    if (mpi == NULL || comm == mpi->comm_null || mpi->Comm_test_inter(comm, &inter) != 0 || inter
        || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return NULL;
    return recovery_before_open(ranks == 1 ? mpi->comm_null : comm, rank, ranks, path, writer_wanted(opening->amode), lock);
}

int stub_opening(struct opening *opening)
{
    int error = errno, lock = -1;
    opening->notes[NOTE_BESIDE] = map_name() != NULL && opening->name != NULL && writer_wanted(opening->amode)
        && coherence_open(opening->name);
    const struct mpi *mpi = pdla_mpi();
    const char *refused = settled(opening, &lock);
    opening->notes[NOTE_LOCK] = lock;
    int rc = refused == NULL ? 0 : mpi->err_io;
    if (rc != 0)
        mpi->File_call_errhandler(mpi->file_null, rc);
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

void stub_opened(struct opening *opening, struct file_handle *handle)
{
    int error = errno;
    if (handle != NULL && (map_name() == NULL || !redirection_make(handle)))
        handle = NULL;
    if (map_name() != NULL)
        open_agreed(handle, opening);
    if (handle != NULL && stub_of(handle) == NULL && writer_of(handle) == NULL)
        redirection_free(handle);
    stub_not_opened(opening);
    errno = error;
}

void stub_not_opened(struct opening *opening)
{
    if (opening->notes[NOTE_LOCK] >= 0)
        close((int)opening->notes[NOTE_LOCK]);
    opening->notes[NOTE_LOCK] = -1;
}

struct stub_file *stub_known(const struct loaded_map *map, const char *path)
{
    struct stat found;
    int fd = freshness_find(path, &found);
    const struct map_file *file = fd < 0 ? NULL : map_find(map, path, found.st_dev, found.st_ino);
    struct stub_file *stub = file == NULL || file->replica_count == 0 ? NULL : make_stub(map, file);
    if (stub != NULL)
        stub->fd = fd;
    else if (fd >= 0)
        close(fd);
    return stub;
}

static void close_stub(struct file_handle *handle)
{
    struct stub_file *stub = stub_of(handle);
    while (__atomic_load_n(&stub->writes, __ATOMIC_RELAXED) > 0)
        replicas_write_end(handle);
    redirection_of(handle)->stub = NULL;
    if (stub->reads && stub->comm != pdla_mpi()->comm_null)
        pdla_mpi()->Comm_free(&stub->comm);
    stub_forget(stub);
}

int stub_closing(struct file_handle *handle)
{
    int error = errno, rc = writer_of(handle) == NULL ? 0 : writer_close(handle);
    if (stub_of(handle) != NULL)
        close_stub(handle);
    redirection_free(handle);
    errno = error;
    return rc;
}
