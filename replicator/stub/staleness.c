#include "staleness.h"

#include <errno.h>

#include "freshness.h"
#include "redirection.h"
#include "replica_choice.h"
#include "writer.h"

static void mark_written(const struct file_handle *handle, const struct io_call *call)
{
    const struct source *source = reader_of(handle)->source;
    const struct file_view *view = &handle->view;
    if (call->bytes == 0)
        return;
    bool known = !(call->flags & CALL_SHARED) && view->map != NULL && view->native && typemap_size(view->map) > 0
        && call->position >= 0 && call->bytes > 0 && call->bytes <= INT64_MAX - call->position;
    struct view_range range = {view->map, view->displacement, known ? call->position : 0, known ? call->bytes : 0};
    known = known && view_range_fits(&range);
    for (uint32_t i = 0; i < source->file->replica_count; i++) {
        const struct map_replica *replica = replica_of(source, i);
        if (freshness_stale(source->map, replica) != STALE_NOT)
            continue;
        if (!known || view_range_touches(source->map, replica, &range))
            freshness_mark(source->map, replica, STALE_WRITTEN);
    }
}

void replicas_mark(struct file_handle *handle, int64_t low, int64_t high)
{
    const struct source *source = reader_of(handle) == NULL ? NULL : reader_of(handle)->source;
    struct piece piece;
    for (uint32_t i = 0; source != NULL && i < source->file->replica_count; i++)
        if (locate_piece(source->map, replica_of(source, i), low, high, &piece))
            freshness_mark(source->map, replica_of(source, i), STALE_WRITTEN);
}

void replicas_write_begin(struct file_handle *handle, const struct io_call *call)
{
    struct reader *reader = reader_of(handle);
    if (reader == NULL)
        return;
    mark_written(handle, call);
    freshness_write_begin(reader->source->map, reader->source->file, reader->fd);
    __atomic_add_fetch(&reader->writes, 1, __ATOMIC_RELAXED);
}

void replicas_write_end(struct file_handle *handle)
{
    struct reader *reader = reader_of(handle);
    /* A split collective call that MPI refused has no beginning. */
    if (reader == NULL || __atomic_load_n(&reader->writes, __ATOMIC_RELAXED) <= 0)
        return;
    struct source *source = reader->source;
    __atomic_sub_fetch(&reader->writes, 1, __ATOMIC_RELAXED);
    bool publish = !__atomic_load_n(&source->shared_by_nodes, __ATOMIC_RELAXED);
    freshness_write_end(source->map, source->file, reader->fd, publish);
}

int redirector_write_begin(struct file_handle *handle, const struct io_call *call)
{
    int error = errno, rc = writer_of(handle) == NULL ? 0 : writer_original_begin(handle, call);
    replicas_write_begin(handle, call);
    errno = error;
    return rc;
}

int redirector_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts)
{
    const struct io_call nothing = {.handle = handle};
    int error = errno, rc = writer_of(handle) == NULL ? 0 : writer_resize_begin(handle, size, cuts);
    if (cuts && size >= 0 && !(handle->amode & AMODE_RDONLY))
        replicas_mark(handle, size, INT64_MAX);
    replicas_write_begin(handle, &nothing);
    errno = error;
    return rc;
}

void redirector_write_end(struct file_handle *handle)
{
    int error = errno;
    replicas_write_end(handle);
    if (writer_of(handle) != NULL)
        writer_original_end(handle);
    errno = error;
}
