/* The table of open files, by MPI_File. */
#include <pthread.h>
#include <stdlib.h>

#include "calls.h"

enum { BUCKETS = 256 };

static struct file_handle *buckets[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned changes = 1; /* of the table; under `mutex`, read by anyone */

static struct file_handle **bucket_of(mpi_handle file)
{
    return &buckets[(file * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

static void unlink_handle(const struct file_handle *handle)
{
    struct file_handle **link = bucket_of(handle->file);
    while (*link && *link != handle)
        link = &(*link)->next;
    if (*link)
        *link = handle->next;
}

static struct file_handle *find(mpi_handle file)
{
    struct file_handle *handle = *bucket_of(file);
    while (handle && handle->file != file)
        handle = handle->next;
    return handle;
}

static void change(void)
{
    __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
}

struct file_handle *handle_open(mpi_handle file)
{
    struct file_handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->file = file;
    handle->split_served = -1;
    pthread_mutex_init(&handle->pointer, NULL);
    handle->view = (struct file_view){.map = typemap_bytes(1), .etype_size = 1, .native = true};
    pthread_mutex_lock(&mutex);
    /* A file that a call outside this library closed leaves its entry behind. */
    struct file_handle *stale = find(file);
    if (stale)
        unlink_handle(stale);
    handle->next = *bucket_of(file);
    *bucket_of(file) = handle;
    change();
    pthread_mutex_unlock(&mutex);
    handle_free(stale);
    return handle;
}

static __thread struct {
    unsigned changes;
    mpi_handle file;
    struct file_handle *handle;
} last __attribute__((tls_model("initial-exec"))); /* found last by the thread */

__attribute__((noinline)) static struct file_handle *find_anew(mpi_handle file)
{
    pthread_mutex_lock(&mutex);
    last.changes = changes;
    last.file = file;
    last.handle = find(file);
    pthread_mutex_unlock(&mutex);
    return last.handle;
}

/* RATIONALE: a lock costs more than all the rest. What a thread found last holds until the table
 * changes. */
struct file_handle *handle_find(mpi_handle file)
{
    if (last.changes == __atomic_load_n(&changes, __ATOMIC_ACQUIRE) && last.file == file)
        return last.handle;
    return find_anew(file);
}

void handle_close(struct file_handle *handle)
{
    pthread_mutex_lock(&mutex);
    unlink_handle(handle);
    change();
    pthread_mutex_unlock(&mutex);
}

void handle_free(struct file_handle *handle)
{
    if (!handle)
        return;
    if (handle->observed)
        OBSERVE(forget, (handle));
    typemap_release(handle->view.map);
    pthread_mutex_destroy(&handle->pointer);
    free(handle);
}
