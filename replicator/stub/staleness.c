#include "staleness.h"

#include <errno.h>

#include "freshness.h"
#include "redirection.h"
#include "replica_choice.h"
#include "writer.h"

void replicas_mark_written(struct file_handle *handle, const struct io_call *call)
{
    const struct source *source = reader_of(handle) == NULL ? NULL : reader_of(handle)->source;
    const struct file_view *view = &handle->view;
    if (source == NULL || call->bytes == 0)
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

int redirector_write_begin(struct file_handle *handle, const struct io_call *call)
{
    int error = errno, rc = writer_of(handle) == NULL ? 0 : writer_original_begin(handle, call);
    replicas_mark_written(handle, call);
    errno = error;
    return rc;
}

int redirector_resize_begin(struct file_handle *handle, mpi_offset size, bool cuts)
{
    int error = errno, rc = writer_of(handle) == NULL ? 0 : writer_resize_begin(handle, size, cuts);
    if (cuts && size >= 0 && !(handle->amode & AMODE_RDONLY))
        replicas_mark(handle, size, INT64_MAX);
    errno = error;
    return rc;
}

void redirector_write_end(struct file_handle *handle)
{
    int error = errno;
    if (writer_of(handle) != NULL)
        writer_original_end(handle);
    errno = error;
}
