/* Asynchronous reads and writes. Each is recorded when the program takes its result. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <stddef.h>

#include "wrappers.h"

/* The operations under way, by address of their control block: a hash table without a lock. */
enum { SLOTS = 4096, PROBES = 64 };

static struct slot {
    const void *block; /* NULL: free */
    struct posix_call call;
} slots[SLOTS];
static const char being_changed; /* its address stands for a block */
static int under_way;

static struct slot *slot_of(const void *block, unsigned probe)
{
    return &slots[((((uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15)) >> 52) + probe) & (SLOTS - 1)];
}

static bool claim(struct slot *slot, const void *from)
{
    return __atomic_compare_exchange_n(&slot->block, &from, &being_changed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void keep(const void *block, const struct posix_call *call)
{
    for (unsigned probe = 0; probe < PROBES; probe++) {
        struct slot *slot = slot_of(block, probe);
        if (claim(slot, NULL)) {
            slot->call = *call;
            __atomic_add_fetch(&under_way, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&slot->block, block, __ATOMIC_RELEASE);
            return;
        }
    }
    pdla_posix_drop();
}

static struct slot *find(const void *block)
{
    if (__atomic_load_n(&under_way, __ATOMIC_RELAXED) == 0)
        return NULL;
    for (unsigned probe = 0; probe < PROBES; probe++)
        if (__atomic_load_n(&slot_of(block, probe)->block, __ATOMIC_ACQUIRE) == block)
            return slot_of(block, probe);
    return NULL;
}

/* Takes an operation out of the table. False: it is not there. */
static bool take(const void *block, struct posix_call *call)
{
    struct slot *slot = find(block);
    if (!slot || !claim(slot, block))
        return false;
    *call = slot->call;
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->block, NULL, __ATOMIC_RELEASE);
    return true;
}

/* RATIONALE: kept before the real call, since another thread may take the result at once. */
static void begin(const void *block, int fd, enum posix_number number, off64_t offset, size_t length,
                  const void *caller)
{
    struct posix_call call = {.number = (uint16_t)number, .offset = offset, .length = (int64_t)length};
    if (pdla_posix_begin && pdla_posix_begin(&call, fd, caller))
        keep(block, &call);
}

static int begun(const void *block, int result)
{
    int error = errno;
    struct posix_call call;
    if (result < 0 && take(block, &call))
        pdla_posix_end(&call, 0, error);
    errno = error;
    return result;
}

#define START(name, kind, block_type)                                                                             \
    EXPORT int name(struct block_type *block)                                                                     \
    {                                                                                                             \
        static int (*real)(struct block_type *);                                                                  \
        if (!find_next(&real, #name))                                                                             \
            return -1;                                                                                            \
        begin(block, block->aio_fildes, kind, block->aio_offset, block->aio_nbytes, __builtin_return_address(0)); \
        return begun(block, real(block));                                                                         \
    }

#define LIST(name, block_type)                                                                                    \
    EXPORT int name(int mode, struct block_type *const blocks[], int count, struct sigevent *event)               \
    {                                                                                                             \
        static int (*real)(int, struct block_type *const[], int, struct sigevent *);                              \
        if (!find_next(&real, #name))                                                                             \
            return -1;                                                                                            \
        for (int i = 0; i < count; i++) {                                                                         \
            const struct block_type *block = blocks[i];                                                           \
            if (block && block->aio_lio_opcode != LIO_NOP)                                                        \
                begin(block, block->aio_fildes, block->aio_lio_opcode == LIO_READ ? POSIX_aio_read : POSIX_aio_write, \
                      block->aio_offset, block->aio_nbytes, __builtin_return_address(0));                         \
        }                                                                                                         \
        return real(mode, blocks, count, event);                                                                  \
    }

#define ERROR(name, block_type)                                                   \
    EXPORT int name(const struct block_type *block)                               \
    {                                                                             \
        static int (*real)(const struct block_type *);                            \
        if (!find_next(&real, #name))                                             \
            return -1;                                                            \
        int error = real(block);                                                  \
        struct slot *slot = error == EINPROGRESS ? NULL : find(block);            \
        if (slot && slot->call.t_end == 0)                                        \
            slot->call.t_end = pdla_posix_clock();                                \
        return error;                                                             \
    }

#define RETURN(name, block_type)                                   \
    EXPORT ssize_t name(struct block_type *block)                  \
    {                                                              \
        static ssize_t (*real)(struct block_type *);               \
        if (!find_next(&real, #name))                              \
            return -1;                                             \
        /* Before the real call, after which the block may be used again. */ \
        struct posix_call call;                                    \
        bool kept = take(block, &call);                            \
        ssize_t moved = real(block);                               \
        int error = errno;                                         \
        if (kept)                                                  \
            pdla_posix_end(&call, moved > 0 ? moved : 0, moved < 0 ? error : 0); \
        errno = error;                                             \
        return moved;                                              \
    }

START(aio_read, POSIX_aio_read, aiocb)
START(aio_read64, POSIX_aio_read, aiocb64)
START(aio_write, POSIX_aio_write, aiocb)
START(aio_write64, POSIX_aio_write, aiocb64)
LIST(lio_listio, aiocb)
LIST(lio_listio64, aiocb64)
ERROR(aio_error, aiocb)
ERROR(aio_error64, aiocb64)
RETURN(aio_return, aiocb)
RETURN(aio_return64, aiocb64)
