/* Takes an MPI datatype apart into a typemap, as MPI-4.1 section 5.1.13 describes its construction.
 */
#include <stdlib.h>
#include <string.h>

#include "running_mpi.h"
#include "typemap_node.h"

enum { NESTING = 256 }; /* of constructors; most add no loop */

/* MPICH's values; those of other families are translated. */
enum combiner { NAMED = 1, DUP, CONTIGUOUS, VECTOR, HVECTOR_INTEGER, HVECTOR, INDEXED, HINDEXED_INTEGER, HINDEXED,
                INDEXED_BLOCK, STRUCT_INTEGER, STRUCT, SUBARRAY, DARRAY, F90_REAL, F90_COMPLEX, F90_INTEGER, RESIZED,
                HINDEXED_BLOCK, VALUE_INDEX, UNKNOWN };

static enum combiner combiner_of(enum mpi_family family, int value)
{
    static const enum combiner abi[] = {NAMED, DUP, CONTIGUOUS, VECTOR, HVECTOR, INDEXED, HINDEXED, INDEXED_BLOCK,
                                        HINDEXED_BLOCK, STRUCT, SUBARRAY, DARRAY, F90_REAL, F90_COMPLEX, F90_INTEGER,
                                        RESIZED, VALUE_INDEX};
    if (family == MPI_FAMILY_ABI)
        return value >= 101 && value <= 117 ? abi[value - 101] : UNKNOWN;
    if (family == MPI_FAMILY_OPENMPI)
        value++;
    return value >= NAMED && value <= VALUE_INDEX ? (enum combiner)value : UNKNOWN;
}

struct array_constants {
    int64_t order_c, block, cyclic, none, default_argument;
};

static struct array_constants array_constants(enum mpi_family family)
{
    if (family == MPI_FAMILY_ABI)
        return (struct array_constants){12, 17, 18, 16, 19};
    if (family == MPI_FAMILY_OPENMPI)
        return (struct array_constants){0, 0, 1, 2, -1};
    return (struct array_constants){56, 121, 122, 123, -49767};
}

/* The construction of a datatype. `values` has its integers, addresses and large counts one after
 * another. This order is the same for the plain and the large-count constructors, except for the
 * two array ones. */
struct contents {
    enum combiner combiner;
    bool large;
    int64_t value_count, type_count;
    int64_t *values;
    mpi_handle *types;
};

static bool get_envelope(const struct mpi *mpi, mpi_handle type, mpi_count counts[4], int *combiner)
{
    /* RATIONALE: MPICH's plain call raises an error on a type made by a large-count constructor. */
    if (mpi->Type_get_envelope_c)
        return mpi->Type_get_envelope_c(type, &counts[0], &counts[1], &counts[2], &counts[3], combiner) == 0;
    int integers, addresses, types;
    if (mpi->Type_get_envelope(type, &integers, &addresses, &types, combiner) != 0)
        return false;
    counts[0] = integers;
    counts[1] = addresses;
    counts[2] = 0;
    counts[3] = types;
    return true;
}

static bool read_contents(const struct mpi *mpi, mpi_handle type, const mpi_count counts[4], struct contents *contents)
{
    int *integers = malloc((size_t)(counts[0] + 1) * sizeof *integers);
    intptr_t *addresses = malloc((size_t)(counts[1] + 1) * sizeof *addresses);
    mpi_count *large = malloc((size_t)(counts[2] + 1) * sizeof *large);
    void *types = calloc((size_t)counts[3] + 1, sizeof(mpi_handle));
    contents->values = malloc((size_t)(contents->value_count + 1) * sizeof *contents->values);
    contents->types = calloc((size_t)counts[3] + 1, sizeof *contents->types);
    bool got = integers && addresses && large && types && contents->values && contents->types;
    if (got && mpi->Type_get_contents_c)
        got = mpi->Type_get_contents_c(type, counts[0], counts[1], counts[2], counts[3], integers, addresses, large,
                                       types) == 0;
    else if (got)
        got = mpi->Type_get_contents(type, (int)counts[0], (int)counts[1], (int)counts[3], integers, addresses,
                                     types) == 0;
    if (got) {
        int64_t *value = contents->values;
        for (int64_t i = 0; i < counts[0]; i++)
            *value++ = integers[i];
        for (int64_t i = 0; i < counts[1]; i++)
            *value++ = addresses[i];
        for (int64_t i = 0; i < counts[2]; i++)
            *value++ = large[i];
        for (int64_t i = 0; i < counts[3]; i++)
            memcpy(&contents->types[i], (char *)types + (size_t)i * mpi->handle_size, mpi->handle_size);
        contents->type_count = counts[3];
    }
    free(integers);
    free(addresses);
    free(large);
    free(types);
    return got;
}

