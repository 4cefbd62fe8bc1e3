/* seeking_disk: disks with a head each, in memory, as files that a FUSE file system serves in the
 * time that the disks would take (disk.h).
 *
 *     seeking_disk --disks N --size BYTES --striped BYTES --strip BYTES --bandwidth BYTES/S
 *                  [--overhead S] [--shortest S] [--longest S] [--rotation S] DIRECTORY
 *
 * mounts in DIRECTORY, until it gets a signal:
 *     striped          the first part of all disks, in strips dealt in turns; --striped bytes
 *     disk0, disk1 ... the rest of each, --size - --striped / N bytes
 *     counters         what each disk has done, a list of JSON objects in their order
 *     timed            1; or, when 0 is written to it: requests are served at once, and not counted
 * What is punched out of an image is memory again. Exit codes: 1, it cannot serve; 2, a wrong command line. */
#define FUSE_USE_VERSION 34

#include "disk.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <getopt.h>
#include <linux/falloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_DISKS = 16, MOST_BYTES = 1 << 20 }; /* of a request: what Linux passes on at once */
enum { ROOT = FUSE_ROOT_ID, COUNTERS, TIMED, STRIPED, DISK };
static const double FOREVER = 1e6; /* seconds for which the kernel may rely on names and sizes, which do not change */

static struct {
    unsigned disks;
    uint64_t size, striped, strip;
    struct model model;
    struct disk *disk[MOST_DISKS];
    char *memory; /* of disk after disk */
    atomic_int timed;
} heads = {.timed = 1};

/* A run of bytes of one disk. */
struct run {
    unsigned disk;
    uint64_t offset, length;
};

/* A request of the kernel, at one or several disks. */
struct transfer {
    fuse_req_t asked;
    size_t length;
    int write;
    atomic_uint left; /* parts that are not done */
    int pieces;
    struct iovec *piece; /* in the order of the file */
    struct part {
        struct request request;
        struct transfer *transfer;
    } part[MOST_DISKS];
};

static uint64_t column(void)
{
    return heads.striped / heads.disks;
}

static uint64_t size_of(fuse_ino_t file)
{
    if (file == STRIPED)
        return heads.striped;
    return file >= DISK ? heads.size - column() : 0;
}

/* The run that has byte `offset` of an image, from there to the end of its strip, but at most
 * `most` bytes. */
static struct run locate(fuse_ino_t file, uint64_t offset, uint64_t most)
{
    const uint64_t strip = offset / heads.strip, within = offset % heads.strip;
    if (file >= DISK)
        return (struct run){(unsigned)(file - DISK), column() + offset, most};
    return (struct run){
        (unsigned)(strip % heads.disks),
        strip / heads.disks * heads.strip + within,
        most < heads.strip - within ? most : heads.strip - within,
    };
}

static char *bytes_at(struct run run)
{
    return heads.memory + run.disk * heads.size + run.offset;
}

static void finish(struct transfer *transfer)
{
    if (transfer->write)
        fuse_reply_write(transfer->asked, transfer->length);
    else
        fuse_reply_iov(transfer->asked, transfer->piece, transfer->pieces);
    free(transfer->piece);
    free(transfer);
}

static void part_done(struct request *request)
{
    struct transfer *transfer = ((struct part *)request)->transfer;
    if (atomic_fetch_sub(&transfer->left, 1) == 1)
        finish(transfer);
}

/* Bytes of an image: `data` is copied there; NULL: a read. The strips of a request on one disk are
 * adjacent there. */
static void access_image(fuse_req_t asked, fuse_ino_t file, uint64_t offset, size_t length, const char *data)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    struct iovec *piece = calloc(length / heads.strip + 2, sizeof *piece);
    struct run parts[MOST_DISKS] = {{0}};
    unsigned left = 0;
    if (!transfer || !piece) {
        free(transfer);
        free(piece);
        fuse_reply_err(asked, ENOMEM);
        return;
    }
    transfer->asked = asked;
    transfer->length = length;
    transfer->write = data != NULL;
    transfer->piece = piece;
    for (size_t done = 0; done < length;) {
        const struct run run = locate(file, offset + done, length - done);
        struct run *part = &parts[run.disk];
        if (data)
            memcpy(bytes_at(run), data + done, run.length);
        piece[transfer->pieces++] = (struct iovec){bytes_at(run), run.length};
        if (!part->length)
            *part = run;
        else
            part->length += run.length;
        done += run.length;
    }
    if (!heads.timed) {
        finish(transfer);
        return;
    }
    for (unsigned i = 0; i < heads.disks; i++)
        left += parts[i].length > 0;
    transfer->left = left;
    for (unsigned i = 0; i < heads.disks; i++)
        if (parts[i].length) {
            struct part *part = &transfer->part[i];
            part->transfer = transfer;
            part->request = (struct request){.offset = parts[i].offset, .length = parts[i].length, .done = part_done};
            disk_take(heads.disk[i], &part->request);
            if (--left == 0) /* the transfer may be done, and its memory freed */
                return;
        }
}

