/* The map file: which replicas exist, of which originals, and where their bytes are.
 * replicator/mapfile.py writes it, the redirector maps it read-only, and it is replaced only by
 * rename. It is little endian, every section is 8-byte aligned, and offsets count from byte 0.
 *
 * A reader refuses a map, and redirects nothing, if the magic, version, sizes or a checksum are
 * wrong, if an offset or count leaves the file, if the file belongs to neither the user nor root,
 * or if others may write to it.
 *
 * RATIONALE: each process of a program reads the map, and needs the entries of few of thousands of
 * files. All that finds an entry is the index, in front of the table of replicas, with a checksum
 * in the header. Each entry has a checksum of its own: it is checked when its file is opened. */
#ifndef PDLA_MAPFILE_H
#define PDLA_MAPFILE_H

#include <stdint.h>

#define MAPFILE_MAGIC "PDLAMAP4"
#define MAPFILE_STATE_MAGIC "PDLASTA1"

struct map_header {         /* at byte 0 */
    char magic[8];
    uint64_t total_size;    /* of the file */
    uint64_t generation;    /* grows with every publication */
    uint32_t checksum;      /* CRC32C of the index but these four bytes */
    uint32_t file_count;
    uint32_t replica_count;
    uint32_t files_offset;  /* struct map_file[file_count], sorted by (inode, device) */
    uint32_t replicas_offset; /* struct map_replica[replica_count]: those of file 0, of file 1, ..., of target 0, ...
                                 The index ends here. */
    uint32_t state_path;    /* NUL-terminated absolute path of the state file */
    uint32_t target_count;
    uint32_t targets_offset; /* struct map_target[target_count], sorted by (inode, device, name) */
    uint32_t reserved[2];   /* 0 */
};
_Static_assert(sizeof(struct map_header) == 64, "header");

/* An original when its replicas were built. RATIONALE: on file systems without a block device the
 * device number differs between nodes and mounts. So a file is this one if it has the inode, and
 * the device or the path. Size and times tell whether it is unchanged. */
struct map_identity {
    uint64_t device, inode;
    int64_t size, mtime_ns, ctime_ns;
};

/* The body of an entry has all that its path (of a file) and its replicas refer to. The checksum is the CRC32C of its
 * replicas, followed by its body. */
struct map_file {
    struct map_identity identity;
    uint32_t first_replica, replica_count;
    uint32_t body, body_size;
    uint32_t checksum;
    uint32_t path;          /* NUL-terminated absolute path */
};

/* A file whose writes may go to replicas, which hold nothing between runs. Its name in its
 * directory identifies it: it may not exist yet, or every run may make it anew. */
struct map_target {
    uint64_t device, inode; /* of the directory */
    uint32_t first_replica, replica_count;
    uint32_t body, body_size;
    uint32_t checksum;
    uint32_t name;          /* NUL-terminated, in the directory; these three are in the index */
    uint32_t path;          /* NUL-terminated absolute path */
    uint32_t journals;      /* NUL-terminated absolute path of the directory of its journals */
};

/* AccessMap: original byte start + sum(i_k * stride_k) + j  <->  replica byte replica_start + sum(i_k *
 * replica_stride_k) + j, 0 <= i_k < count_k, 0 <= j < length. Loops are sorted by stride, outermost largest; stride_k
 * >= the span of the loops inside it (so that digits are found by division); strides > 0, replica strides may be
 * negative. */
struct map_loop {
    int64_t count, stride, replica_stride;
};
/* An irregular map: extents sorted by `start`, not overlapping. */
struct map_extent {
    int64_t start, length, replica_start;
};
struct map_component {      /* one file of a replica, on one server */
    uint32_t path;          /* NUL-terminated absolute path */
    uint32_t reserved;
    uint64_t inode;         /* with another inode, size or mtime the replica is not used */
    int64_t size, mtime_ns; /* the mtime does not count for a target's replica */
};

/* Striping of the replica's logical bytes [0, size) over its components. With w = servers / groups,
 * cycle = sum(strips):
 *   section r = x / section; y = x % section; group = r % groups
 *   in a cycle: c = y / cycle, z = y % cycle; server j of the group is the one whose strip holds z,
 *   s = z - (strips before j)
 *   component = group * w + j; its offset = (r / groups) * ceil(section / cycle) * strips[j] + c * strips[j] + s
 * groups = 1 is 1-DH, groups = servers is 1-DV, in between 2-D.
 *
 * The bytes of a target's replica are each mapped once. Where it is regular: sorted by size, the
 * replica strides are `length`, `length` times the first count, ... */
struct map_replica {
    uint64_t id;            /* the catalog's */
    int64_t start, length, replica_start;
    int64_t size;           /* logical bytes */
    int64_t section;        /* bytes of one rank's part */
    uint32_t loop_count;    /* 0 and extent_count = 0: one block */
    uint32_t loops;         /* offset of struct map_loop[loop_count] */
    uint32_t extent_count;  /* > 0: irregular, and loop_count = 0, start = length = replica_start = 0 */
    uint32_t extents;       /* offset of struct map_extent[extent_count] */
    uint32_t servers, groups;
    uint32_t strips;        /* offset of int64_t[servers / groups] */
    uint32_t components;    /* offset of struct map_component[servers] */
    uint32_t file;          /* index of its original, or of its target */
    uint32_t reserved;
};

/* The state file: what redirected runs have changed since the publication. Every rank maps it
 * shared and writable. It is in the directory of the map. It has a header, struct
 * state_file[file_count], and one byte for each replica: 0 = valid, else an enum state_stale. At
 * the next multiple of 8 follows uint64_t[STATE_PLACES]: when (seconds since 1970) storage of
 * components did not answer (storage.c). */
enum { STATE_PLACES = 64 };
struct state_header {
    char magic[8];
    uint64_t generation;    /* must equal the map's */
    uint32_t file_count, replica_count;
    uint64_t reserved;
};
struct state_file {
    uint64_t reserved[4];   /* 0; in pdla 0.2.0 how writes through the library left the original */
};
enum state_stale {
    STALE_NOT = 0,
    STALE_WRITTEN = 1, /* a redirected run wrote to the replicated bytes */
    STALE_CHANGED = 2  /* the original was changed, by whomever */
};

#endif
