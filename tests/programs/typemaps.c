/* Compares typemap_flatten() with what MPI itself packs, byte by byte and in order, for every
 * constructor and for random nests of them. Compares the cursor with the flattened bytes from every
 * place. Prints the number of datatypes. Linked with pdla/interpose. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "running_mpi.h"
#include "typemap.h"

enum { SPAN = 1 << 16, TILES = 3 };

#ifdef OPEN_MPI /* 5.0 takes MPI_Type_vector(3, 1, -1, MPI_BYTE) for bytes 0 to 2 */
enum { LOWEST_STRIDE = 0 };
#else
enum { LOWEST_STRIDE = -2 };
#endif

#ifdef INTEL_MPI /* 2021.18 packs other bytes of a cyclic darray than the standard says; its file views are right */
enum { DISTRIBUTIONS = 2 };
#else
enum { DISTRIBUTIONS = 3 };
#endif

static int64_t offsets[SPAN]; /* of each data byte of TILES tiles, as MPI packs them */
static long checked;

static void fail(const char *what, const char *name, int64_t got, int64_t wanted)
{
    fprintf(stderr, "%s: %s: got %lld, wanted %lld\n", name, what, (long long)got, (long long)wanted);
    exit(1);
}

static void equal(const char *what, const char *name, int64_t got, int64_t wanted)
{
    if (got != wanted)
        fail(what, name, got, wanted);
}

/* Fills `offsets`; returns the number of data bytes. The buffer's middle is offset 0. */
static int64_t pack(MPI_Datatype type)
{
    static unsigned char low[SPAN], high[SPAN], packed_low[SPAN], packed_high[SPAN];
    int place = 0, size;
    for (int i = 0; i < SPAN; i++) {
        low[i] = (unsigned char)i;
        high[i] = (unsigned char)(i >> 8);
    }
    MPI_Type_size(type, &size);
    MPI_Pack(low + SPAN / 2, TILES, type, packed_low, SPAN, &place, MPI_COMM_SELF);
    place = 0;
    MPI_Pack(high + SPAN / 2, TILES, type, packed_high, SPAN, &place, MPI_COMM_SELF);
    for (int64_t i = 0; i < (int64_t)TILES * size; i++)
        offsets[i] = (packed_low[i] | packed_high[i] << 8) - SPAN / 2;
    return (int64_t)TILES * size;
}

/* From `start`, in runs of at most `limit` bytes: exactly the bytes packed, and every run as long
 * as possible. */
static void walk(const char *name, const struct typemap *map, int64_t bytes, int64_t start, int64_t limit)
{
    struct typemap_cursor cursor;
    typemap_cursor_init(&cursor, map, 1000, start);
    for (int64_t at = start; at < bytes;) {
        int64_t most = limit < bytes - at ? limit : bytes - at, run = 1;
        struct extent extent = typemap_cursor_next(&cursor, most);
        while (run < most && offsets[at + run] == offsets[at] + run)
            run++;
        equal("offset", name, extent.offset, 1000 + offsets[at]);
        equal("length", name, extent.length, run);
        at += run;
    }
}

static void check(const char *name, MPI_Datatype type)
{
    mpi_handle handle = 0;
    MPI_Aint lb, extent;
    memcpy(&handle, &type, sizeof type);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_commit(&type);
    int64_t bytes = pack(type);
    struct typemap *map = typemap_flatten(handle);
    if (!map)
        fail("flattened", name, 0, 1);
    equal("size", name, typemap_size(map), bytes / TILES);
    equal("extent", name, typemap_extent(map), extent);
    for (int64_t start = 0; start < bytes; start += start < 50 ? 1 : 37)
        walk(name, map, bytes, start, start % 3 == 0 ? 1 + start % 11 : SPAN);
    typemap_release(map);
    checked++;
}

/* ---- the constructors -------------------------------------------------------------------------------------------- */

static int below(int limit)
{
    return rand() % limit;
}

static MPI_Datatype named(void)
{
    const MPI_Datatype types[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_2INT, MPI_CHAR};
    return types[below(7)];
}

static MPI_Datatype subarray(MPI_Datatype child, int order)
{
    MPI_Datatype type;
    int sizes[3], lengths[3], starts[3], dimensions = 1 + below(3);
    for (int d = 0; d < dimensions; d++) {
        sizes[d] = 1 + below(4);
        lengths[d] = 1 + below(sizes[d]);
        starts[d] = below(sizes[d] - lengths[d] + 1);
    }
    MPI_Type_create_subarray(dimensions, sizes, lengths, starts, order, child, &type);
    return type;
}

