#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "writer.h"

static const char *map_name(void)
{
    const char *name = getenv("PDLA_MAP");
    return name != NULL && *name != '\0' ? name : NULL;
}

/* What rank 0 says about the file. */
struct offer {
    uint64_t found;                /* 1: the map has replicas of it */
    uint64_t generation, checksum; /* of rank 0's map */
    uint64_t file, replica_count;  /* index of the file in it */
    uint64_t inode;
    int64_t size, mtime_ns;
};

/* What the ranks agree on: the AND of what each can do. */
enum {
    AGREED_REPLICAS = 1024, /* of one file; more are left unused */
    DESCRIPTOR_SHARE = 4    /* one of so many descriptors of the process may be a component's */
};
struct abilities {
    uint64_t publishes;       /* all bits or none */
    uint64_t node, not_node;  /* node_hash and its complement: their ANDs stay complements only where all are equal */
    uint64_t usable[AGREED_REPLICAS / 64];
};

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

static struct offer make_offer(const struct loaded_map *map, const char *path)
{
    struct stat found;
    const struct map_file *file = stat(path, &found) == 0 ? map_find(map, found.st_dev, found.st_ino) : NULL;
    if (file == NULL || file->replica_count == 0)
        return (struct offer){0};
    return (struct offer){
        .found = 1,
        .generation = map->header->generation,
        .checksum = map->header->checksum,
        .file = (uint64_t)(file - map->files),
        .replica_count = file->replica_count,
        .inode = found.st_ino,
        .size = found.st_size,
        .mtime_ns = nanoseconds(found.st_mtim),
    };
}

/* Descriptors of components, over all open files. */
static uint64_t descriptors;

/* RATIONALE: most of the descriptors that the process may have are the program's: its own opens must not fail for ours. */
static bool too_many_descriptors(uint32_t more)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) != 0
        || __atomic_load_n(&descriptors, __ATOMIC_RELAXED) + more > limit.rlim_cur / DESCRIPTOR_SHARE;
}

static void close_replica(const struct map_replica *replica, struct opened_replica *opened)
{
    if (opened->components == NULL)
        return;
    for (uint32_t i = 0; i < replica->servers; i++)
        if (opened->components[i] >= 0)
            close(opened->components[i]);
    __atomic_sub_fetch(&descriptors, replica->servers, __ATOMIC_RELAXED);
    free(opened->components);
    free(opened->ends);
    *opened = (struct opened_replica){.next = -1};
}

/* -1: it cannot be used, and *why says why not. */
static int open_component(const char *path, const struct map_component *component, const char **why)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        *why = errno == ENOENT ? "a component is missing" : "a component cannot be opened";
    else if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_ino != component->inode
             || found.st_size != component->size || nanoseconds(found.st_mtim) != component->mtime_ns)
        *why = "a component was changed";
    else if (found.st_uid != 0 && found.st_uid != geteuid())
        *why = "a component is neither the user's nor root's";
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Opens a replica's components. NULL: it can be used; else why not. */
static const char *open_replica(const struct loaded_map *map, const struct map_replica *replica,
                                struct opened_replica *opened)
{
    const struct map_component *components = map_at(map, replica->components);
    const char *why = NULL;
    opened->components = malloc(replica->servers * sizeof *opened->components);
    opened->ends = malloc(replica->servers * sizeof *opened->ends);
    if (opened->components == NULL || opened->ends == NULL) {
        free(opened->components);
        free(opened->ends);
        *opened = (struct opened_replica){.next = -1};
        return "out of memory";
    }
    __atomic_add_fetch(&descriptors, replica->servers, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < replica->servers; i++) {
        opened->components[i] = why != NULL ? -1 : open_component(map_at(map, components[i].path), &components[i], &why);
        if (why == NULL)
            opened->ends[i] = -1;
    }
    if (why != NULL)
        close_replica(replica, opened);
    return why;
}

