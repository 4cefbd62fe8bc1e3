/* The journal of one open file in one process. It lists which bytes, of the write replicas or of a
 * cache file of the process, are newer than the original. It is mapped into memory: its entries
 * survive a kill of the process at once, and a crash of the node after journal_sync(). Checksums
 * cover all of it. replicator/journals.py reads it. */
#ifndef PDLA_JOURNAL_H
#define PDLA_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file_identity.h"
#include "mapfile.h"

#define JOURNAL_MAGIC "PDLAJNL4"
#define JOURNAL_SUFFIX ".journal"
#define JOURNAL_UNFINISHED ".new"
#define JOURNAL_NONE {.fd = -1, .state_lock = PTHREAD_MUTEX_INITIALIZER}
enum { JOURNAL_HEADER = 4096 };

/* What a chmod, a chown or a new link changes beside the ctime of a file. */
struct file_attributes {
    uint32_t mode, owner, group, links;
};

/* What a process knows of the original. The header has two copies, and the valid one with the
 * higher sequence counts: if a killed process had not finished one, the other is whole. */
struct journal_state {
    uint64_t sequence;
    int64_t size, mtime_ns, ctime_ns; /* the original after this process's last write to it */
    struct file_attributes attributes; /* likewise; a mode of 0: not known */
    int64_t stamp_ns;      /* CLOCK_REALTIME when a write of this process to the original last began or ended */
    uint64_t busy;         /* such writes under way; unless 0 the identity of the original is not known */
    uint32_t overtaken;    /* 1: the original has newer bytes than some entries, whose write-back failed */
    uint32_t checksum;     /* CRC32C of the bytes before it, continued from the header's checksum */
};

/* Which file the process made for its cache. It is noted after the header is whole. */
struct own_file {
    uint64_t inode;        /* 0: not known */
    uint64_t checksum;     /* CRC32C of the inode, continued from the header's checksum */
};

struct journal_header {
    char magic[8];
    uint32_t checksum;     /* CRC32C of the header's bytes from `rank` up to `target` and of `target` */
    int32_t rank;          /* in the file's communicator */
    char boot[40];         /* the node's boot; entries that are not synced count only in the same boot */
    char host[64];
    int64_t pid;
    struct file_identity original;
    uint64_t lease;        /* 1: write-back may come later, without a crash, too */
    char target[2048];     /* NUL-terminated path of the original */
    char cache[1024];      /* NUL-terminated path of the cache file, on the node `host`; "": entries are of replicas */
    /* The rest changes. The numbers have seals (journal_number()). */
    uint64_t count;        /* entries that count */
    uint64_t synced;       /* of these, durable with their bytes */
    uint64_t home;         /* of these, the first that the original has; may be larger than `count`: all of them */
    struct journal_state states[2];
    struct own_file cache_file;
};
_Static_assert(sizeof(struct journal_header) <= JOURNAL_HEADER, "a page");
_Static_assert(offsetof(struct journal_header, count) % 8 == 0, "what changes is aligned");
_Static_assert(sizeof(struct journal_state) == 72, "no padding");
_Static_assert(sizeof(struct file_identity) == 168, "no padding");

/* Bytes [start, start + length) of a replica, or of the original; the length is not 0. One store of
 * the last word makes the entry valid. Of entries of several journals for the same byte of the
 * original, that with the latest stamp has the newest; within a journal, the last. */
struct journal_entry {
    uint64_t place;        /* the catalog's number of the replica, or where in the cache file the bytes are */
    int64_t start;
    uint64_t stamp;        /* of a cache: CLOCK_MONOTONIC of the node when the call wrote them; otherwise 0 */
    uint64_t seal;         /* lower half: length; upper half: CRC32C of place, start, stamp, length (8 bytes each) */
};
_Static_assert(sizeof(struct journal_entry) == 32, "entry");

struct journal {
    char *path;
    int fd;
    struct journal_header *header; /* its page, mapped; NULL: there is none */
    struct journal_entry *entries; /* mapped; moves when the journal grows, while the header stays for other threads */
    size_t size;                   /* of the file */
    bool fresh;                    /* the next entry does not extend the last one, which is synced */
    struct journal_state state;    /* as it was last put into the header */
    pthread_mutex_t state_lock;
};

/* The process and file of a journal, which is DIRECTORY/NODE.journal/HOST-PID-SERIAL-OPEN.journal. Nobody
 * learns the process from the name: in another PID namespace another process may have the same number.
 * RATIONALE: no directory has the journals of all ranks of a large run. A directory's name ends like a
 * journal's, so that pdla 0.2.0, which had all of them in DIRECTORY, takes it for a damaged one and
 * refuses to go on, instead of seeing no journals. */