static MPI_Datatype darray(MPI_Datatype child, int order)
{
    MPI_Datatype type;
    int sizes[3], distributions[3], arguments[3], grid[3], dimensions = 1 + below(3), processes = 1;
    for (int d = 0; d < dimensions; d++) {
        const int kinds[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC};
        sizes[d] = 1 + below(6);
        distributions[d] = kinds[below(DISTRIBUTIONS)];
        grid[d] = distributions[d] == MPI_DISTRIBUTE_NONE ? 1 : 1 + below(3);
        arguments[d] = MPI_DISTRIBUTE_DFLT_DARG;
        if (distributions[d] == MPI_DISTRIBUTE_CYCLIC && below(2))
            arguments[d] = 1 + below(3);
        if (distributions[d] == MPI_DISTRIBUTE_BLOCK && below(2))
            arguments[d] = (sizes[d] + grid[d] - 1) / grid[d] + below(2);
        processes *= grid[d];
    }
    MPI_Type_create_darray(processes, below(processes), dimensions, sizes, distributions, arguments, grid, order, child,
                           &type);
    return type;
}

/* A datatype of constructor `kind` over `child`, with small random arguments; frees `child` if it may. */
enum { KINDS = 16 };
static MPI_Datatype construct(int kind, MPI_Datatype child)
{
    MPI_Datatype type, children[3] = {child, MPI_INT, child};
    int lengths[4], displacements[4], n = 1 + below(4), length = below(3), base = 0;
    MPI_Aint lb, extent, bytes[4];
    MPI_Type_get_extent(child, &lb, &extent);
    for (int i = 0; i < 4; i++) {
        lengths[i] = below(3);
        displacements[i] = below(2) ? base : below(8) - 3;
        bytes[i] = displacements[i] * extent + below(2) * 8;
        base += 1 + lengths[i];
    }
    switch (kind) {
    case 0: MPI_Type_dup(child, &type); break;
    case 1: MPI_Type_contiguous(n, child, &type); break;
    case 2: MPI_Type_vector(n, length, below(7) + LOWEST_STRIDE, child, &type); break;
    case 3: MPI_Type_create_hvector(n, length, extent * below(3) + 8, child, &type); break;
    case 4: MPI_Type_indexed(n, lengths, displacements, child, &type); break;
    case 5: MPI_Type_create_hindexed(n, lengths, bytes, child, &type); break;
    case 6: MPI_Type_create_indexed_block(n, length, displacements, child, &type); break;
    case 7: MPI_Type_create_hindexed_block(n, length, bytes, child, &type); break;
    case 8: MPI_Type_create_struct(n < 3 ? n : 3, lengths, bytes, children, &type); break;
    case 9: type = subarray(child, MPI_ORDER_C); break;
    case 10: type = subarray(child, MPI_ORDER_FORTRAN); break;
    case 11: type = darray(child, MPI_ORDER_C); break;
    case 12: type = darray(child, MPI_ORDER_FORTRAN); break;
    case 13: MPI_Type_create_resized(child, lb - 8 * below(2), extent + 8 * below(3), &type); break;
    case 14: MPI_Type_create_resized(child, lb + 8, extent, &type); break;
    default: MPI_Type_vector(n, 1, 2, child, &type); break;
    }
    return type;
}