static bool is_predefined(enum combiner combiner)
{
    return combiner == NAMED || combiner == F90_REAL || combiner == F90_COMPLEX || combiner == F90_INTEGER;
}

/* The types that MPI returned are references to free, except for predefined ones. */
static void release_contents(const struct mpi *mpi, struct contents *contents)
{
    for (int64_t i = 0; i < contents->type_count; i++) {
        mpi_count counts[4];
        int combiner;
        if (get_envelope(mpi, contents->types[i], counts, &combiner) &&
            !is_predefined(combiner_of(mpi->family, combiner)))
            mpi->Type_free(&contents->types[i]);
    }
    free(contents->values);
    free(contents->types);
}

/* ---- one function per constructor -------------------------------------------------------------------------------- */

struct child {
    struct part part;
    int64_t extent;
};

/* A run of `count` children, as the constructors make it. */
static struct part repeat(struct builder *builder, int64_t count, const struct child *child)
{
    return typemap_loop(builder, count, child->extent, child->part);
}

static struct part moved(struct part part, int64_t offset)
{
    part.offset += offset;
    return part;
}

static struct part strided(struct builder *builder, const int64_t *value, int64_t unit, const struct child *child)
{
    return typemap_loop(builder, value[0], value[2] * unit, repeat(builder, value[1], child));
}

static struct part *take_parts(struct builder *builder, int64_t count)
{
    struct part *parts = calloc((size_t)count + 1, sizeof *parts);
    if (!parts)
        builder->failed = true;
    return parts;
}

/* Runs of `lengths[i]` children (if `same`, all of `lengths[0]`) at `displacements[i] * unit`,
 * `count` of them. */
static struct part indexed(struct builder *builder, int64_t count, const int64_t *lengths, bool same,
                           const int64_t *displacements, int64_t unit, const struct child *child)
{
    struct part *parts = take_parts(builder, count), run = {0}, list;
    if (!parts)
        return (struct part){0};
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || (!same && lengths[i] != lengths[i - 1]))
            run = repeat(builder, lengths[i], child);
        parts[i] = moved(run, displacements[i] * unit);
    }
    list = typemap_list(builder, parts, count);
    free(parts);
    return list;
}

static struct part structure(struct builder *builder, const int64_t *value, const struct child *children)
{
    int64_t count = value[0];
    struct part *parts = take_parts(builder, count), list;
    if (!parts)
        return (struct part){0};
    for (int64_t i = 0; i < count; i++)
        parts[i] = moved(repeat(builder, value[1 + i], &children[i]), value[1 + count + i]);
    list = typemap_list(builder, parts, count);
    free(parts);
    return list;
}

static struct part subarray(struct builder *builder, const struct contents *contents, const struct child *child,
                            const struct array_constants *constants)
{
    int64_t dimensions = contents->values[0];
    const int64_t *sizes = contents->values + (contents->large ? 2 : 1);
    const int64_t *lengths = sizes + dimensions, *starts = lengths + dimensions;
    bool order_c = (contents->large ? contents->values[1] : starts[dimensions]) == constants->order_c;
    struct part part = child->part;
    int64_t stride = child->extent;
    for (int64_t i = 0; i < dimensions; i++) {
        int64_t d = order_c ? dimensions - 1 - i : i;
        part = moved(typemap_loop(builder, lengths[d], stride, part), starts[d] * stride);
        stride *= sizes[d];
    }
    return part;
}

/* One dimension of a distributed array: blocks of `block` elements go to `processes` in turn; the
 * result is those of `process`. */
static struct part dealt(struct builder *builder, int64_t elements, int64_t block, int64_t processes, int64_t process,
                         int64_t stride, struct part part)
{
    int64_t round = block * processes, first = process * block;
    int64_t whole = elements >= first + block ? (elements - first - block) / round + 1 : 0;
    int64_t last = whole * round + first;
    struct part parts[2] = {
        moved(typemap_loop(builder, whole, round * stride, typemap_loop(builder, block, stride, part)), first * stride),
        moved(typemap_loop(builder, elements - last < block ? elements - last : 0, stride, part), last * stride),
    };
    return typemap_list(builder, parts, 2);
}

static struct part darray(struct builder *builder, const struct contents *contents, const struct child *child,
                          const struct array_constants *constants)
{
    const int64_t *value = contents->values;
    int64_t rank = value[1], dimensions = value[2];
    const int64_t *distributions = value + 3 + (contents->large ? 0 : dimensions);
    const int64_t *arguments = distributions + dimensions, *grid = arguments + dimensions;
    bool order_c = grid[dimensions] == constants->order_c;
    const int64_t *sizes = contents->large ? grid + dimensions + 1 : value + 3;
    struct part part = child->part;
    int64_t stride = child->extent;
    for (int64_t i = 0; i < dimensions; i++) {
        int64_t d = order_c ? dimensions - 1 - i : i;
        int64_t inner = 1; /* the process grid is in row-major order, whatever the array's order is */
        for (int64_t k = d + 1; k < dimensions; k++)
            inner *= grid[k];
        int64_t block = arguments[d];
        if (distributions[d] == constants->none)
            block = sizes[d];
        else if (block == constants->default_argument)
            block = distributions[d] == constants->cyclic ? 1 : (sizes[d] + grid[d] - 1) / grid[d];
        part = dealt(builder, sizes[d], block, grid[d], rank / inner % grid[d], stride, part);
        stride *= sizes[d];
    }
    return part;
}

