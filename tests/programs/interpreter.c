/* Runs the MPI-IO programs of a text, which tests/searches/mpiio.py describes: interpreter TEXT DIRECTORY
 * OUT.
 *
 * Program N works in DIRECTORY/N. For each call OUT.<rank> gets a line with all that a program can
 * see of it: error class, counts, file pointer, size and a hash of the buffer.
 *
 * Any text is a valid MPI program, whatever lines are left out of it. Calls on a slot that is not
 * open are skipped. Sync, barrier, sync order conflicting accesses. Ranks write only to bytes of
 * their own. Operations beside which MPI allows no others wait until these are completed. The
 * program does not look at what MPI leaves undefined: bytes after the end of the file, the size
 * while others write. */
#include <mpi.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4, WORDS = 12, REQUESTS = 16, NAME = 64, BACK = 64 /* guard bytes behind each buffer */,
       PATIENCE = 60 /* seconds for a program, after which MPI counts as hanging */ };

/* A data call that has begun. */
struct transfer {
    const struct call *call;
    char *buffer;
    size_t span;         /* bytes of the buffer */
    int count;
    MPI_Datatype type;
    MPI_Offset unit;     /* bytes of data in one `type` */
    MPI_Offset known;    /* bytes of the data that are in the file */
    int rc;
    bool ignored;        /* the program wants no status */
    MPI_Request request;
};

struct slot {
    MPI_File file;
    bool open;
    char name[NAME];
    int amode;
    int members;         /* ranks that opened it together */
    bool uniform;        /* all ranks have the same view */
    bool converts;       /* the data are not in the native representation */
    bool plain;          /* no view has been set */
    bool aside;          /* this rank writes nothing where others write bytes of their own */
    bool dealt, block;   /* each rank has bytes of its own in this view; they are `limit` in one block */
    MPI_Offset limit;
    MPI_Offset settled;  /* size when it was last settled */
    bool dirty;          /* written to since then */
    MPI_Offset etype_size;
    struct transfer split; /* .call NULL: none */
    struct transfer requests[REQUESTS];
    int outstanding;
};

static struct slot slots[SLOTS];
static int rank, ranks, line, program;
static FILE *out;
static const char *directory;
static char *words[WORDS];

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Word `i`, or this rank's of its alternatives "a|b|c". */
static const char *word(int i)
{
    static char chosen[8][1024];
    static int next;
    char *copy = chosen[next++ % 8], *save;
    int alternatives = 1;
    if (words[i] == NULL)
        return "";
    for (const char *at = words[i]; *at; at++)
        alternatives += *at == '|';
    snprintf(copy, sizeof *chosen, "%s", words[i]);
    char *found = strtok_r(copy, "|", &save);
    for (int k = rank % alternatives; k > 0; k--)
        found = strtok_r(NULL, "|", &save);
    return found;
}

static MPI_Offset number(int i) { return (MPI_Offset)strtoll(word(i), NULL, 10); }

static bool has(const char *flags, char flag) { return strchr(flags, flag) != NULL; }

/* ---- datatypes --------------------------------------------------------------------------------------------------- */

static const char *at;

static int integer(void)
{
    char *end;
    long value = strtol(at, &end, 10);
    at = end + (*end != '\0');
    return (int)value;
}

static MPI_Datatype parse_type(void);

enum { MOST = 32 };

/* "5:0;2:9," as lengths and places; the character after each number has been passed. */
static int pairs(int *lengths, int *places)
{
    int count = 0;
    do {
        lengths[count] = integer();
        places[count++] = integer();
    } while (at[-1] == ';' && count < MOST);
    return count;
}

static MPI_Datatype parse_subarray(void)
{
    int sizes[MOST], parts[MOST], starts[MOST], dimensions = 0, order = *at == 'C' ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    at += 2;
    do {
        sizes[dimensions] = integer();
        parts[dimensions] = integer();
        starts[dimensions++] = integer();
    } while (at[-1] == ';' && dimensions < MOST);
    MPI_Datatype type, inner = parse_type();
    MPI_Type_create_subarray(dimensions, sizes, parts, starts, order, inner, &type);
    MPI_Type_free(&inner);
    return type;
}

static MPI_Datatype parse_darray(void)
{
    int size = integer(), place = integer(), sizes[MOST], kinds[MOST], arguments[MOST], processes[MOST], dimensions = 0;
    do {
        sizes[dimensions] = integer();
        kinds[dimensions] = integer() ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
        int argument = integer();
        arguments[dimensions] = argument ? argument : MPI_DISTRIBUTE_DFLT_DARG;
        processes[dimensions++] = integer();
    } while (at[-1] == ';' && dimensions < MOST);
    MPI_Datatype type, inner = parse_type();
    MPI_Type_create_darray(size, place, dimensions, sizes, kinds, arguments, processes, MPI_ORDER_C, inner, &type);
    MPI_Type_free(&inner);
    return type;
}

