/* A random but valid MPI-IO program: random_io DIRECTORY FILES OUT SEED FIRST LAST runs the phases
 * [FIRST, LAST) of program SEED on the files DIRECTORY/0, DIRECTORY/1, ...
 *
 * For each call OUT.<rank> gets a line with all that a program can see of it: error class, counts,
 * file pointer, size and a hash of the buffer. Sync, barrier, sync order conflicting accesses.
 * Bytes after the end of the file are left out: through views with holes MPI libraries leave
 * anything there. */
#include <mpi.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 19, REQUESTS = 4, QUIET = 2048 /* bytes at the start of each file that writes prefer */ };

struct open_file {
    MPI_File file;
    MPI_Comm comm;
    bool writable, plain /* a view of bytes, the same on all ranks */;
    int etype_size;
    MPI_Offset units; /* about how many etypes the file has in this view */
};

struct memory {
    MPI_Datatype type; /* of `units` etypes, in `span` bytes of memory */
    int units, span;
};

static uint64_t together, alone; /* random states: one that all ranks share, and this rank's own */
static int rank, ranks;
static FILE *out;
static char *buffer;
static int phase, turn;
static bool changing; /* other ranks may be writing: the size proves nothing */

static int pick(uint64_t *state, int below)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (int)((z ^ z >> 31) % (uint64_t)(below > 0 ? below : 1));
}

static uint64_t hash(const void *bytes, size_t size)
{
    uint64_t value = 14695981039346656037u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return value;
}

/* ---- datatypes ---- */

static int etype_size(int which) { return (int[]){1, 4, 8, 3}[which]; }

