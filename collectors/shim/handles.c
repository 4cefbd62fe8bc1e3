/* The table of open files: from an MPI_File to what is known about it. */
#include <sched.h>
#include <stdlib.h>

#include "shim.h"

enum { BUCKETS = 256 };

static struct file_handle *buckets[BUCKETS];
static int locked;

/* RATIONALE: a mutex costs twice as much as the look-up it would guard; this lock is held for a few instructions. */
static void lock(void)
{
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void unlock(void)
{
    __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
}

static struct file_handle **bucket_of(mpi_handle file)
{
    return &buckets[(file * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

static bool unlink_handle(const struct file_handle *handle)
{
    for (struct file_handle **link = bucket_of(handle->file); *link; link = &(*link)->next)
        if (*link == handle) {
            *link = handle->next;
            return true;
        }
    return false;
}

static struct file_handle *find(mpi_handle file)
{
    struct file_handle *handle = *bucket_of(file);
    while (handle && handle->file != file)
        handle = handle->next;
    return handle;
}

struct file_handle *handle_open(mpi_handle file)
{
    struct file_handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->file = file;
    pthread_mutex_init(&handle->pointer, NULL);
    handle->references = 2;
    handle->view = (struct file_view){.map = typemap_bytes(1), .etype_size = 1, .native = true};
    lock();
    /* A file closed by a call that does not come through this library leaves its entry behind. */
    struct file_handle *stale = find(file);
    if (stale)
        unlink_handle(stale);
    handle->next = *bucket_of(file);
    *bucket_of(file) = handle;
    unlock();
    handle_release(stale);
    return handle;
}

struct file_handle *handle_find(mpi_handle file)
{
    lock();
    struct file_handle *handle = find(file);
    if (handle)
        __atomic_add_fetch(&handle->references, 1, __ATOMIC_RELAXED);
    unlock();
    return handle;
}

void handle_close(struct file_handle *handle)
{
    lock();
    bool was_there = unlink_handle(handle);
    unlock();
    if (was_there)
        handle_release(handle);
}

void handle_release(struct file_handle *handle)
{
    if (handle && __atomic_sub_fetch(&handle->references, 1, __ATOMIC_ACQ_REL) == 0) {
        typemap_release(handle->view.map);
        pthread_mutex_destroy(&handle->pointer);
        free(handle);
    }
}