static MPI_Datatype parse_struct(void)
{
    int lengths[MOST], places[MOST], count = pairs(lengths, places);
    MPI_Aint bytes[MOST];
    MPI_Datatype type, types[MOST], inner = parse_type();
    for (int i = 0; i < count; i++) {
        bytes[i] = places[i];
        types[i] = inner;
    }
    MPI_Type_create_struct(count, lengths, bytes, types, &type);
    MPI_Type_free(&inner);
    return type;
}

static MPI_Datatype parse_indexed(char kind)
{
    int lengths[MOST], places[MOST], count = pairs(lengths, places);
    MPI_Aint bytes[MOST];
    MPI_Datatype type, inner = parse_type();
    for (int i = 0; i < count; i++)
        bytes[i] = places[i];
    if (kind == 'x')
        MPI_Type_indexed(count, lengths, places, inner, &type);
    else if (kind == 'X')
        MPI_Type_create_hindexed(count, lengths, bytes, inner, &type);
    else
        MPI_Type_create_indexed_block(count, lengths[0], places, inner, &type);
    MPI_Type_free(&inner);
    return type;
}

/* b, i: byte and int · c(n,T) contiguous · v(n,l,s,T) vector · V hvector · x(l:d;l:d,T) indexed · X
 * hindexed · k indexed block (the first length) · s struct of T · a(C,size:part:start;...,T)
 * subarray · y(size,rank,n:cyclic:argument:processes;...,T) darray · r(lb,extent,T) resized · d(T)
 * dup */
static MPI_Datatype parse_type(void)
{
    MPI_Datatype type, inner;
    char kind = *at++;
    int a, b, c;
    if (kind == 'b' || kind == 'i') {
        MPI_Type_dup(kind == 'b' ? MPI_BYTE : MPI_INT, &type);
        return type;
    }
    at++;
    switch (kind) {
    case 'c':
        a = integer();
        inner = parse_type();
        MPI_Type_contiguous(a, inner, &type);
        MPI_Type_free(&inner);
        break;
    case 'v':
    case 'V':
        a = integer();
        b = integer();
        c = integer();
        inner = parse_type();
        if (kind == 'v')
            MPI_Type_vector(a, b, c, inner, &type);
        else
            MPI_Type_create_hvector(a, b, c, inner, &type);
        MPI_Type_free(&inner);
        break;
    case 'r':
        a = integer();
        b = integer();
        inner = parse_type();
        MPI_Type_create_resized(inner, a, b, &type);
        MPI_Type_free(&inner);
        break;
    case 'd':
        inner = parse_type();
        MPI_Type_dup(inner, &type);
        MPI_Type_free(&inner);
        break;
    case 'a':
        type = parse_subarray();
        break;
    case 'y':
        type = parse_darray();
        break;
    case 's':
        type = parse_struct();
        break;
    default:
        type = parse_indexed(kind);
    }
    at++; /* the closing parenthesis */
    return type;
}

static MPI_Datatype type_of(const char *text)
{
    at = text;
    MPI_Datatype type = parse_type();
    MPI_Type_commit(&type);
    return type;
}

static MPI_Offset bytes_of(MPI_Datatype type)
{
    MPI_Count size;
    MPI_Type_size_x(type, &size);
    return size;
}

static MPI_Offset extent_of(MPI_Datatype type)
{
    MPI_Count low, extent;
    MPI_Type_get_extent_x(type, &low, &extent);
    return extent;
}

/* Bytes of memory that `count` of them take. */
static size_t span_of(MPI_Datatype type, int count)
{
    MPI_Count low, extent;
    MPI_Type_get_true_extent_x(type, &low, &extent);
    return count <= 0 ? 0 : (size_t)(low + extent + (count - 1) * extent_of(type));
}

/* ---- what is seen ------------------------------------------------------------------------------------------------ */

static uint64_t hash(const void *bytes, size_t size)
{
    uint64_t value = 14695981039346656037u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return value;
}

static int class_of(int rc)
{
    int class = MPI_SUCCESS;
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    return class;
}

static MPI_Offset size_of(const struct slot *slot)
{
    MPI_Offset size = -1;
    int rc = MPI_File_get_size(slot->file, &size);
    if (rc != MPI_SUCCESS)
        fprintf(out, "%d:%d get_size class=%d\n", program, line, class_of(rc));
    return size;
}

static bool sequential(const struct slot *slot) { return slot->amode & MPI_MODE_SEQUENTIAL; }

static MPI_Offset position_of(const struct slot *slot)
{
    MPI_Offset position = -1;
    if (!sequential(slot))
        MPI_File_get_position(slot->file, &position);
    return position;
}

/* Whether another slot, or another rank, may be changing the file. */
static bool in_flux(const struct slot *slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open && (slots[i].dirty || slots[i].dealt) && strcmp(slots[i].name, slot->name) == 0)
            return true;
    return false;
}

static void say(const struct slot *slot, const char *what, int rc, const char *more)
{
    fprintf(out, "%d:%d %s class=%d position=%lld size=%lld%s\n", program, line, what, class_of(rc),
            (long long)position_of(slot), in_flux(slot) ? -1 : (long long)size_of(slot), more);
}

