/* Which file it is. A file system gives the number of a removed file to a new one, and a clone, a
 * snapshot or another file system has files of equal numbers. So a file is told by all that is known
 * of it: its number, its file handle with the generation of the number, its birth and its file
 * system. replicator/file_identity.py compares in the same way. */
#ifndef PDLA_FILE_IDENTITY_H
#define PDLA_FILE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

struct statx;

/* What a file system's numbers mean elsewhere. */
enum file_reach {
    REACH_UNKNOWN,
    REACH_LOCAL,   /* on a node, another device number at the same time is another file system */
    REACH_NETWORK, /* each mount and each node may have another device number for it */
    REACH_FUSE     /* likewise, and handles change while the file stays */
};

enum { HANDLE_BYTES = 128 };

/* 0: not known, but `device` and `inode`. */
struct file_identity {
    uint64_t device, inode;
    int64_t birth_ns;
    uint32_t system; /* a checksum of the type of the file system and, of one on a network, of its source */
    uint32_t reach;  /* enum file_reach */
    int32_t handle_type;
    uint32_t handle_bytes;
    unsigned char handle[HANDLE_BYTES]; /* name_to_handle_at(2) */
};

/* The identity of the open file or, if `fd` is -1, of that at `path`, and what statx() says of it. Waits for no other
 * server than that of the file. False: errno says why not. */
bool file_identify(int fd, const char *path, struct file_identity *, struct statx *found);

/* A descriptor of the file at `path`, relative to `directory`, which is no symbolic link. It cannot read, and closing
 * it drops no lock of the program. -1: there is none. */
int file_hold(int directory, const char *path);

enum which_file {
    FILE_THIS,
    FILE_OTHER,
    FILE_UNKNOWN /* all that is known is equal, and does not suffice */
};

/* An identity that was noted, of the file that was at `path`. */
struct noted_file {
    const struct file_identity *file;
    const char *path;
    bool this_boot; /* on this node since it was started: its device number can be compared */
};

/* Whether the file found at `path` now is the noted one. */
enum which_file file_compare(const struct noted_file *, const struct file_identity *found, const char *path);
/* Whether a noted file and one found on the same node, in the same boot, are the same. */
bool file_same_here(const struct file_identity *noted, const struct file_identity *found);
/* Whether two identities noted on any nodes can be those of one file. */
bool file_agrees(const struct file_identity *, const struct file_identity *);

#endif
