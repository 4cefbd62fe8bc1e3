/* What the recorder writes while a program runs: two files for each process, in the directory named
 * by PDLA_TRACE.
 *
 *   <host>-<pid>.log    a page of header, a window of RAWLOG_WINDOW_SIZE bytes, then the windows
 *                       that are full
 *   <host>-<pid>.side   entries for what a record only names (files and views), each with its
 *                       length before it, appended by write(2)
 *
 * All numbers are little endian. The header and the window are mapped, so that they survive the
 * process. When the window is full, it is appended to the file and used again. `committed` of the
 * header counts the bytes of all windows together that may be read: it grows after an entry is
 * complete. So a log, even one cut short by SIGKILL, consists of the whole windows after the first
 * one, and of those bytes in the first one that continue them. A side entry is always written
 * before the first record that names it.
 *
 * A window can be read without the others. It consists of entries. The first byte of an entry says
 * what it is:
 *
 *   0            nothing more follows in the window
 *   1 FULL       the number of a template or RAWLOG_NO_TEMPLATE (1 byte), a struct rawlog_record
 *   2 ANCHOR     a struct rawlog_anchor; always the first entry of a window
 *   128 and more COMPACT: a record like the template of the number in the lower seven bits
 *
 * A window begins without templates. A FULL entry makes its record the template of its number. A
 * COMPACT entry has `file`, `view`, `call`, `flags` of its template, no error, and moved all bytes
 * asked for. Its second byte has two bits for each of four numbers, the first in the lowest bits: 0:
 * the number is 0; 1, 2, 3: it follows in 2, 4, 8 bytes. The numbers are:
 *
 *   t_start - t_end of the previous record (of the ANCHOR if there is none after it), signed
 *   t_end - t_start
 *   position - (position of the template + its stride), signed
 *   length - length of the template, signed
 *
 * Signed numbers are stored as 2n, or as -2n - 1 if negative. The record's position and length, and the
 * distance of its position from that of the template, become those of the template; the stride of
 * a FULL entry is 0.
 *
 * If POSIX calls are recorded, there is a third file, <host>-<pid>.posix: a header with only magic,
 * sizes and `dropped`, a window of `window_records` records, and the records that left it. Record n
 * is made in place (n - 1) % window_records of the window. It is complete when its `seq` is n
 * (stored last, with release order). So such a log consists of the k complete records after the
 * window and of those records k + 1, k + 2, ... in the window that are complete. The members of its
 * records:
 *
 *   call      the place of a name in the RAWLOG_POSIX_CALLS entry
 *   position  the absolute offset in the file; -1: not known
 *   view      the group: one number for all calls made inside one MPI call; 0: outside
 *   error     0 or the value of errno
 *
 * In some records `call` is the number of those names. Such a record says that the group (`view`)
 * was made for the MPI operation of the .log's record number `position`. A group has none, one, or
 * several of these: a Waitall ends many operations. */
#ifndef PDLA_RAWLOG_H
#define PDLA_RAWLOG_H

#include <stdint.h>

#define RAWLOG_MAGIC "PDLALOG3"
#define RAWLOG_SIDE_MAGIC "PDLASID1"
#define RAWLOG_POSIX_MAGIC "PDLAPSX2"
enum { RAWLOG_HEADER_SIZE = 4096, RAWLOG_RECORD_SIZE = 64, RAWLOG_WINDOW_SIZE = 1 << 16 };

struct rawlog_clock {       /* which CLOCK_MONOTONIC the process reads */
    uint64_t id;            /* the same in all processes that read it; 0: not known */
    uint64_t parent;        /* the clock that it was compared with at MPI_Init; 0: none, or another process compared */
    int64_t offset_ns;      /* to be added to its times to get the parent's times, */
    int64_t error_ns;       /* with an error of at most this */
};

struct rawlog_pair {
    int64_t ticks, ns;      /* ns: CLOCK_MONOTONIC */
};

struct rawlog_header {      /* at offset 0 of the .log file, mapped for the life of the process */
    char magic[8];
    uint32_t header_size;   /* RAWLOG_HEADER_SIZE */
    uint32_t record_size;   /* RAWLOG_RECORD_SIZE */
    int32_t rank;           /* in MPI_COMM_WORLD */
    int32_t ranks;          /* size of MPI_COMM_WORLD */
    int32_t pid;
    int32_t family;         /* enum mpi_family */
    int64_t realtime_ns;    /* CLOCK_REALTIME and CLOCK_MONOTONIC read together at MPI_Init */
    int64_t monotonic_ns;
    uint64_t dropped;       /* records lost: disk full, out of memory */
    uint64_t finalized;     /* CLOCK_MONOTONIC at MPI_Finalize; 0: the log was cut short before */
    char host[64];
    char mpi[128];          /* first line of MPI_Get_library_version */
    struct rawlog_clock clock;
    uint32_t window_records; /* in a .posix */
    /* Calls that were not recorded. The index is the call number, whose name is in the RAWLOG_CALLS
     * entry. */
    uint32_t unrecorded[192];
    /* One moment by both clocks, when the library was loaded and at MPI_Finalize; 0: not reached.
     * The times of records are ticks; with the anchors in the windows they become times of
     * CLOCK_MONOTONIC. */
    struct rawlog_pair loaded, ended;
    uint64_t committed;
    uint32_t exited;        /* 1 + the status with which the process called exit(); 0: it did not */
    char boot[40];          /* of the machine; with the PID namespace it says which processes `pid` counts */
    uint64_t pid_namespace; /* its inode; 0: not known */
};
_Static_assert(sizeof(struct rawlog_header) <= RAWLOG_HEADER_SIZE, "the header fits its page");

