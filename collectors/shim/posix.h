/* What libpdla-posix.so, which wraps the C library's file calls (collectors/posix), calls in
 * libpdla.so, which records them (posix.c). Only the functions declared here are exported to it. */
#ifndef PDLA_POSIX_H
#define PDLA_POSIX_H

#include <stdbool.h>
#include <stdint.h>

/* The calls by their names in the log. Variants (pread64, __pread_chk, preadv2) have one name. */
#define POSIX_CALLS(X)                                                                                              \
    X(open) X(close) X(lseek) X(read) X(write) X(pread) X(pwrite) X(readv) X(writev) X(preadv) X(pwritev)           \
    X(aio_read) X(aio_write) X(ftruncate) X(fallocate) X(fsync) X(fdatasync)

#define POSIX_NUMBER(name) POSIX_##name,
enum posix_number { POSIX_CALLS(POSIX_NUMBER) POSIX_COUNT };
#undef POSIX_NUMBER

struct posix_call {
    uint16_t number;     /* enum posix_number; the caller sets it, the offset and the length */
    uint32_t file;       /* the recorder's id */
    uint32_t group;      /* the MPI call in which it is made; 0: none */
    int64_t offset;      /* -1: not known */
    int64_t length;
    int64_t t_start;
    int64_t t_end;       /* 0: the time when pdla_posix_end() is called */
};

#define POSIX_INTERFACE __attribute__((weak, visibility("default")))

/* Tells the recorder that libpdla-posix.so is there. */
POSIX_INTERFACE void pdla_posix_present(void);
/* Begins a call on a descriptor. False: it is not recorded. `caller` is its return address. */
POSIX_INTERFACE bool pdla_posix_begin(struct posix_call *call, int descriptor, const void *caller);
/* Ends the call; `error` is 0 or the value of errno. */
POSIX_INTERFACE void pdla_posix_end(const struct posix_call *call, int64_t moved, int error);
/* Counts a call that was begun and cannot be kept. */
POSIX_INTERFACE void pdla_posix_drop(void);
/* Notes that the descriptor may mean another file from now on. */
POSIX_INTERFACE void pdla_posix_forget(int descriptor);
POSIX_INTERFACE int64_t pdla_posix_clock(void);

#endif
