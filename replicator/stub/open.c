#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stub.h"

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
enum { AGREED_REPLICAS = 1024 /* of one file; more are left unused */ };
struct agreement {
    uint64_t publishes;       /* all bits or none */
    uint64_t node, not_node;  /* a hash of the node and its complement: the AND keeps both only on a single node */
    uint64_t usable[AGREED_REPLICAS / 64];
};

/* Ranks with the same hash share memory, and so the state file. */
static uint64_t node_hash(void)
{
    char name[256] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, name, sizeof name - 1) <= 0)
        gethostname(name, sizeof name - 1);
    if (fd >= 0)
        close(fd);
    return (uint64_t)crc32c(0, name, strlen(name)) << 32 | crc32c(1, name, strlen(name));
}

static int64_t mtime_ns(const struct stat *found)
{
    return found->st_mtim.tv_sec * INT64_C(1000000000) + found->st_mtim.tv_nsec;
}

static const struct map_file *find_file(const struct loaded_map *map, const char *path, struct offer *offer)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return NULL;
    const struct map_file *file = map_find(map, found.st_dev, found.st_ino);
    if (file == NULL || file->replica_count == 0)
        return NULL;
    *offer = (struct offer){1, map->header->generation, map->header->checksum, (uint64_t)(file - map->files),
                            file->replica_count, found.st_ino, found.st_size, mtime_ns(&found)};
    return file;
}

static void close_all(int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

/* Opens a replica's components. NULL: it can be used; else why not. */
static const char *open_components(const struct loaded_map *map, const struct map_replica *replica, struct opened_replica *opened)
{
    const struct map_component *components = map_at(map, replica->components);
    opened->components = malloc(replica->servers * sizeof *opened->components);
    opened->ends = malloc(replica->servers * sizeof *opened->ends);
    const char *why = opened->components == NULL || opened->ends == NULL ? "out of memory" : NULL;
    uint32_t done = 0;
    for (; why == NULL && done < replica->servers; done++) {
        struct stat found;
        int fd = open(map_at(map, components[done].path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        opened->components[done] = fd;
        opened->ends[done] = -1;
        if (fd < 0) {
            why = errno == ENOENT ? "a component is missing" : "a component cannot be opened";
            break;
        }
        if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_ino != components[done].inode
            || found.st_size != components[done].size || mtime_ns(&found) != components[done].mtime_ns)
            why = "a component was changed";
        else if (found.st_uid != 0 && found.st_uid != geteuid())
            why = "a component is neither the user's nor root's";
    }
    if (why != NULL) {
        close_all(opened->components, opened->components == NULL ? 0 : done);
        free(opened->components);
        free(opened->ends);
        *opened = (struct opened_replica){.next = -1};
    }
    return why;
}

static void close_replica(const struct map_replica *replica, struct opened_replica *opened)
{
    if (opened->components != NULL)
        close_all(opened->components, replica->servers);
    free(opened->components);
    free(opened->ends);
    *opened = (struct opened_replica){.next = -1};
}

static const struct map_replica *replica_of(const struct source *source, uint32_t i)
{
    return &source->map->replicas[source->file->first_replica + i];
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
static void open_usable(struct stub_file *stub, const struct offer *offer, struct agreement *mine)
{
    struct source *source = stub->source;
    struct stat found;
    int64_t size;
    if (fstat(stub->fd, &found) != 0 || found.st_size != offer->size
        || mtime_ns(&found) != offer->mtime_ns || state_check(source->map, source->file, stub->fd, &size) == STATE_CHANGED)
        return;
    for (uint32_t i = 0; i < source->file->replica_count && i < AGREED_REPLICAS; i++) {
        const struct map_replica *replica = replica_of(source, i);
        if (replica_refused(source, i) || state_stale(source->map, replica) != STALE_NOT)
            continue;
        const char *why = open_components(source->map, replica, &stub->replicas[i]);
        if (why == NULL)
            mine->usable[i / 64] |= UINT64_C(1) << i % 64;
        else
            replica_refuse(source, i, why);
    }
}

static void agreed(struct stub_file *stub, int amode, mpi_handle comm, const struct agreement *all)
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
    stub->reads = stub->why_not == NULL && mpi->Comm_dup(comm, &stub->comm) == 0;
    if (stub->why_not == NULL && !stub->reads)
        stub->why_not = "no communicator";
}

static void open_agreed(struct file_handle *handle, mpi_handle comm, const char *path, int amode)
{
    const struct mpi *mpi = pdla_mpi();
    int rank;
    if (mpi == NULL || mpi->Comm_rank(comm, &rank) != 0)
        return;
    const char *why = NULL;
    const struct loaded_map *map = map_current(map_name(), &why);
    report_opened(map, map == NULL ? why : NULL);
    struct offer offer = {0};
    if (rank == 0 && map != NULL && handle != NULL)
        find_file(map, path, &offer);
    if (mpi->Bcast(&offer, (int)sizeof offer, mpi->byte, 0, comm) != 0 || offer.found == 0)
        return;
    struct agreement mine = {0}, all;
    struct stub_file *stub = NULL;
    if (handle != NULL && map != NULL && map->header->generation == offer.generation
        && map->header->checksum == offer.checksum)
        stub = make_stub(map, &map->files[offer.file]);
    mine.node = node_hash();
    mine.not_node = ~mine.node;
    if (stub != NULL) {
        bool readable = false;
        stub->fd = open_original(path, amode, &offer, &readable);
        mine.publishes = stub->fd >= 0 ? ~UINT64_C(0) : 0;
        if (stub->fd >= 0 && readable && unsuitable(amode) == NULL)
            open_usable(stub, &offer, &mine);
    }
    int words = (int)(offsetof(struct agreement, usable) / 8 + (offer.replica_count + 63) / 64);
    if (words > (int)(sizeof mine / 8))
        words = (int)(sizeof mine / 8);
    if (mpi->Allreduce(&mine, &all, words, mpi->int64, mpi->op_band, comm) != 0)
        memset(&all, 0, sizeof all);
    if (stub != NULL) {
        agreed(stub, amode, comm, &all);
        handle->stub = stub;
    }
}

void stub_opened(struct file_handle *handle, mpi_handle comm, const char *path, int amode)
{
    if (map_name() == NULL)
        return;
    int error = errno;
    open_agreed(handle, comm, path, amode);
    errno = error;
}

void stub_closing(struct file_handle *handle)
{
    struct stub_file *stub = handle->stub;
    if (stub == NULL)
        return;
    int error = errno;
    while (__atomic_load_n(&stub->writes, __ATOMIC_RELAXED) > 0)
        stub_write_end(handle);
    handle->stub = NULL;
    if (stub->reads)
        pdla_mpi()->Comm_free(&stub->comm);
    free_stub(stub);
    errno = error;
}