/* How many of the `count` etypes from `offset` on are inside a file of `size` bytes. */
static MPI_Offset inside(const struct slot *slot, MPI_Offset offset, MPI_Offset count, MPI_Offset size)
{
    MPI_Offset byte, low = 0, high = count;
    while (low < high) {
        MPI_Offset middle = low + (high - low + 1) / 2;
        if (MPI_File_get_byte_offset(slot->file, offset + middle - 1, &byte) == MPI_SUCCESS
            && byte + slot->etype_size <= size)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The data in the order of the stream. */
static char *packed(const struct transfer *transfer)
{
    MPI_Offset bytes = transfer->count * transfer->unit;
    char *stream = malloc((size_t)bytes + 1);
    int place = 0;
    if (bytes > 0)
        MPI_Pack(transfer->buffer, transfer->count, transfer->type, stream, (int)bytes, &place, MPI_COMM_SELF);
    return stream;
}

static uint64_t seen(const struct transfer *transfer)
{
    if (transfer->count <= 0 || transfer->rc != MPI_SUCCESS)
        return 0;
    if (transfer->known == transfer->count * transfer->unit)
        return hash(transfer->buffer, transfer->span + BACK);
    char *stream = packed(transfer);
    uint64_t value = hash(stream, (size_t)transfer->known);
    free(stream);
    return value;
}

/* ---- data calls -------------------------------------------------------------------------------------------------- */

enum { READ = 1, COLLECTIVE = 2, EXPLICIT = 4, SHARED = 8, NONBLOCKING = 16, SPLIT = 32 };
struct call {
    const char *name;
    int flags;
    int (*make)(MPI_File, MPI_Offset, void *, MPI_Count, MPI_Datatype, void *);
    int (*end)(MPI_File, void *, MPI_Status *);
};

#define AT(function, integer)                                                                                          \
    static int make_##function(MPI_File file, MPI_Offset offset, void *buffer, MPI_Count count, MPI_Datatype type,     \
                               void *last)                                                                             \
    {                                                                                                                  \
        return MPI_File_##function(file, offset, buffer, (integer)count, type, last);                                  \
    }
#define PLAIN(function, integer)                                                                                       \
    static int make_##function(MPI_File file, MPI_Offset offset, void *buffer, MPI_Count count, MPI_Datatype type,     \
                               void *last)                                                                             \
    {                                                                                                                  \
        (void)offset;                                                                                                  \
        return MPI_File_##function(file, buffer, (integer)count, type, last);                                          \
    }
#define BEGIN_AT(function, integer)                                                                                    \
    static int make_##function(MPI_File file, MPI_Offset offset, void *buffer, MPI_Count count, MPI_Datatype type,     \
                               void *last)                                                                             \
    {                                                                                                                  \
        (void)last;                                                                                                    \
        return MPI_File_##function(file, offset, buffer, (integer)count, type);                                        \
    }
#define BEGIN(function, integer)                                                                                       \
    static int make_##function(MPI_File file, MPI_Offset offset, void *buffer, MPI_Count count, MPI_Datatype type,     \
                               void *last)                                                                             \
    {                                                                                                                  \
        (void)offset, (void)last;                                                                                      \
        return MPI_File_##function(file, buffer, (integer)count, type);                                                \
    }

#if MPI_VERSION >= 4
#define BOTH(form, function) form(function, int) form(function##_c, MPI_Count)
#define LARGE(function) make_##function##_c
#else
#define BOTH(form, function) form(function, int)
#define LARGE(function) make_##function
#endif

#define CALLS(BOTH_)                                                                                                   \
    BOTH_(AT, read_at, READ | EXPLICIT, NULL)                                                                          \
    BOTH_(AT, read_at_all, READ | EXPLICIT | COLLECTIVE, NULL)                                                         \
    BOTH_(AT, iread_at, READ | EXPLICIT | NONBLOCKING, NULL)                                                           \
    BOTH_(AT, iread_at_all, READ | EXPLICIT | COLLECTIVE | NONBLOCKING, NULL)                                          \
    BOTH_(PLAIN, read, READ, NULL)                                                                                     \
    BOTH_(PLAIN, read_all, READ | COLLECTIVE, NULL)                                                                    \
    BOTH_(PLAIN, iread, READ | NONBLOCKING, NULL)                                                                      \
    BOTH_(PLAIN, iread_all, READ | COLLECTIVE | NONBLOCKING, NULL)                                                     \
    BOTH_(PLAIN, read_shared, READ | SHARED, NULL)                                                                     \
    BOTH_(PLAIN, iread_shared, READ | SHARED | NONBLOCKING, NULL)                                                      \
    BOTH_(PLAIN, read_ordered, READ | SHARED | COLLECTIVE, NULL)                                                       \
    BOTH_(BEGIN_AT, read_at_all_begin, READ | EXPLICIT | COLLECTIVE | SPLIT, MPI_File_read_at_all_end)                 \
    BOTH_(BEGIN, read_all_begin, READ | COLLECTIVE | SPLIT, MPI_File_read_all_end)                                     \
    BOTH_(BEGIN, read_ordered_begin, READ | SHARED | COLLECTIVE | SPLIT, MPI_File_read_ordered_end)                    \
    BOTH_(AT, write_at, EXPLICIT, NULL)                                                                                \
    BOTH_(AT, write_at_all, EXPLICIT | COLLECTIVE, NULL)                                                               \
    BOTH_(AT, iwrite_at, EXPLICIT | NONBLOCKING, NULL)                                                                 \
    BOTH_(AT, iwrite_at_all, EXPLICIT | COLLECTIVE | NONBLOCKING, NULL)                                                \
    BOTH_(PLAIN, write, 0, NULL)                                                                                       \
    BOTH_(PLAIN, write_all, COLLECTIVE, NULL)                                                                          \
    BOTH_(PLAIN, iwrite, NONBLOCKING, NULL)                                                                            \
    BOTH_(PLAIN, iwrite_all, COLLECTIVE | NONBLOCKING, NULL)                                                           \
    BOTH_(PLAIN, write_shared, SHARED, NULL)                                                                           \
    BOTH_(PLAIN, iwrite_shared, SHARED | NONBLOCKING, NULL)                                                            \
    BOTH_(PLAIN, write_ordered, SHARED | COLLECTIVE, NULL)                                                             \
    BOTH_(BEGIN_AT, write_at_all_begin, EXPLICIT | COLLECTIVE | SPLIT, MPI_File_write_at_all_end)                      \
    BOTH_(BEGIN, write_all_begin, COLLECTIVE | SPLIT, MPI_File_write_all_end)                                          \
    BOTH_(BEGIN, write_ordered_begin, SHARED | COLLECTIVE | SPLIT, MPI_File_write_ordered_end)

