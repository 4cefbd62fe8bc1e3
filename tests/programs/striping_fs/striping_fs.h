/* A file system that stripes files over directories as a parallel file system stripes them over its targets. How a
 * client asks for a file's striping and reads it back, lustre.c and beegfs.c say. */
#ifndef STRIPING_FS_H
#define STRIPING_FS_H

#define FUSE_USE_VERSION 35

#include <fuse.h>
#include <stdint.h>
#include <sys/types.h>

enum { MOST_STRIPES = 64, MOST_TARGETS = 64, MOST_POOL = 16, MOST_PARTS = 4 };

/* A part of a progressive file. It begins where the one before it ends. */
struct part {
    uint64_t stop;
    uint32_t strip, count; /* of its objects, which follow those of the part before it */
};

/* How a file is striped. It is what a file of the name space contains; none: an empty file. */
struct layout {
    uint32_t strip;  /* bytes */
    uint32_t count;  /* of objects */
    uint32_t again;  /* 1: a target may have several objects */
    char pool[MOST_POOL];
    uint32_t target[MOST_STRIPES]; /* of each object, an index from 0 */
    uint32_t parts; /* 0: the file is striped in one way */
    struct part part[MOST_PARTS];
};

/* What one of the two file systems does. Functions return 0 or an error number less than 0. */
struct kind {
    const char *name;
    uint32_t strip, count; /* of files that did not ask */
    int (*get)(const char *path, int directory, const char *name, char *value, size_t size);
    int (*set)(const char *path, int directory, const char *name, const char *value, size_t size);
    int (*ioctl)(const char *path, unsigned command, const void *argument, void *data);
};

extern const struct kind lustre, beegfs;

uint32_t targets(void);
/* Whether files can be made on a target. */
int usable(uint32_t target);
/* Whether a pool has a target with this number; 0: a directory's pool, which has all. */
int in_pool(unsigned pool, uint32_t number);
/* The layout of a file; -ENODATA: it has none yet. */
int layout_of(const char *path, struct layout *found);
/* What new files of a directory are like; also of those made in it later. -ENODATA: it does not say. */
int default_of(const char *directory, struct layout *found);
int set_default(const char *directory, const struct layout *wanted);
/* Gives a file without a layout this one, and makes its objects. -EEXIST: it has one. -EINVAL: there is no such
 * target. -ENOSPC: it has no space. */
int give(const char *path, const struct layout *wanted);
/* Makes an empty regular file, of the user who asks. */
int make(const char *path, mode_t mode);
int drop(const char *path);

#endif