static void reply_text(fuse_req_t asked, const char *text, size_t most)
{
    const size_t length = strlen(text);
    fuse_reply_buf(asked, text, length < most ? length : most);
}

static void reply_counters(fuse_req_t asked, size_t most)
{
    char text[MOST_DISKS * 200], *end = text;
    for (unsigned i = 0; i < heads.disks; i++) {
        const struct counters counters = disk_counters(heads.disk[i]);
        end += sprintf(end, "%s{\"requests\": %ju, \"bytes\": %ju, \"seeks\": %ju, \"distance\": %ju, \"busy\": %.6f}",
                       i ? ", " : "[", (uintmax_t)counters.requests, (uintmax_t)counters.bytes,
                       (uintmax_t)counters.seeks, (uintmax_t)counters.distance, counters.busy);
    }
    strcpy(end, "]\n");
    reply_text(asked, text, most);
}

static int describe(fuse_ino_t file, struct stat *found)
{
    if (file < ROOT || file >= DISK + heads.disks)
        return 0;
    memset(found, 0, sizeof *found);
    found->st_ino = file;
    found->st_mode = file == ROOT ? S_IFDIR | 0755 : file == COUNTERS ? S_IFREG | 0444 : S_IFREG | 0600;
    found->st_nlink = file == ROOT ? 2 : 1;
    found->st_uid = getuid();
    found->st_gid = getgid();
    found->st_size = (off_t)size_of(file);
    return 1;
}

static fuse_ino_t named(const char *name)
{
    if (!strcmp(name, "counters"))
        return COUNTERS;
    if (!strcmp(name, "timed"))
        return TIMED;
    if (!strcmp(name, "striped"))
        return STRIPED;
    for (unsigned i = 0; i < heads.disks; i++) {
        char disk[16];
        snprintf(disk, sizeof disk, "disk%u", i);
        if (!strcmp(name, disk))
            return DISK + i;
    }
    return 0;
}

static void on_init(void *data, struct fuse_conn_info *connection)
{
    (void)data;
    connection->max_write = connection->max_read = connection->max_readahead = MOST_BYTES;
    connection->max_background = 256;
    connection->congestion_threshold = 256;
    connection->want |= connection->capable & FUSE_CAP_ASYNC_DIO; /* a loop device may have many requests at a time */
}

static void on_lookup(fuse_req_t asked, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {
        .ino = parent == ROOT ? named(name) : 0, .attr_timeout = FOREVER, .entry_timeout = FOREVER};
    if (entry.ino && describe(entry.ino, &entry.attr))
        fuse_reply_entry(asked, &entry);
    else
        fuse_reply_err(asked, ENOENT);
}

static void on_getattr(fuse_req_t asked, fuse_ino_t file, struct fuse_file_info *info)
{
    struct stat found;
    (void)info;
    if (describe(file, &found))
        fuse_reply_attr(asked, &found, FOREVER);
    else
        fuse_reply_err(asked, ENOENT);
}

/* Sizes never change, even if a file is opened to be truncated. */
static void on_setattr(fuse_req_t asked, fuse_ino_t file, struct stat *wanted, int which, struct fuse_file_info *info)
{
    (void)wanted;
    (void)which;
    on_getattr(asked, file, info);
}

static void on_open(fuse_req_t asked, fuse_ino_t file, struct fuse_file_info *info)
{
    if (file == ROOT) {
        fuse_reply_err(asked, EISDIR);
        return;
    }
    info->direct_io = 1;
    fuse_reply_open(asked, info);
}

static void on_read(fuse_req_t asked, fuse_ino_t file, size_t length, off_t start, struct fuse_file_info *info)
{
    const uint64_t offset = (uint64_t)start, size = size_of(file);
    (void)info;
    if (file == TIMED && start == 0)
        reply_text(asked, heads.timed ? "1\n" : "0\n", length);
    else if (file == COUNTERS && start == 0) /* all in one read, since the text changes between two */
        reply_counters(asked, length);
    else if (offset >= size)
        fuse_reply_buf(asked, NULL, 0);
    else
        access_image(asked, file, offset, length < size - offset ? length : size - offset, NULL);
}