#define WRAP(form, function, flags, end) BOTH(form, function)
/* The status argument is const in some MPIs and not in others. */
#define END_CAST(end) ((int (*)(MPI_File, void *, MPI_Status *))(end))
#define ROW(form, function, flags, end)                                                                                \
    {#function, flags, make_##function, END_CAST(end)}, {#function "_c", flags, LARGE(function), END_CAST(end)},
CALLS(WRAP)
static const struct call calls[] = {CALLS(ROW){NULL, 0, NULL, NULL}};

static bool is(const struct transfer *transfer, int flag) { return transfer->call->flags & flag; }

/* Prints what the program sees of a finished call, and frees it. */
static void finish(const struct slot *slot, struct transfer *transfer, MPI_Status *status)
{
    char more[96];
    int bytes = -1, elements = -1;
    if (transfer->rc == MPI_SUCCESS && !transfer->ignored) {
        MPI_Get_count(status, MPI_BYTE, &bytes);
        MPI_Get_elements(status, transfer->type, &elements);
    }
    snprintf(more, sizeof more, " bytes=%d elements=%d %016llx", bytes, elements,
             is(transfer, READ) ? (unsigned long long)seen(transfer) : 0);
    say(slot, transfer->call->name, transfer->rc, more);
    free(transfer->buffer);
    MPI_Type_free(&transfer->type);
    transfer->call = NULL;
}

static void end_split(struct slot *slot)
{
    MPI_Status status;
    struct transfer *transfer = &slot->split;
    if (transfer->call == NULL)
        return;
    if (transfer->rc == MPI_SUCCESS)
        transfer->rc =
            transfer->call->end(slot->file, transfer->buffer, transfer->ignored ? MPI_STATUS_IGNORE : &status);
    finish(slot, transfer, &status);
}

/* Completes outstanding calls in one of MPI's ways. */
static void complete(struct slot *slot, const char *how)
{
    int count = slot->outstanding, flag = 0, index, done, indices[REQUESTS];
    MPI_Request requests[REQUESTS];
    MPI_Status statuses[REQUESTS], some[REQUESTS];
    for (int i = 0; i < count; i++)
        requests[i] = slot->requests[i].request;
    if (strcmp(how, "waitall") == 0) {
        MPI_Waitall(count, requests, statuses);
    } else if (strcmp(how, "waitany") == 0) {
        for (int i = 0; i < count; i++) {
            MPI_Waitany(count, requests, &index, some);
            if (index != MPI_UNDEFINED)
                statuses[index] = some[0];
        }
    } else if (strcmp(how, "waitsome") == 0) {
        do {
            MPI_Waitsome(count, requests, &done, indices, some);
            for (int i = 0; i < done; i++)
                statuses[indices[i]] = some[i];
        } while (done != MPI_UNDEFINED);
    } else if (strcmp(how, "testany") == 0) {
        do {
            MPI_Testany(count, requests, &index, &flag, some);
            if (flag && index != MPI_UNDEFINED)
                statuses[index] = some[0];
        } while (!flag || index != MPI_UNDEFINED);
    } else if (strcmp(how, "ask") == 0) {
        for (int i = 0; i < count; i++, flag = 0) {
            while (!flag && requests[i] != MPI_REQUEST_NULL)
                MPI_Request_get_status(requests[i], &flag, &statuses[i]);
            MPI_Wait(&requests[i], some);
        }
    } else if (strcmp(how, "test") == 0) {
        for (int i = count; i-- > 0; flag = 0)
            while (!flag)
                MPI_Test(&requests[i], &flag, &statuses[i]);
    } else {
        for (int i = 0; i < count; i++)
            MPI_Wait(&requests[i], &statuses[i]);
    }
    for (int i = 0; i < count; i++) {
        if (requests[i] != MPI_REQUEST_NULL)
            fprintf(out, "%d:%d request %d is left\n", program, line, i);
        if (slot->requests[i].request == MPI_REQUEST_NULL)
            slot->requests[i].ignored = true;
        finish(slot, &slot->requests[i], &statuses[i]);
    }
    slot->outstanding = 0;
}

static void complete_all(struct slot *slot)
{
    end_split(slot);
    complete(slot, "waitall");
}

/* MPI_Barrier, except that it yields on a busy machine, as all nonblocking collectives do. */
static void barrier(void)
{
#ifdef OPEN_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#else
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

/* After a sync that fails, other ranks may see old bytes: so it is said. */
static void sync_slot(const struct slot *slot)
{
    int rc = MPI_File_sync(slot->file);
    if (rc != MPI_SUCCESS)
        fprintf(out, "%d:%d sync class=%d\n", program, line, class_of(rc));
}

/* Makes what was written to a file visible through every slot. */
static void settle(const char *name)
{
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open && strcmp(slots[i].name, name) == 0)
            complete_all(&slots[i]);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].open && strcmp(slots[i].name, name) == 0 && !(slots[i].amode & MPI_MODE_RDONLY))
                sync_slot(&slots[i]);
        barrier();
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open && strcmp(slots[i].name, name) == 0) {
            slots[i].dirty = false;
            slots[i].settled = size_of(&slots[i]);
        }
    barrier();
}