enum rawlog_flags {
    RAWLOG_COLLECTIVE = 1,
    RAWLOG_NONBLOCKING = 2,
    RAWLOG_LARGE = 4,          /* a _c call */
    RAWLOG_EXPLICIT = 8,       /* an _at call */
    RAWLOG_MEMORY_STRIDED = 16,/* the buffer's datatype is not contiguous */
    RAWLOG_MOVED_UNKNOWN = 32, /* `moved` is the number of bytes asked for: no status was seen */
    RAWLOG_OPAQUE_VIEW = 64,   /* the view could not be flattened: extents unknown */
    RAWLOG_REDIRECTED = 128,   /* the redirector served some of it from a replica */
    /* Nonblocking or split, and its end was not seen: `t_end` is when the call that began it
     * returned. The record is written at that time. At the end it is changed in place, which clears
     * the flag. */
    RAWLOG_PENDING = 256
};

struct rawlog_record {
    uint64_t seq;      /* 1, 2, 3, ... in this process */
    int64_t t_start;   /* ticks */
    int64_t t_end;
    /* Data access: byte of the view's data stream, -1: not known. seek: the byte sought.
     * seek_shared: likewise, -1 unless it was sought from the start. set_size, preallocate: the
     * size. Otherwise 0. */
    int64_t position;
    int64_t length;    /* bytes asked for */
    int64_t moved;     /* bytes moved, from the status */
    /* id from a RAWLOG_FILE entry; 0 = none. MPI_File_delete: what it removed; older logs have 0. */
    uint32_t file;
    uint32_t view;     /* id from a RAWLOG_VIEW entry; 0 = the file's bytes from 0 */
    uint16_t call;     /* call number: the place of its name in the RAWLOG_CALLS entry */
    uint16_t flags;
    int32_t error;     /* result of the call: 0 = MPI_SUCCESS, else the error class */
};
_Static_assert(sizeof(struct rawlog_record) == RAWLOG_RECORD_SIZE, "a record is 64 bytes");

enum rawlog_entry { RAWLOG_NOTHING = 0, RAWLOG_FULL = 1, RAWLOG_ANCHOR = 2, RAWLOG_COMPACT = 128 };
enum { RAWLOG_TEMPLATES = 64, RAWLOG_NO_TEMPLATE = 255 };

struct rawlog_anchor {
    uint64_t next;          /* `seq` of the next record */
    struct rawlog_pair now;
};

/* The bytes of a number whose two bits are `width`. */
static inline unsigned rawlog_bytes(unsigned width)
{
    return (1u << width) & ~1u;
}

/* The .side file: RAWLOG_SIDE_MAGIC, then entries. Each is this header and `length` bytes, padded to 8. */
enum rawlog_side_kind {
    RAWLOG_CALLS = 1, /* always first: names of all calls, NUL-terminated one after another, call number 0 first */
    RAWLOG_FILE = 2,  /* struct rawlog_file + the absolute path (no NUL) */
    RAWLOG_VIEW = 3,  /* struct rawlog_view + typemap words (typemap.h) */
    RAWLOG_POSIX_CALLS = 4, /* names of all POSIX calls, as RAWLOG_CALLS */
    /* Of rank 0: the paths of the executable and of the working directory, then the words of the
     * command line, each NUL-terminated. */
    RAWLOG_PROGRAM = 5
};
struct rawlog_side {
    uint32_t kind;
    uint32_t length;
};
struct rawlog_file {     /* one per MPI_File_open or _delete; one file opened twice has two entries with one path */
    uint32_t id;         /* 1, 2, 3, ... */
    uint32_t amode;      /* as in MPICH: CREATE 1 RDONLY 2 WRONLY 4 RDWR 8 ... whatever the family */
    uint32_t comm_size;  /* ranks that opened it together; 0: it was not opened through MPI */
    uint32_t comm_rank;
    uint64_t device, inode;
    int64_t size, mtime_ns, ctime_ns; /* at open; all 0 when it could not be examined */
};
struct rawlog_view {
    uint32_t id;          /* 1, 2, 3, ... */
    uint32_t etype_size;
    int64_t displacement;
    int64_t extent;       /* bytes from one tile to the next */
    int64_t size;         /* data bytes in one tile */
};

#endif