/* A value and an index, as in a C struct: MPI_SHORT_INT and its like have holes. */
static struct part pair(struct builder *builder, int64_t value_size, int64_t index_size)
{
    struct part parts[2] = {{0, value_size, NULL},
                            {(value_size + index_size - 1) / index_size * index_size, index_size, NULL}};
    return typemap_list(builder, parts, 2);
}

static struct part flatten(struct builder *builder, const struct mpi *mpi, mpi_handle type, int nesting);

static struct part named(struct builder *builder, const struct mpi *mpi, mpi_handle type)
{
    mpi_count size, lb, extent, true_lb, true_extent;
    if (mpi->Type_size_x(type, &size) != 0 || mpi->Type_get_extent_x(type, &lb, &extent) != 0 ||
        mpi->Type_get_true_extent_x(type, &true_lb, &true_extent) != 0) {
        builder->failed = true;
        return (struct part){0};
    }
    if (size == 0 || size == true_extent)
        return (struct part){0, size, NULL};
    return pair(builder, size - (int64_t)sizeof(int), sizeof(int));
}

static struct part construct(struct builder *builder, const struct mpi *mpi, const struct contents *contents,
                             const struct child *children)
{
    const int64_t *value = contents->values;
    const struct array_constants constants = array_constants(mpi->family);
    switch (contents->combiner) {
    case DUP:
    case RESIZED:
        return children[0].part;
    case CONTIGUOUS:
        return repeat(builder, value[0], children);
    case VECTOR:
        return strided(builder, value, children[0].extent, children);
    case HVECTOR_INTEGER:
    case HVECTOR:
        return strided(builder, value, 1, children);
    case INDEXED:
        return indexed(builder, value[0], value + 1, false, value + 1 + value[0], children[0].extent, children);
    case HINDEXED_INTEGER:
    case HINDEXED:
        return indexed(builder, value[0], value + 1, false, value + 1 + value[0], 1, children);
    case INDEXED_BLOCK:
        return indexed(builder, value[0], value + 1, true, value + 2, children[0].extent, children);
    case HINDEXED_BLOCK:
        return indexed(builder, value[0], value + 1, true, value + 2, 1, children);
    case STRUCT_INTEGER:
    case STRUCT:
        return structure(builder, value, children);
    case SUBARRAY:
        return subarray(builder, contents, children, &constants);
    case DARRAY:
        return darray(builder, contents, children, &constants);
    case VALUE_INDEX:
        return pair(builder, children[0].part.size, children[1].part.size);
    default:
        builder->failed = true;
        return (struct part){0};
    }
}

static struct part flatten(struct builder *builder, const struct mpi *mpi, mpi_handle type, int nesting)
{
    mpi_count counts[4];
    struct part part = {0};
    struct contents contents = {0};
    int combiner;
    if (nesting > NESTING || !get_envelope(mpi, type, counts, &combiner)) {
        builder->failed = true;
        return part;
    }
    contents.combiner = combiner_of(mpi->family, combiner);
    if (is_predefined(contents.combiner))
        return named(builder, mpi, type);
    contents.large = counts[2] > 0;
    contents.value_count = counts[0] + counts[1] + counts[2];
    struct child *children = calloc((size_t)counts[3] + 1, sizeof *children);
    if (!children || !read_contents(mpi, type, counts, &contents))
        builder->failed = true;
    for (int64_t i = 0; !builder->failed && i < contents.type_count; i++) {
        mpi_count lb;
        children[i].part = flatten(builder, mpi, contents.types[i], nesting + 1);
        if (mpi->Type_get_extent_x(contents.types[i], &lb, &children[i].extent) != 0)
            builder->failed = true;
    }
    if (!builder->failed)
        part = construct(builder, mpi, &contents, children);
    release_contents(mpi, &contents);
    free(children);
    return part;
}

struct typemap *typemap_flatten(uintptr_t datatype)
{
    const struct mpi *mpi = running_mpi();
    struct builder builder = {0};
    mpi_count lb, extent = 0;
    if (!mpi || !mpi->Type_get_extent_x)
        return NULL;
    struct part root = flatten(&builder, mpi, datatype, 0);
    if (mpi->Type_get_extent_x(datatype, &lb, &extent) != 0)
        builder.failed = true;
    return typemap_build(&builder, root, extent);
}