/* The slot that word 1 names, to be used by a call. NULL: not open. */
static struct slot *begin(void)
{
    struct slot *slot = &slots[number(1) % SLOTS];
    if (!slot->open)
        return NULL;
    for (int i = 0; i < SLOTS; i++)
        if (&slots[i] != slot && slots[i].open && slots[i].dirty && strcmp(slots[i].name, slot->name) == 0)
            settle(slot->name);
    return slot;
}

static void undeal(struct slot *slot)
{
    complete_all(slot);
    if (slot->dealt)
        settle(slot->name);
    slot->dealt = slot->block = false;
}

/* The count that keeps the call inside what is defined: inside its rank's block and, while others
 * write, inside the file as it was. Where two halves have the file open, the even ranks alone
 * write: ROMIO's collective writes take no locks when they read, change and write the bytes between
 * their own, and lose what other communicators write meanwhile. */
static int defined(const struct slot *slot, const struct transfer *transfer, MPI_Offset position)
{
    MPI_Offset etypes = transfer->unit / slot->etype_size, limit;
    const bool under_way = is(transfer, READ) && is(transfer, NONBLOCKING | SPLIT);
    if (transfer->count <= 0 || position < 0 || (etypes == 0 && !under_way))
        return transfer->count;
    if (etypes == 0 || (slot->dealt && slot->aside && !is(transfer, READ)))
        return 0;
    limit = transfer->count * etypes;
    if (slot->block && position + limit > slot->limit)
        limit = position > slot->limit ? 0 : slot->limit - position;
    /* Collective writes of MPICH also write the bytes between the ranks' bytes; after the end of
     * the file these are undefined. */
    if (slot->dealt && (is(transfer, READ | COLLECTIVE) || !slot->block))
        limit = inside(slot, position, limit, slot->settled);
    else if (under_way) /* otherwise Open MPI 5 does not end, and MPICH 5 fails an assertion */
        limit = inside(slot, position, limit, size_of(slot));
    return (int)(limit / etypes);
}