struct journal_owner {
    const char *directory, *target;
    uint64_t open;         /* of one opening of the file, by all its ranks */
    const char *cache;     /* the directory of the cache file, which is named like the journal; NULL: there is none */
    int rank;
    bool lease;
    bool others_write; /* other processes write to the file: its present state proves nothing */
};

/* An original as it was found at `path`. */
struct original_state {
    struct file_identity file;
    int64_t size, mtime_ns, ctime_ns;
    struct file_attributes attributes;
    const char *path;
};

/* Examines the file at `path` or, unless `fd` is -1, the open file that was found there. False: there is none. */
bool original_examine(int fd, const char *path, struct original_state *);
/* Whether a journal is of the original. */
enum which_file journal_is_of(const struct journal_header *, const struct original_state *);
/* Whether a new name, a chmod, a chown or a new link since this state explains another ctime. */
bool journal_explains_ctime(const struct journal_header *, const struct journal_state *, const struct original_state *);
/* Whether the original is as a process left it. RATIONALE: a write changes the mtime, but whoever restores a backup
 * may put it back, and changes the ctime, which nothing else explains. */
bool journal_left_as(const struct journal_header *, const struct journal_state *, const struct original_state *);
int64_t clock_real_ns(void);

/* Checks a sealed number: its upper half is the checksum of the lower one. `which`: the address of
 * the word in the header. */
bool journal_number(const struct journal_header *, const uint64_t *which, uint64_t *number);
/* The valid state with the higher sequence. False: there is none. */
bool journal_state_of(const struct journal_header *, struct journal_state *);
/* Whether `size` bytes at `base` are a journal with an undamaged header. */
bool journal_check(const struct journal_header *base, size_t size);
/* The inode of the cache file. 0: not known. */
uint64_t journal_cache_inode(const struct journal_header *);
bool journal_is_of_this_boot(const struct journal_header *);
/* In this boot or an earlier one. */
bool journal_is_of_this_node(const struct journal_header *);
/* Entry `number` < count of a checked journal. False: it is damaged. */
bool journal_entry_at(const struct journal_header *, uint64_t number, struct journal_entry *, int64_t *length);
/* Gives a header whose other members are set its magic, its numbers and its checksums. */
void journal_seal(struct journal_header *, uint64_t count, uint64_t synced, uint64_t home);
/* The end of the names of the journals of one opening. */
void journal_ending(char ending[32], uint64_t open);
/* For the original open as `original`. 0 or an errno. */
int journal_create(struct journal *, const struct journal_owner *, int original);
/* Notes that these bytes are newer than the original. 0 or an errno; after an error they do not
 * count. */
int journal_add(struct journal *, const struct journal_entry *, int64_t length);
static inline uint64_t journal_count(const struct journal *journal)
{
    return journal->header == NULL ? 0 : __atomic_load_n(&journal->header->count, __ATOMIC_ACQUIRE) & UINT32_MAX;
}
static inline uint64_t journal_home(const struct journal *journal)
{
    return journal->header == NULL ? 0 : __atomic_load_n(&journal->header->home, __ATOMIC_ACQUIRE) & UINT32_MAX;
}
/* How many entries the original does not have yet. */
static inline uint64_t journal_waiting(const struct journal *journal)
{
    const uint64_t home = journal_home(journal), count = journal_count(journal);
    return count > home ? count - home : 0;
}
struct journal_entry journal_entry(const struct journal *, uint64_t number, int64_t *length);
/* Notes which file the cache file is. */
void journal_set_cache(struct journal *, uint64_t inode);
/* The original has the first `number` entries. */
void journal_set_home(struct journal *, uint64_t number);
/* Maps a journal of another process, open as `fd`. 0 or an errno. */
int journal_map(struct journal *, int fd);
void journal_unmap(struct journal *);
/* Maps what another process has added to its journal. The number of entries; -1: they cannot be
 * mapped. */
int64_t journal_follow(struct journal *);
/* The entries, if they are many, leave this process's memory until it looks at them again. */
void journal_rest(const struct journal *);
/* Makes all entries durable; their bytes must be durable already. 0 or an errno. */
int journal_sync(struct journal *);
/* Removes all entries: the original has their bytes. */
void journal_clear(struct journal *);
/* To be called around writes to the original, and before each of several. Several threads may. */
void journal_original_begin(struct journal *);
void journal_original_stamp(struct journal *);
void journal_original_end(struct journal *, int original);
/* Notes that the original has newer bytes than some entries. */
void journal_overtaken(struct journal *);
/* Closes the journal. `remove`: also deletes it unless entries wait, and the node's directory if it is
 * empty now. */
void journal_close(struct journal *, bool remove);
/* Whether some process has the journal open, by another descriptor, to write to it; `unknown` if the
 * file system does not answer. */
bool journal_is_owned(int fd, bool unknown);

#endif