static void constants(void)
{
    const struct mpi *mpi = running_mpi();
#define SAME(field, constant)                                 \
    do {                                                      \
        mpi_handle value = 0;                                 \
        __typeof__(constant) real = constant;                 \
        memcpy(&value, &real, sizeof real);                   \
        equal(#constant, "constants", (int64_t)mpi->field, (int64_t)value); \
    } while (0)
    SAME(comm_world, MPI_COMM_WORLD);
    SAME(comm_null, MPI_COMM_NULL);
    SAME(comm_self, MPI_COMM_SELF);
    SAME(info_null, MPI_INFO_NULL);
    SAME(byte, MPI_BYTE);
    SAME(int64, MPI_INT64_T);
    SAME(op_min, MPI_MIN);
    SAME(op_band, MPI_BAND);
    SAME(request_null, MPI_REQUEST_NULL);
    SAME(status_ignore, MPI_STATUS_IGNORE);
    equal("whence", "constants", learn_whence(), 1);
    equal("MPI_SEEK_SET", "constants", seek_set, MPI_SEEK_SET);
    equal("MPI_SEEK_END", "constants", seek_end, MPI_SEEK_END);
    equal("handle size", "constants", (int64_t)mpi->handle_size, sizeof(MPI_Datatype));
    equal("status fits", "constants", sizeof(MPI_Status) <= 64, 1);
}

static void encodes(const char *name, MPI_Datatype type, const int64_t *wanted, size_t count)
{
    mpi_handle handle = 0;
    int64_t words[16];
    memcpy(&handle, &type, sizeof type);
    struct typemap *map = typemap_flatten(handle);
    equal("words", name, (int64_t)typemap_encode(map, words, 16), (int64_t)count);
    for (size_t i = 0; i < count; i++)
        equal("word", name, words[i], wanted[i]);
    typemap_release(map);
    MPI_Type_free(&type);
}

/* The tree is as small as the pattern, for any constructor. */
static void canonical(void)
{
    MPI_Datatype type, row;
    int ones[4] = {1, 1, 1, 1}, places[4] = {5, 7, 9, 11}, touching[4] = {2, 3, 4, 5};
    MPI_Type_vector(100000000, 1, 2, MPI_INT, &type);
    encodes("vector", type, (int64_t[]){1, 100000000, 8, 0, 4}, 5);
    MPI_Type_indexed(4, ones, places, MPI_INT, &type);
    encodes("indexed in step", type, (int64_t[]){2, 1, 20, 1, 4, 8, 0, 4}, 8);
    MPI_Type_indexed(4, ones, touching, MPI_INT, &type);
    encodes("indexed without gaps", type, (int64_t[]){3, 1, 8, 16}, 4);
    MPI_Type_vector(6, 2, 2, MPI_INT, &type);
    encodes("vector without gaps", type, (int64_t[]){0, 48}, 2);
    MPI_Type_vector(3, 1, 2, MPI_INT, &row);
    MPI_Type_create_hvector(5, 1, 24, row, &type);
    MPI_Type_free(&row);
    encodes("vector of vectors in step", type, (int64_t[]){1, 15, 8, 0, 4}, 5);
    MPI_Type_contiguous(0, MPI_INT, &type);
    encodes("nothing", type, (int64_t[]){3, 0}, 2);
}

#ifdef LARGE_COUNTS
/* The large-count constructors keep their arguments in other arrays. */
static void large_counts(void)
{
    MPI_Datatype type, types[2] = {MPI_INT, MPI_DOUBLE};
    MPI_Count lengths[2] = {1, 2}, places[2] = {3, 8}, bytes[2] = {4, 24};
    MPI_Count sizes[2] = {4, 6}, parts[2] = {2, 3}, starts[2] = {1, 2};
    int distributions[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK}, grid[2] = {2, 2};
    int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    MPI_Type_contiguous_c(5, MPI_INT, &type);
    check("contiguous_c", type);
    MPI_Type_vector_c(3, 2, 4, MPI_INT, &type);
    check("vector_c", type);
    MPI_Type_create_hvector_c(3, 2, 20, MPI_INT, &type);
    check("hvector_c", type);
    MPI_Type_indexed_c(2, lengths, places, MPI_INT, &type);
    check("indexed_c", type);
    MPI_Type_create_hindexed_c(2, lengths, bytes, MPI_INT, &type);
    check("hindexed_c", type);
    MPI_Type_create_indexed_block_c(2, 2, places, MPI_INT, &type);
    check("indexed_block_c", type);
    MPI_Type_create_hindexed_block_c(2, 2, bytes, MPI_INT, &type);
    check("hindexed_block_c", type);
    MPI_Type_create_struct_c(2, lengths, bytes, types, &type);
    check("struct_c", type);
    MPI_Type_create_subarray_c(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type);
    check("subarray_c", type);
    MPI_Type_create_darray_c(4, 3, 2, sizes, distributions, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
    check("darray_c", type);
    MPI_Type_create_resized_c(MPI_INT, -4, 12, &type);
    check("resized_c", type);
}
#endif

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    srand((unsigned)atoi(argv[1]));
    constants();
    canonical();
    for (int i = 0; i < atoi(argv[2]); i++) {
        char name[200];
        int used = snprintf(name, sizeof name, "case %d, constructors", i);
        MPI_Datatype types[4] = {named()};
        int levels = i < KINDS ? 1 : 1 + below(3);
        MPI_Aint lb, extent;
        for (int level = 0, size = 1; level < levels; level++) {
            int kind = i < KINDS ? i : below(KINDS);
            used += snprintf(name + used, sizeof name - (size_t)used, " %d", kind);
            types[level + 1] = construct(kind, types[level]);
            MPI_Type_size(types[level + 1], &size);
            if (size == 0) /* MPICH divides by the size of what is inside */
                levels = level + 1;
        }
        MPI_Type_get_true_extent(types[levels], &lb, &extent);
        if (llabs(lb) + extent < SPAN / 16)
            check(name, types[levels]);
        for (int level = levels; level > 0; level--)
            MPI_Type_free(&types[level]);
    }
#ifdef LARGE_COUNTS
    large_counts();
#endif
    printf("%ld\n", checked);
    MPI_Finalize();
    return 0;
}