/* KIND SLOT OFFSET COUNT TYPE [ignore]; calls without an offset skip it. */
static void transfer_data(const struct call *call)
{
    struct slot *slot = begin();
    MPI_Status status;
    if (slot == NULL)
        return;
    bool writes = !(call->flags & READ), may_write = slot->amode & (MPI_MODE_WRONLY | MPI_MODE_RDWR);
    bool shared = call->flags & SHARED;
    if (slot->split.call != NULL && call->flags & COLLECTIVE)
        end_split(slot);
    if (writes || call->flags & COLLECTIVE || slot->outstanding == REQUESTS)
        complete_all(slot);
    for (int i = 0; i < slot->outstanding; i++)
        if (!is(&slot->requests[i], READ))
            complete(slot, "wait");
    if (shared ? slot->dealt || !slot->uniform || slot->members != ranks : writes && may_write && !slot->dealt)
        return;
    if ((slot->converts || (writes ? !may_write : slot->amode & MPI_MODE_WRONLY))
        && call->flags & (NONBLOCKING | SPLIT | SHARED))
        return; /* MPICH 5 waits for ever for a request that it refused, or frees what it converts twice */
    if (slot->converts && strchr("bc", *word(4)) == NULL)
        return; /* MPICH 5 overflows its buffer when it converts into memory with holes */
    if (shared && writes)
        settle(slot->name);
    if (shared && !(call->flags & COLLECTIVE) && rank != 0) {
        barrier();
        barrier();
        if (writes)
            settle(slot->name);
        return;
    }
    struct transfer transfer = {.call = call, .count = (int)number(3), .type = type_of(word(4)),
                                .ignored = strcmp(word(5), "ignore") == 0, .request = MPI_REQUEST_NULL};
    MPI_Offset position = call->flags & EXPLICIT ? number(2) : position_of(slot);
    if (position < 0 && call->flags & (NONBLOCKING | SPLIT)) { /* Open MPI 5 waits for ever for it */
        MPI_Type_free(&transfer.type);
        return;
    }
    transfer.unit = bytes_of(transfer.type);
    if (!shared)
        transfer.count = defined(slot, &transfer, position);
    if (shared && call->flags & READ)
        MPI_File_get_position_shared(slot->file, &position);
    transfer.span = span_of(transfer.type, transfer.count);
    transfer.buffer = malloc(transfer.span + BACK);
    memset(transfer.buffer, 0xA5, transfer.span + BACK);
    for (size_t i = 0; writes && i < transfer.span; i++)
        transfer.buffer[i] = (char)(i * 7 + (size_t)line * 13 + (size_t)rank * 101 + i / 256);
    if (call->flags & READ && transfer.count > 0 && position >= 0 && !(shared && call->flags & COLLECTIVE))
        transfer.known = slot->etype_size
            * inside(slot, position, transfer.count * transfer.unit / slot->etype_size, size_of(slot));
    if (writes && may_write)
        slot->dirty = true;
    if (shared)
        barrier();
    void *last = call->flags & NONBLOCKING ? (void *)&transfer.request : transfer.ignored ? MPI_STATUS_IGNORE : &status;
    /* Requests under way outlive their datatype (except collective ones in MPICH 5). */
    bool fragile = call->flags & NONBLOCKING && call->flags & COLLECTIVE;
    MPI_Datatype type = transfer.type;
    if (!fragile)
        MPI_Type_dup(transfer.type, &type);
    transfer.rc = call->make(slot->file, position, transfer.buffer, transfer.count, type, last);
    if (!fragile)
        MPI_Type_free(&type);
    if (call->flags & SPLIT) {
        slot->split = transfer;
        if (transfer.rc != MPI_SUCCESS || shared)
            end_split(slot);
    } else if (call->flags & NONBLOCKING && transfer.rc == MPI_SUCCESS) {
        slot->requests[slot->outstanding++] = transfer;
        if (shared)
            complete(slot, "wait");
    } else {
        transfer.ignored |= (call->flags & NONBLOCKING) != 0;
        finish(slot, &transfer, &status);
    }
    if (shared)
        barrier();
    if (shared && writes)
        settle(slot->name);
}

/* ---- other calls ------------------------------------------------------------------------------------------------- */

static int amode_of(const char *flags)
{
    static const struct { char flag; int bit; } bits[] = {
        {'r', MPI_MODE_RDONLY}, {'w', MPI_MODE_WRONLY}, {'u', MPI_MODE_RDWR}, {'c', MPI_MODE_CREATE},
        {'e', MPI_MODE_EXCL}, {'d', MPI_MODE_DELETE_ON_CLOSE}, {'a', MPI_MODE_APPEND}, {'s', MPI_MODE_SEQUENTIAL},
        {'o', MPI_MODE_UNIQUE_OPEN}};
    int amode = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        amode |= has(flags, bits[i].flag) ? bits[i].bit : 0;
    return amode;
}

static void path_of(const char *name, char path[4096]) { snprintf(path, 4096, "%s/%d/%s", directory, program, name); }

/* world, self, halves (even and odd ranks), reversed */
static MPI_Comm comm_of(const char *kind)
{
    static struct { char kind[16]; MPI_Comm comm; } made[4];
    int i = 0;
    while (made[i].kind[0] != '\0' && strcmp(made[i].kind, kind) != 0)
        i++;
    if (made[i].kind[0] != '\0')
        return made[i].comm;
    snprintf(made[i].kind, sizeof made[i].kind, "%s", kind);
    int colour = strcmp(kind, "self") == 0 ? rank : strcmp(kind, "halves") == 0 ? rank % 2 : 0;
    MPI_Comm_split(MPI_COMM_WORLD, colour, strcmp(kind, "reversed") == 0 ? -rank : rank, &made[i].comm);
    return made[i].comm;
}

/* open SLOT NAME FLAGS COMM [KEY=VALUE] */
static void open_slot(void)
{
    struct slot *slot = &slots[number(1) % SLOTS];
    char path[4096], hint[128];
    MPI_Info info = MPI_INFO_NULL;
    if (slot->open)
        return;
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open && strcmp(slots[i].name, word(2)) == 0)
            undeal(&slots[i]);
    *slot = (struct slot){.amode = amode_of(word(3)), .uniform = true, .plain = true, .etype_size = 1};
    snprintf(slot->name, NAME, "%s", word(2));
    snprintf(hint, sizeof hint, "%s", word(5));
    if (strchr(hint, '=') != NULL) {
        *strchr(hint, '=') = '\0';
        MPI_Info_create(&info);
        MPI_Info_set(info, hint, hint + strlen(hint) + 1);
    }
    path_of(slot->name, path);
    int rc = MPI_File_open(comm_of(word(4)), path, slot->amode, info, &slot->file), failed = rc != MPI_SUCCESS, any;
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!failed && any)
        MPI_File_close(&slot->file);
    slot->open = !any;
    if (slot->open) {
        MPI_Comm_size(comm_of(word(4)), &slot->members);
        slot->aside = rank % 2 == 1 && ranks > 2 && strcmp(word(4), "halves") == 0;
        slot->settled = size_of(slot);
        barrier();
        say(slot, "open", rc, "");
    } else {
        fprintf(out, "%d:%d open class=%d\n", program, line, class_of(rc));
    }
    barrier();
}