/* Of bytes: MPICH 5 fails an assertion if the basic types of view and memory differ. */
static MPI_Datatype make_etype(int which)
{
    MPI_Datatype type;
    MPI_Type_contiguous(etype_size(which), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Etypes with holes, in ascending order. */
static MPI_Datatype make_filetype(MPI_Datatype etype, int size)
{
    MPI_Datatype type, inner;
    int lengths[6], places[6], count = 1 + pick(&alone, 6), at = 0;
    for (int i = 0; i < count; i++) {
        places[i] = at + pick(&alone, 2) * pick(&alone, 40);
        lengths[i] = 1 + pick(&alone, 40);
        at = places[i] + lengths[i];
    }
    switch (pick(&alone, 6)) {
    case 0:
        MPI_Type_contiguous(1 + pick(&alone, 50), etype, &type);
        break;
    case 1: {
        int blocks = 1 + pick(&alone, 30), length = 1 + pick(&alone, 30);
        MPI_Type_vector(blocks, length, length + pick(&alone, 60), etype, &inner);
        MPI_Type_create_resized(inner, 0, (MPI_Aint)size * (1 + pick(&alone, 3)) * (blocks * 90), &type);
        MPI_Type_free(&inner);
        break;
    }
    case 2: {
        int sizes[3], parts[3], starts[3], dimensions = 1 + pick(&alone, 3);
        for (int d = 0; d < dimensions; d++) {
            sizes[d] = 1 + pick(&alone, 14);
            parts[d] = 1 + pick(&alone, sizes[d]);
            starts[d] = pick(&alone, sizes[d] - parts[d] + 1);
        }
        MPI_Type_create_subarray(dimensions, sizes, parts, starts, pick(&alone, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                                 etype, &type);
        break;
    }
    case 3:
        MPI_Type_indexed(count, lengths, places, etype, &type);
        break;
    case 4: {
        MPI_Datatype types[6];
        MPI_Aint bytes[6];
        for (int i = 0; i < count; i++) {
            types[i] = etype;
            bytes[i] = (MPI_Aint)places[i] * size;
        }
        MPI_Type_create_struct(count, lengths, bytes, types, &inner);
        MPI_Type_create_resized(inner, 0, (MPI_Aint)(at + pick(&alone, 50)) * size, &type);
        MPI_Type_free(&inner);
        break;
    }
    default:
        MPI_Type_create_hvector(1 + pick(&alone, 5), 1 + pick(&alone, 9), (MPI_Aint)size * (9 + pick(&alone, 9)), etype,
                                &inner);
        MPI_Type_vector(1 + pick(&alone, 4), 1, 1 + pick(&alone, 3), inner, &type);
        MPI_Type_free(&inner);
    }
    MPI_Type_commit(&type);
    return type;
}

static struct memory make_memory(int size)
{
    struct memory memory = {.units = 1, .span = size};
    MPI_Datatype inner;
    switch (pick(&alone, 4)) {
    case 0: {
        int blocks = 1 + pick(&alone, 5), length = 1 + pick(&alone, 4), stride = length + pick(&alone, 4);
        MPI_Type_vector(blocks, length * size, stride * size, MPI_BYTE, &memory.type);
        memory.units = blocks * length;
        memory.span = blocks * stride * size;
        break;
    }
    case 1: {
        /* The later bytes of the stream come first in memory. */
        int lengths[2] = {3 * size, 2 * size}, places[2] = {9 * size, 1 * size};
        MPI_Type_indexed(2, lengths, places, MPI_BYTE, &inner);
        MPI_Type_create_resized(inner, 0, 14 * size, &memory.type);
        MPI_Type_free(&inner);
        memory.units = 5;
        memory.span = 14 * size;
        break;
    }
    default:
        MPI_Type_contiguous(size, MPI_BYTE, &memory.type);
    }
    MPI_Type_commit(&memory.type);
    return memory;
}

/* ---- what the program sees ---- */

static long long position_of(MPI_File file)
{
    MPI_Offset position = -1;
    MPI_File_get_position(file, &position);
    return position;
}

static long long size_of(MPI_File file)
{
    MPI_Offset size = -1;
    MPI_File_get_size(file, &size);
    return size;
}

/* How many of the `count` etypes from `offset` on are inside the file. */
static int inside(const struct open_file *open, MPI_Offset offset, int count)
{
    MPI_Offset byte, size = size_of(open->file);
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        MPI_File_get_byte_offset(open->file, offset + middle - 1, &byte);
        if (byte + open->etype_size <= size)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void say(const struct open_file *open, const char *what, int rc, const MPI_Status *status, uint64_t seen)
{
    int class = MPI_SUCCESS, bytes = -1, ints = -1;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    else if (status != NULL) {
        MPI_Get_count(status, MPI_BYTE, &bytes);
        MPI_Get_count(status, MPI_INT, &ints);
    }
    fprintf(out, "%d.%d %s class=%d bytes=%d ints=%d position=%lld size=%lld %016llx\n", phase, turn, what, class,
            bytes, ints, position_of(open->file), changing ? -1 : size_of(open->file), (unsigned long long)seen);
}

/* Hash of what a read of `count` memory types from `offset` on put at `where`, without bytes past
 * the end of the file. */
static uint64_t seen_at(const struct open_file *open, const char *where, const struct memory *memory, int count,
                        MPI_Offset offset)
{
    int known = offset < 0 ? 0 : inside(open, offset, count * memory->units);
    if (known == count * memory->units)
        return hash(where, (size_t)count * (size_t)memory->span);
    char *packed = malloc((size_t)count * (size_t)memory->units * (size_t)open->etype_size);
    int at = 0;
    MPI_Pack(where, count, memory->type, packed, count * memory->units * open->etype_size, &at, MPI_COMM_SELF);
    uint64_t value = hash(packed, (size_t)known * (size_t)open->etype_size);
    free(packed);
    return value;
}

/* ---- reads ---- */

enum kind { READ, READ_AT, READ_ALL, READ_AT_ALL, LARGE, LARGE_AT_ALL, SPLIT, SPLIT_AT, BLOCKING,
            IREAD = BLOCKING, IREAD_AT, IREAD_ALL, IREAD_AT_ALL, KINDS };
static const char *const names[] = {"read",  "read_at",  "read_all", "read_at_all", "read_c",    "read_at_all_c",
                                    "split", "split_at", "iread",    "iread_at",    "iread_all", "iread_at_all"};

static bool is_explicit(enum kind kind)
{
    return kind == READ_AT || kind == READ_AT_ALL || kind == LARGE_AT_ALL || kind == SPLIT_AT || kind == IREAD_AT
        || kind == IREAD_AT_ALL;
}

static int read_blocking(MPI_File file, enum kind kind, MPI_Offset offset, void *where, int count, MPI_Datatype type,
                         MPI_Status *status)
{
    int rc;
    switch (kind) {
    case READ_AT:
        return MPI_File_read_at(file, offset, where, count, type, status);
    case READ_ALL:
        return MPI_File_read_all(file, where, count, type, status);
    case READ_AT_ALL:
        return MPI_File_read_at_all(file, offset, where, count, type, status);
#if MPI_VERSION >= 4
    case LARGE:
        return MPI_File_read_c(file, where, count, type, status);
    case LARGE_AT_ALL:
        return MPI_File_read_at_all_c(file, offset, where, count, type, status);
#else
    case LARGE_AT_ALL:
        return MPI_File_read_at_all(file, offset, where, count, type, status);
#endif
    case SPLIT:
        rc = MPI_File_read_all_begin(file, where, count, type);
        return rc == MPI_SUCCESS ? MPI_File_read_all_end(file, where, status) : rc;
    case SPLIT_AT:
        rc = MPI_File_read_at_all_begin(file, offset, where, count, type);
        return rc == MPI_SUCCESS ? MPI_File_read_at_all_end(file, where, status) : rc;
    default:
        return MPI_File_read(file, where, count, type, status);
    }
}

static int read_nonblocking(MPI_File file, enum kind kind, MPI_Offset offset, void *where, int count, MPI_Datatype type,
                            MPI_Request *request)
{
    switch (kind) {
    case IREAD_AT:
        return MPI_File_iread_at(file, offset, where, count, type, request);
    case IREAD_ALL:
        return MPI_File_iread_all(file, where, count, type, request);
    case IREAD_AT_ALL:
        return MPI_File_iread_at_all(file, offset, where, count, type, request);
    default:
        return MPI_File_iread(file, where, count, type, request);
    }
}

static void complete(int how, int count, MPI_Request *requests, MPI_Status *statuses)
{
    int flag = 0, index = 0;
    switch (how) {
    case 0:
        MPI_Waitall(count, requests, statuses);
        break;
    case 1:
        for (int i = 0; i < count; i++)
            MPI_Wait(&requests[i], &statuses[i]);
        break;
    case 2:
        for (int i = count; i-- > 0; flag = 0)
            while (!flag)
                MPI_Test(&requests[i], &flag, &statuses[i]);
        break;
    default:
        for (int i = 0; i < count; i++) {
            MPI_Status status;
            MPI_Waitany(count, requests, &index, &status);
            statuses[index] = status;
        }
    }
    for (int i = 0; i < count; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            fprintf(out, "%d.%d request %d is left\n", phase, turn, i);
}

/* Where a read goes, in etypes: anywhere, now and then across the end of the file. */
static MPI_Offset place(const struct open_file *open)
{
    switch (pick(&alone, 12)) {
    case 0:
        return open->units > 9 ? open->units - 9 : 0;
    case 1:
        return 0;
    default:
        return pick(&alone, (int)open->units);
    }
}

static int length(const struct memory *memory, int most)
{
    int limit = most / (memory->span > memory->units ? memory->span : memory->units);
    return pick(&alone, 8) == 0 ? 0 : 1 + pick(&alone, pick(&alone, 2) ? limit : 1 + limit / 16);
}

static void read_once(const struct open_file *open, enum kind kind, const struct memory *memory, MPI_Offset offset,
                      int count)
{
    MPI_Status status;
    bool ignored = pick(&alone, 8) == 0;
    memset(buffer, 0xA5, (size_t)count * (size_t)memory->span + 64);
    if (!is_explicit(kind))
        offset = position_of(open->file);
    if (kind == SPLIT || kind == SPLIT_AT)
        count = inside(open, offset, count * memory->units) / memory->units;
    int rc =
        read_blocking(open->file, kind, offset, buffer, count, memory->type, ignored ? MPI_STATUS_IGNORE : &status);
    say(open, names[kind], rc, ignored ? NULL : &status, seen_at(open, buffer, memory, count, offset));
}

static void read_blockingly(const struct open_file *open)
{
    enum kind kind = (enum kind)pick(&together, BLOCKING);
    /* A run of reads: one after the other, or each somewhere else. */
    int turns = pick(&together, 3) == 0 ? 2 + pick(&together, 24) : 1;
    bool onwards = pick(&together, 2);
    struct memory memory = make_memory(open->etype_size);
    int count = length(&memory, turns > 1 ? 4000 : 40000);
    MPI_Offset offset = place(open);
    for (int i = 0; i < turns; i++) {
        read_once(open, kind, &memory, offset, count);
        offset = onwards ? offset + (MPI_Offset)count * memory.units : place(open);
    }
    MPI_Type_free(&memory.type);
}

/* Inside the file, and collective ones one by one: otherwise Open MPI does not end and MPICH fails
 * an assertion. No Testall, in which MPICH 5 takes old contents of the statuses for errors. */
static void read_nonblockingly(const struct open_file *open)
{
    enum kind kind = (enum kind)(BLOCKING + pick(&together, KINDS - BLOCKING));
    int many = kind >= IREAD_ALL ? 1 : 1 + pick(&together, REQUESTS), counts[REQUESTS], part = BUFFER / REQUESTS,
        rcs[REQUESTS];
    MPI_Request requests[REQUESTS];
    MPI_Status statuses[REQUESTS];
    MPI_Offset offsets[REQUESTS];
    struct memory memory = make_memory(open->etype_size);
    memset(buffer, 0xA5, BUFFER);
    for (int i = 0; i < many; i++) {
        counts[i] = length(&memory, 20000);
        offsets[i] = is_explicit(kind) ? place(open) : position_of(open->file);
        counts[i] = inside(open, offsets[i], counts[i] * memory.units) / memory.units;
        rcs[i] =
            read_nonblocking(open->file, kind, offsets[i], buffer + i * part, counts[i], memory.type, &requests[i]);
        if (rcs[i] != MPI_SUCCESS)
            requests[i] = MPI_REQUEST_NULL;
    }
    complete(kind >= IREAD_ALL ? 0 : pick(&alone, 4), many, requests, statuses);
    for (int i = 0; i < many; i++)
        say(open, names[kind], rcs[i], &statuses[i], seen_at(open, buffer + i * part, &memory, counts[i], offsets[i]));
    MPI_Type_free(&memory.type);
}

/* ---- everything else ---- */

static void set_view(struct open_file *open, MPI_Offset displacement, int which, MPI_Datatype filetype)
{
    MPI_Datatype etype = make_etype(which);
    MPI_Count low, extent, size;
    open->etype_size = etype_size(which);
    open->plain = false;
    if (filetype == MPI_DATATYPE_NULL)
        filetype = make_filetype(etype, open->etype_size);
    int rc = MPI_File_set_view(open->file, displacement, etype, filetype, "native", MPI_INFO_NULL);
    MPI_Type_get_extent_x(filetype, &low, &extent);
    MPI_Type_size_x(filetype, &size);
    double data = (double)(size_of(open->file) - displacement) * (double)size / (double)extent;
    open->units = data > 0 ? (MPI_Offset)(data / open->etype_size) : 0;
    say(open, "set_view", rc, NULL, 0);
    MPI_Type_free(&etype);
    MPI_Type_free(&filetype);
}

static void plain_view(struct open_file *open)
{
    MPI_Datatype bytes;
    MPI_Type_dup(MPI_BYTE, &bytes);
    set_view(open, 0, 0, bytes);
    open->plain = true;
}

static void seek(const struct open_file *open)
{
    static const int whences[] = {MPI_SEEK_SET, MPI_SEEK_CUR, MPI_SEEK_END};
    int whence = pick(&alone, 3);
    MPI_Offset offset = whence == 0 ? place(open) : whence == 1 ? pick(&alone, 99) - 50 : -pick(&alone, 2000);
    say(open, "seek", MPI_File_seek(open->file, offset, whences[whence]), NULL, 0);
}

static void settle(const struct open_file *files, int count, MPI_Comm comm)
{
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < count; j++)
            MPI_File_sync(files[j].file);
        if (i == 0)
            MPI_Barrier(comm);
    }
}

static void read_shared(struct open_file *open)
{
    MPI_Status status;
    int count = 1 + pick(&alone, 300);
    plain_view(open);
    MPI_File_seek_shared(open->file, pick(&together, (int)open->units), MPI_SEEK_SET);
    memset(buffer, 0xA5, 400);
    if (pick(&together, 2)) {
        int rc = MPI_File_read_ordered(open->file, buffer, count, MPI_BYTE, &status);
        say(open, "read_ordered", rc, &status, hash(buffer, 400));
    } else if (rank == 0) {
        int rc = MPI_File_read_shared(open->file, buffer, count, MPI_BYTE, &status);
        say(open, "read_shared", rc, &status, hash(buffer, 400));
    }
    MPI_Barrier(open->comm);
}

/* Each rank writes bytes of its own: whole parts one after the other, or pieces dealt to the ranks.
 */
static void write_some(struct open_file *open, MPI_Offset size)
{
    MPI_Status status;
    MPI_Request request;
    int kind = pick(&together, 8), piece = 1 + pick(&together, 60), pieces = 1 + pick(&together, 4);
    int bytes = pick(&alone, 5) == 0 ? 0 : piece * pieces, rc;
    bool dealt = pick(&together, 2);
    MPI_Offset offset = dealt ? 0 : (MPI_Offset)rank * piece * pieces;
    MPI_Offset base = pick(&together, 4) ? pick(&together, QUIET - 1024) : pick(&together, (int)size);
    if (dealt) {
        MPI_Datatype block, strided;
        MPI_Type_contiguous(piece, MPI_BYTE, &block);
        MPI_Type_create_resized(block, 0, (MPI_Aint)piece * ranks, &strided);
        MPI_Type_commit(&strided);
        MPI_Type_free(&block);
        set_view(open, base + (MPI_Offset)rank * piece, 0, strided);
    } else {
        plain_view(open);
        offset += base;
    }
    for (int i = 0; i < bytes; i++)
        buffer[i] = (char)pick(&alone, 256);
    MPI_File_seek(open->file, offset, MPI_SEEK_SET);
    switch (kind) {
    case 0:
        rc = MPI_File_write_at(open->file, offset, buffer, bytes, MPI_BYTE, &status);
        break;
    case 1:
        rc = MPI_File_write(open->file, buffer, bytes, MPI_BYTE, &status);
        break;
    case 2:
        rc = MPI_File_write_all(open->file, buffer, bytes, MPI_BYTE, &status);
        break;
    case 3:
        rc = MPI_File_write_at_all(open->file, offset, buffer, bytes, MPI_BYTE, &status);
        break;
    case 4:
        rc = MPI_File_iwrite_at(open->file, offset, buffer, bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
        break;
    case 5:
        rc = MPI_File_iwrite(open->file, buffer, bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
        break;
    case 6:
        rc = MPI_File_write_all_begin(open->file, buffer, bytes, MPI_BYTE);
        MPI_File_write_all_end(open->file, buffer, &status);
        break;
    default:
        plain_view(open);
        MPI_File_seek_shared(open->file, base, MPI_SEEK_SET);
        rc = MPI_File_write_ordered(open->file, buffer, bytes, MPI_BYTE, &status);
    }
    say(open, "write", rc, &status, (uint64_t)kind);
}

static void resize(struct open_file *open, MPI_Offset size)
{
    if (pick(&together, 2))
        say(open, "preallocate", MPI_File_preallocate(open->file, size - 500 + pick(&together, 1000)), NULL, 0);
    else
        say(open, "set_size", MPI_File_set_size(open->file, size * (2 + pick(&together, 3)) / 3), NULL, 0);
}

static void change(struct open_file *open, const struct open_file *files, int count)
{
    MPI_Offset size = size_of(open->file); /* no other rank can have begun to change it */
    settle(files, count, open->comm);
    changing = true;
    if (pick(&together, 12) == 0)
        resize(open, size);
    else
        write_some(open, size);
    settle(files, count, open->comm);
    changing = false;
}

static void take_turn(struct open_file *open, const struct open_file *files, int count)
{
    int what = pick(&together, 24);
    if (what < 4)
        set_view(open, pick(&alone, 3000), pick(&together, 4), MPI_DATATYPE_NULL);
    else if (what < 6)
        seek(open);
    else if (what < 14)
        read_blockingly(open);
    else if (what < 18)
        read_nonblockingly(open);
    else if (what == 18)
        read_shared(open);
    else if (what == 19)
        plain_view(open);
    else if (open->writable && what == 20)
        say(open, "set_atomicity", MPI_File_set_atomicity(open->file, pick(&together, 3) == 0), NULL, 0);
    else if (open->writable)
        change(open, files, count);
}

static MPI_Comm make_comm(bool *split)
{
    MPI_Comm comm;
    int how = pick(&together, 8);
    *split = how < 2;
    MPI_Comm_split(MPI_COMM_WORLD, how == 0 ? rank : how == 1 ? rank % 2 : 0, how == 2 ? -rank : rank, &comm);
    return comm;
}

static void run_phase(const char *directory, int files)
{
    struct open_file open[2];
    char path[4096];
    bool split;
    MPI_Comm comm = make_comm(&split);
    int which = pick(&together, files), opened = 1 + (pick(&together, 4) == 0), count = 0;
    bool writable = !split && pick(&together, 3) == 0, same = pick(&together, 2);
    for (int i = 0; i < opened; i++) {
        open[i] = (struct open_file){.comm = comm, .writable = writable, .etype_size = 1, .plain = true};
        snprintf(path, sizeof path, "%s/%d", directory, i == 0 || same ? which : (which + 1) % files);
        int rc = MPI_File_open(comm, path, writable ? MPI_MODE_RDWR : MPI_MODE_RDONLY, MPI_INFO_NULL, &open[i].file);
        if (rc != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 3);
        open[i].units = size_of(open[i].file);
        count++;
    }
    int turns = 3 + pick(&together, 14);
    for (turn = 0; turn < turns; turn++)
        take_turn(&open[pick(&together, count)], open, count);
    for (int i = 0; i < count; i++)
        MPI_File_close(&open[i].file);
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    char name[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 7)
        MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(name, sizeof name, "%s.%d", argv[3], rank);
    out = fopen(name, "w");
    setvbuf(out, NULL, _IOLBF, 1 << 16);
    buffer = malloc(BUFFER);
    for (phase = atoi(argv[5]); phase < atoi(argv[6]); phase++) {
        together = (uint64_t)atoi(argv[4]) << 32 | (uint64_t)phase << 8;
        alone = together + 1 + (uint64_t)rank;
        pick(&alone, 2);
        together = together * 0x2545F4914F6CDD1Du;
        alone = alone * 0x2545F4914F6CDD1Du;
        run_phase(argv[1], atoi(argv[2]));
    }
    fclose(out);
    free(buffer);
    MPI_Finalize();
    return 0;
}
