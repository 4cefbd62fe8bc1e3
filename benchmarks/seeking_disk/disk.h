/* The cost of a disk with one head: it takes requests and reports when each would be done. It holds
 * no bytes. */
#ifndef DISK_H
#define DISK_H

#include <stdint.h>

/* A request takes length / bandwidth. One that does not begin where the one before it ended takes
 * overhead + seek + rotation more, where seek = shortest + (longest - shortest) * sqrt(distance /
 * size). */
struct model {
    double size;               /* bytes from the first track to the last */
    double bandwidth;          /* bytes/s */
    double overhead, rotation; /* seconds */
    double shortest, longest;  /* seconds of a seek */
};

struct request {
    uint64_t offset, length;
    void (*done)(struct request *request); /* called once, on the disk's thread; then the request is the caller's */
    struct request *next;                  /* the disk's, like what follows */
    double arrived;
};

struct counters {
    uint64_t requests, bytes;
    uint64_t seeks, distance; /* requests that did not begin at the head, and how far from it these did, in bytes */
    double busy;              /* seconds that all requests took */
};

struct disk;

/* Makes an idle disk, which lives as long as the process. NULL, with errno set: no memory or no
 * thread for it. */
struct disk *disk_start(const struct model *model);

void disk_take(struct disk *disk, struct request *request);

/* Of the requests that are done or begun. */
struct counters disk_counters(struct disk *disk);

#endif