static bool is_shared(const struct slot *slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (&slots[i] != slot && slots[i].open && strcmp(slots[i].name, slot->name) == 0)
            return true;
    return false;
}

/* A file that no other slot has open needs no sync. A sync would leave nothing for the write-back
 * at the close. */
static void close_slot(struct slot *slot)
{
    if (is_shared(slot))
        undeal(slot);
    complete_all(slot);
    int rc = MPI_File_close(&slot->file);
    slot->open = false;
    fprintf(out, "%d:%d close class=%d null=%d\n", program, line, class_of(rc), slot->file == MPI_FILE_NULL);
    barrier();
}

static bool is_uniform(int first)
{
    for (int i = first; i < WORDS && words[i] != NULL; i++)
        if (strchr(words[i], '|') != NULL)
            return false;
    return true;
}

/* view SLOT DISPLACEMENT ETYPE FILETYPE REPRESENTATION */
static void set_view(struct slot *slot)
{
    undeal(slot);
    slot->plain = false;
    MPI_Datatype etype = type_of(word(3)), filetype = type_of(word(4));
    int rc = MPI_File_set_view(slot->file, number(2), etype, filetype, word(5), MPI_INFO_NULL);
    if (rc == MPI_SUCCESS) {
        slot->etype_size = bytes_of(etype);
        slot->uniform = is_uniform(2);
        slot->converts = strcmp(word(5), "native") != 0;
    }
    say(slot, "set_view", rc, "");
    MPI_Type_free(&etype);
    MPI_Type_free(&filetype);
    barrier();
}

/* deal SLOT BASE ETYPE FILETYPE · block SLOT BASE LENGTH: each rank gets the next filetype, or the
 * next LENGTH bytes. */
static void deal(struct slot *slot, bool block)
{
    MPI_Datatype etype, filetype, tiled;
    undeal(slot);
    slot->plain = false;
    if (sequential(slot))
        return;
    settle(slot->name);
    if (block) {
        etype = type_of("b");
        MPI_Type_contiguous(1, etype, &filetype);
    } else {
        etype = type_of(word(3));
        filetype = type_of(word(4));
    }
    MPI_Offset own = block ? number(3) : extent_of(filetype), tile = block ? 1 : own * ranks;
    MPI_Type_create_resized(filetype, 0, tile, &tiled);
    MPI_Type_commit(&tiled);
    int rc = MPI_File_set_view(slot->file, number(2) + rank * own, etype, tiled, "native", MPI_INFO_NULL);
    slot->dealt = rc == MPI_SUCCESS;
    slot->block = block;
    slot->limit = own;
    slot->etype_size = bytes_of(etype);
    slot->uniform = slot->converts = false;
    say(slot, "set_view", rc, "");
    MPI_Type_free(&etype);
    MPI_Type_free(&filetype);
    MPI_Type_free(&tiled);
}

static int whence_of(const char *name)
{
    return strcmp(name, "set") == 0 ? MPI_SEEK_SET : strcmp(name, "cur") == 0 ? MPI_SEEK_CUR : MPI_SEEK_END;
}

static void seek(const struct slot *slot)
{
    int whence = whence_of(word(3));
    if (!(whence == MPI_SEEK_END && in_flux(slot)))
        say(slot, "seek", MPI_File_seek(slot->file, number(2), whence), "");
}

static void seek_shared(struct slot *slot)
{
    if (slot->dealt || !slot->uniform || slot->members != ranks)
        return;
    complete_all(slot);
    barrier();
    int rc = MPI_File_seek_shared(slot->file, number(2), whence_of(word(3)));
    MPI_Offset position = -1;
    char more[48];
    MPI_File_get_position_shared(slot->file, &position);
    snprintf(more, sizeof more, " shared=%lld", (long long)position);
    say(slot, "seek_shared", rc, more);
    barrier();
}

/* set_size SLOT BYTES · preallocate SLOT BYTES */
static void resize(struct slot *slot, int (*call)(MPI_File, MPI_Offset), const char *name)
{
    complete_all(slot);
    settle(slot->name);
    int rc = call(slot->file, number(2));
    settle(slot->name);
    say(slot, name, rc, "");
}

/* tail SLOT LENGTH: rank 0 writes at its pointer, which nobody has moved since the open, except by
 * seeks. */