static void on_write(fuse_req_t asked, fuse_ino_t file, const char *data, size_t length, off_t start,
                     struct fuse_file_info *info)
{
    const uint64_t offset = (uint64_t)start, size = size_of(file);
    (void)info;
    if (file == TIMED && length && (*data == '0' || *data == '1')) {
        heads.timed = *data == '1';
        fuse_reply_write(asked, length);
    } else if (file == TIMED || file == COUNTERS)
        fuse_reply_err(asked, EINVAL);
    else if (offset > size || length > size - offset)
        fuse_reply_err(asked, ENOSPC);
    else if (!length)
        fuse_reply_write(asked, 0);
    else
        access_image(asked, file, offset, length, data);
}

static void on_fsync(fuse_req_t asked, fuse_ino_t file, int data_only, struct fuse_file_info *info)
{
    (void)file;
    (void)data_only;
    (void)info;
    fuse_reply_err(asked, 0); /* a write is answered when it is on the disk */
}

/* Bytes that are not needed any more become zeros. */
static void on_fallocate(fuse_req_t asked, fuse_ino_t file, int mode, off_t start, off_t length,
                         struct fuse_file_info *info)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t offset = (uint64_t)start, end = offset + (uint64_t)length;
    (void)info;
    if (file < STRIPED || mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        fuse_reply_err(asked, EOPNOTSUPP);
        return;
    }
    if (end > size_of(file))
        end = size_of(file);
    while (offset < end) {
        const struct run run = locate(file, offset, end - offset);
        char *first = bytes_at(run);
        if ((uintptr_t)first % page || run.length % page || madvise(first, run.length, MADV_DONTNEED))
            memset(first, 0, run.length);
        offset += run.length;
    }
    fuse_reply_err(asked, 0);
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
};

static int wrong(const char *what)
{
    fprintf(stderr, "seeking_disk: %s\n", what);
    return 2;
}

/* Sets the options and returns 0, or prints what is wrong with them. */
static int parse(int argc, char **argv)
{
    double disks = 0, size = 0, striped = 0, strip = 0;
    struct model *model = &heads.model;
    double *const values[] = {
        &disks, &size, &striped, &strip, &model->bandwidth, &model->overhead, &model->shortest, &model->longest,
        &model->rotation,
    };
    static const struct option OPTIONS[] = {
        {"disks", required_argument, NULL, 0},     {"size", required_argument, NULL, 1},
        {"striped", required_argument, NULL, 2},   {"strip", required_argument, NULL, 3},
        {"bandwidth", required_argument, NULL, 4}, {"overhead", required_argument, NULL, 5},
        {"shortest", required_argument, NULL, 6},  {"longest", required_argument, NULL, 7},
        {"rotation", required_argument, NULL, 8},  {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        char *end;
        if (option == '?')
            return 2;
        *values[option] = strtod(optarg, &end);
        if (end == optarg || *end || !isfinite(*values[option]) || *values[option] < 0) {
            fprintf(stderr, "seeking_disk: --%s needs a number of at least 0 (got %s)\n", OPTIONS[option].name, optarg);
            return 2;
        }
    }
    if (optind != argc - 1)
        return wrong("name one directory to mount in");
    if (disks < 1 || disks > MOST_DISKS || disks != floor(disks))
        return wrong("--disks needs a whole number from 1 to 16");
    if (strip < 1 || strip != floor(strip) || fmod(striped, disks * strip) != 0)
        return wrong("--striped must be a multiple of --disks times --strip, which must be a whole number from 1");
    if (size != floor(size) || size <= striped / disks || size * disks > 0x1p46)
        return wrong(
            "--size must be a whole number, more than each disk's part of --striped, of at most 64 TiB for all");
    if (model->bandwidth <= 0)
        return wrong("--bandwidth must be more than 0");
    if (model->longest < model->shortest)
        return wrong("--longest must not be less than --shortest");
    heads.disks = (unsigned)disks;
    heads.size = (uint64_t)size;
    heads.striped = (uint64_t)striped;
    heads.strip = (uint64_t)strip;
    model->size = size;
    return 0;
}

static int start_disks(void)
{
    heads.memory = mmap(NULL, heads.disks * heads.size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heads.memory == MAP_FAILED)
        return 0;
    for (unsigned i = 0; i < heads.disks; i++)
        if (!(heads.disk[i] = disk_start(&heads.model)))
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    static char max_read[32];
    char *mounting[] = {argv[0], (char *)"-o", max_read, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, mounting);
    struct fuse_session *session;
    int failed = parse(argc, argv);
    if (failed)
        return failed;
    if (!start_disks()) {
        perror("seeking_disk: no memory or threads for the disks");
        return 1;
    }
    snprintf(max_read, sizeof max_read, "fsname=heads,max_read=%d", MOST_BYTES);
    session = fuse_session_new(&args, &OPERATIONS, sizeof OPERATIONS, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[optind]))
        return 1; /* libfuse has printed why */
    failed = fuse_session_loop(session) < 0;
    fuse_session_unmount(session);
    return failed;
}
