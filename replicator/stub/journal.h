/* The journal of one open file in one process: which bytes of the write replicas are newer than the original. It is
 * mapped into the program, so that what is in it outlives a killed process at once, and a crash of the node from
 * journal_sync() on. All of it is under checksums. replicator/journals.py reads it. */
#ifndef PDLA_JOURNAL_H
#define PDLA_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mapfile.h"

#define JOURNAL_MAGIC "PDLAJNL2"
#define JOURNAL_UNFINISHED ".new"
enum { JOURNAL_HEADER = 4096 };

/* What a process knows of the original. There are two of it, and the valid one of the higher sequence counts: one that
 * a killed process had not finished leaves the other. */
struct journal_state {
    uint64_t sequence;
    int64_t size, mtime_ns, ctime_ns; /* the original when this process had last done with it */
    int64_t stamp_ns;      /* CLOCK_REALTIME when a write of this process to the original was last begun or ended */
    uint64_t busy;         /* such writes under way: then the original's identity is not known */
    uint32_t overtaken;    /* 1: the original has newer bytes than some of these, which could not be brought back in time */
    uint32_t checksum;     /* CRC32C of the bytes before it, continued from the header's checksum */
};

struct journal_header {
    char magic[8];
    uint32_t checksum;     /* CRC32C of the header's bytes from `rank` up to `target` and of `target` */
    int32_t rank;          /* in the file's communicator */
    char boot[40];         /* the node's boot; what is not synced is believed in the same one only */
    char host[64];
    int64_t pid;
    uint64_t device, inode; /* of the original */
    int64_t birth_ns;      /* of the original: an inode's number is given again; 0: the file system does not tell */
    uint64_t lease;        /* 1: to be brought back later, also without a crash */
    char target[2048];     /* NUL-terminated path of the original */
    /* What changes. The numbers have seals (journal_number()). */
    uint64_t count;        /* entries that count */
    uint64_t synced;       /* of these, durable with their bytes */
    struct journal_state states[2];
};
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER, "a page");
_Static_assert(offsetof(struct journal_header, count) % 8 == 0, "what changes is aligned");
_Static_assert(sizeof(struct journal_state) == 56, "no padding");

/* `start` .. `start + length` of a replica; the length is not 0. The last word is set by one store, which makes the
 * entry. */
struct journal_entry {
    uint64_t replica;      /* the catalog's number */
    int64_t start;
    uint64_t seal;         /* length in the lower half, CRC32C of replica, start and length (as 8 bytes each) in the upper */
};
_Static_assert(sizeof(struct journal_entry) == 24, "entry");

struct journal {
    char *path;
    int fd;
    struct journal_header *header; /* mapped, and after its page the entries; NULL: there is none */
    size_t size;
    bool fresh;                    /* the next entry does not extend the last: that one is synced */
    struct journal_state state;    /* as it was last put into the header */
};

/* Whose journal it is. */
struct journal_owner {
    const char *directory, *target;
    uint64_t device, inode;
    int rank;
    bool lease;
    bool beside; /* others write to the file: how it is now tells nothing */
};

/* An original as it was found. */
struct original_sight {
    uint64_t device, inode;
    int64_t size, mtime_ns, ctime_ns, birth_ns;
};

/* Of an open file or, `fd` -1, the one at `path`. False: there is none. */
bool original_look(int fd, const char *path, struct original_sight *);
int64_t clock_real_ns(void);

/* A sealed number: the lower half, if the upper one is its checksum. `which`: the address of the word in the header. */
bool journal_number(const struct journal_header *, const uint64_t *which, uint64_t *number);
/* The valid state of the higher sequence; false: there is none. */
bool journal_state_of(const struct journal_header *, struct journal_state *);
/* Whether `size` bytes at `base` are a journal whose header is not damaged. */
bool journal_check(const struct journal_header *base, size_t size);
bool journal_is_of_this_boot(const struct journal_header *);
/* Entry `number` < count of a checked journal; false: it is damaged. */
bool journal_entry_at(const struct journal_header *, uint64_t number, struct journal_entry *, int64_t *length);
/* 0 or an errno. */
int journal_create(struct journal *, const struct journal_owner *, int original);
/* Notes that these bytes of a replica are newer than the original. 0, or an errno: then they do not count. */
int journal_add(struct journal *, uint64_t replica, int64_t start, int64_t length);
static inline uint64_t journal_count(const struct journal *journal)
{
    return journal->header == NULL ? 0 : __atomic_load_n(&journal->header->count, __ATOMIC_ACQUIRE) & UINT32_MAX;
}
struct journal_entry journal_entry(const struct journal *, uint64_t number, int64_t *length);
/* Maps what another process has added to its journal. How many entries that has; -1: they cannot be mapped. */
int64_t journal_follow(struct journal *);
/* All entries are durable; their bytes are already. 0 or an errno. */
int journal_sync(struct journal *);
/* The original has it all. */
void journal_clear(struct journal *);
/* Around writes to the original, and before each of several. */
void journal_original_begin(struct journal *);
void journal_original_stamp(struct journal *);
void journal_original_end(struct journal *, int original);
/* The original has newer bytes than some that it tells of. */
void journal_overtaken(struct journal *);
/* Gives it up; `remove`: and removes it unless it has entries. */
void journal_close(struct journal *, bool remove);
/* Whether a process has the journal open, in another descriptor, that writes to it. */
bool journal_is_owned(int fd);

#endif