static void write_tail(struct slot *slot)
{
    char buffer[1024];
    const int length = (int)number(2) % (int)sizeof buffer;
    undeal(slot);
    complete_all(slot);
    if (!slot->plain)
        return;
    settle(slot->name);
    memset(buffer, line * 31 + length, sizeof buffer);
    if (rank == 0)
        say(slot, "tail", MPI_File_write(slot->file, buffer, length, MPI_BYTE, MPI_STATUS_IGNORE), "");
    slot->dirty = true;
    settle(slot->name);
    say(slot, "after", MPI_SUCCESS, "");
}

static void ask(const struct slot *slot)
{
    MPI_Offset byte = -1, displacement = -1;
    MPI_Datatype etype, filetype;
    MPI_Group group;
    char representation[MPI_MAX_DATAREP_STRING] = "", more[200];
    int amode = 0, atomic = -1, members = -1;
    MPI_Aint extent = -1;
    MPI_File_get_byte_offset(slot->file, number(2), &byte);
    MPI_File_get_view(slot->file, &displacement, &etype, &filetype, representation);
    MPI_File_get_amode(slot->file, &amode);
    MPI_File_get_atomicity(slot->file, &atomic);
    MPI_File_get_type_extent(slot->file, MPI_INT, &extent);
    MPI_File_get_group(slot->file, &group);
    MPI_Group_size(group, &members);
    MPI_Group_free(&group);
    snprintf(more, sizeof more, " byte=%lld view=%lld %lld %lld %s amode=%d atomic=%d extent=%ld group=%d",
             (long long)byte, (long long)displacement, (long long)bytes_of(etype), (long long)bytes_of(filetype),
             representation, amode, atomic, (long)extent, members);
    say(slot, "ask", MPI_SUCCESS, more);
}

static void set_atomicity(struct slot *slot)
{
    complete_all(slot);
    settle(slot->name);
    say(slot, "set_atomicity", MPI_File_set_atomicity(slot->file, (int)number(2)), "");
}

/* delete NAME, by rank 0. For a file that is open, the result depends on the MPI library. */
static void delete_file(void)
{
    char path[4096];
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open && strcmp(slots[i].name, word(1)) == 0)
            return;
    path_of(word(1), path);
    barrier();
    if (rank == 0)
        fprintf(out, "%d:%d delete class=%d\n", program, line, class_of(MPI_File_delete(path, MPI_INFO_NULL)));
    barrier();
}

static void end_program(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].open)
            close_slot(&slots[i]);
}

static void run_on(struct slot *slot, const char *verb)
{
    if (slot == NULL)
        return;
    if (strcmp(verb, "close") == 0)
        close_slot(slot);
    else if (strcmp(verb, "view") == 0)
        set_view(slot);
    else if (strcmp(verb, "deal") == 0 || strcmp(verb, "block") == 0)
        deal(slot, *verb == 'b');
    else if (strcmp(verb, "seek") == 0)
        seek(slot);
    else if (strcmp(verb, "seek_shared") == 0)
        seek_shared(slot);
    else if (strcmp(verb, "tail") == 0)
        write_tail(slot);
    else if (strcmp(verb, "set_size") == 0)
        resize(slot, MPI_File_set_size, verb);
    else if (strcmp(verb, "preallocate") == 0)
        resize(slot, MPI_File_preallocate, verb);
    else if (strcmp(verb, "atomic") == 0)
        set_atomicity(slot);
    else if (strcmp(verb, "settle") == 0)
        settle(slot->name);
    else if (strcmp(verb, "complete") == 0)
        complete(slot, word(2));
    else if (strcmp(verb, "end") == 0)
        end_split(slot);
    else if (strcmp(verb, "ask") == 0)
        ask(slot);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static void run_line(void)
{
    for (const struct call *call = calls; call->name != NULL; call++)
        if (strcmp(call->name, words[0]) == 0) {
            transfer_data(call);
            return;
        }
    if (strcmp(words[0], "program") == 0) {
        end_program();
        program = (int)number(1);
        line = 0;
        alarm(PATIENCE);
        fprintf(out, "program %d\n", program);
        fflush(out);
    } else if (strcmp(words[0], "open") == 0) {
        open_slot();
    } else if (strcmp(words[0], "delete") == 0) {
        delete_file();
    } else if (strcmp(words[0], "file") != 0 && strcmp(words[0], "replica") != 0
               && strcmp(words[0], "target") != 0) {
        run_on(begin(), words[0]);
    }
}

int main(int argc, char **argv)
{
    char name[4096], *text = NULL, *save;
    size_t capacity = 0;
    alarm(PATIENCE);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    FILE *in = fopen(argv[1], "r");
    snprintf(name, sizeof name, "%s.%d", argv[3], rank);
    out = fopen(name, "w");
    directory = argv[2];
    setvbuf(out, NULL, _IOLBF, 1 << 16);
    while (in != NULL && out != NULL && getline(&text, &capacity, in) > 0) {
        int count = 0;
        memset(words, 0, sizeof words);
        for (char *found = strtok_r(text, " \n", &save); found && count < WORDS; found = strtok_r(NULL, " \n", &save))
            words[count++] = found;
        line++;
        if (count > 0)
            run_line();
    }
    end_program();
    free(text);
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
    MPI_Finalize();
    return in == NULL || out == NULL;
}