/* A descriptor of the original of our own, the file that rank 0 found. -1: there is none. */
static int open_original(const char *path, int amode, const struct offer *offer, bool *readable)
{
    struct stat found;
    int fd = state_open(path, !(amode & AMODE_WRONLY), readable);
    if (fd >= 0 && (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_ino != offer->inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void free_stub(struct stub_file *stub)
{
    for (uint32_t i = 0; i < stub->source->file->replica_count; i++)
        close_replica(replica_of(stub->source, i), &stub->replicas[i]);
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
    stub->end = -1;
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

/* Opens what can be used here of a file's replicas and says so in `mine`. */
static void open_usable(struct stub_file *stub, const struct offer *offer, struct abilities *mine)
{
    struct source *source = stub->source;
    struct stat found;
    int64_t size;
    if (fstat(stub->fd, &found) != 0 || found.st_size != offer->size || nanoseconds(found.st_mtim) != offer->mtime_ns)
        return;
    if (state_check(source->map, source->file, stub->fd, &size) == STATE_CHANGED)
        return;
    for (uint32_t i = 0; i < source->file->replica_count && i < AGREED_REPLICAS; i++) {
        const struct map_replica *replica = replica_of(source, i);
        if (replica_refused(source, i) || state_stale(source->map, replica) != STALE_NOT
            || too_many_descriptors(replica->servers))
            continue;
        const char *why = open_replica(source->map, replica, &stub->replicas[i]);
        if (why == NULL)
            mine->usable[i / 64] |= UINT64_C(1) << i % 64;
        else
            replica_refuse(source, i, why);
    }
}

static void agreed(struct stub_file *stub, int amode, mpi_handle comm, const struct abilities *all)
{
    struct source *source = stub->source;
    const struct mpi *mpi = pdla_mpi();
    bool one_node = (all->node ^ all->not_node) == ~UINT64_C(0);
    bool writable = !(amode & AMODE_RDONLY), any = false;
    if (writable && !(one_node && all->publishes))
        __atomic_store_n(&source->shared_by_nodes, true, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        bool usable = i < AGREED_REPLICAS && all->usable[i / 64] >> i % 64 & 1;
        any |= usable;
        if (!usable)
            close_replica(replica_of(source, i), &stub->replicas[i]);
    }
    /* Another node's writes show in the attributes only when its file system cares; collective reads ask the other ranks. */
    stub->independent = one_node || !writable;
    stub->why_not = unsuitable(amode);
    if (stub->why_not == NULL && !any)
        stub->why_not = "no replica is usable";
    stub->comm = mpi->comm_null;
    stub->reads = stub->why_not == NULL && (comm == mpi->comm_null || mpi->Comm_dup(comm, &stub->comm) == 0);
    if (stub->why_not == NULL && !stub->reads)
        stub->why_not = "no communicator";
}

static void open_agreed(struct file_handle *handle, mpi_handle comm, const char *path, int amode)
{
    const struct mpi *mpi = pdla_mpi();
    int rank, ranks;
    if (mpi == NULL || mpi->Comm_rank(comm, &rank) != 0 || mpi->Comm_size(comm, &ranks) != 0)
        return;
    if (ranks == 1)
        comm = mpi->comm_null;
    const char *why = NULL;
    const struct loaded_map *map = map_current(map_name(), &why);
    report_opened(map, map == NULL ? why : NULL);
    struct offer offer = {0};
    if (rank == 0 && map != NULL && handle != NULL)
        offer = make_offer(map, path);
    if (!agree_broadcast(&offer, (int)sizeof offer, comm) || offer.found == 0)
        return;
    struct abilities mine = {0}, all;
    struct stub_file *stub = NULL;
    if (handle != NULL && map != NULL && map->header->generation == offer.generation
        && map->header->checksum == offer.checksum)
        stub = make_stub(map, &map->files[offer.file]);
    if (stub != NULL) {
        mine.node = comm == mpi->comm_null ? 0 : node_hash(map);
        mine.not_node = ~mine.node;
        bool readable = false;
        stub->fd = open_original(path, amode, &offer, &readable);
        mine.publishes = stub->fd >= 0 ? ~UINT64_C(0) : 0;
        if (stub->fd >= 0 && readable && unsuitable(amode) == NULL)
            open_usable(stub, &offer, &mine);
    }
    int words = (int)(offsetof(struct abilities, usable) / 8 + (offer.replica_count + 63) / 64);
    if (words > (int)(sizeof mine / 8))
        words = (int)(sizeof mine / 8);
    if (!agree_reduce(&mine, &all, words, mpi->op_band, comm))
        memset(&all, 0, sizeof all);
    if (stub != NULL) {
        agreed(stub, amode, comm, &all);
        handle->stub = stub;
    }
}

bool stub_opening(const char *name, int amode)
{
    int error = errno;
    bool beside = map_name() != NULL && name != NULL && writer_wanted(amode) && beside_open(name);
    errno = error;
    return beside;
}

void stub_opened(struct file_handle *handle, mpi_handle comm, const char *path, int amode, bool beside)
{
    if (map_name() == NULL)
        return;
    int error = errno;
    open_agreed(handle, comm, path, amode);
    writer_open(handle, comm, path, amode, beside);
    errno = error;
}

static void close_stub(struct file_handle *handle)
{
    struct stub_file *stub = handle->stub;
    while (__atomic_load_n(&stub->writes, __ATOMIC_RELAXED) > 0)
        replicas_write_end(handle);
    handle->stub = NULL;
    if (stub->reads && stub->comm != pdla_mpi()->comm_null)
        pdla_mpi()->Comm_free(&stub->comm);
    free_stub(stub);
}

int stub_closing(struct file_handle *handle)
{
    int error = errno, rc = handle->writer == NULL ? 0 : writer_close(handle);
    if (handle->stub != NULL)
        close_stub(handle);
    errno = error;
    return rc;
}
