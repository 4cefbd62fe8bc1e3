/* What a call reads or writes, and its completion in place of the MPI library. */
#include "redirected_call.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "replica_choice.h"

const char *view_range_of(const struct io_call *call, struct view_range *range)
{
    const struct file_view *view = &call->handle->view;
    if (call->handle->atomic)
        return "atomic mode";
    if (view->map == NULL || !view->native || typemap_size(view->map) <= 0)
        return "the file view is not native or cannot be flattened";
    if (call->position < 0 || call->bytes < 0 || view->etype_size <= 0 || call->bytes % view->etype_size != 0
        || call->position % view->etype_size != 0 || call->bytes > INT64_MAX - call->position)
        return "the position is not known";
    *range = (struct view_range){view->map, view->displacement, call->position, call->bytes};
    return view_range_fits(range) ? NULL : "past the end of the file";
}

bool memory_of(const struct io_call *call, struct typemap **memory)
{
    *memory = NULL;
    if (call->datatype == running_mpi()->byte)
        return true;
    struct typemap *map = typemap_flatten(call->datatype);
    if (map == NULL)
        return false;
    if (typemap_is_contiguous(map))
        typemap_release(map);
    else
        *memory = map;
    return true;
}

static int request_query(void *state, void *status)
{
    set_moved_bytes(status, *(int64_t *)state);
    running_mpi()->Status_set_cancelled(status, 0);
    return 0;
}

static int request_free(void *state)
{
    free(state);
    return 0;
}

static int request_cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return 0;
}

/* Gives the program a request that is complete already. */
static bool hand_out_request(const struct io_call *call)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle request = 0;
    int64_t *bytes = malloc(sizeof *bytes);
    if (bytes == NULL)
        return false;
    *bytes = call->bytes;
    if (mpi->Grequest_start(request_query, request_free, request_cancel, bytes, &request) != 0) {
        free(bytes);
        return false;
    }
    mpi->Grequest_complete(request);
    memcpy(call->request, &request, mpi->handle_size);
    return true;
}

const char *result_fits(const struct io_call *call)
{
    bool fits = running_mpi()->Status_set_elements_x != NULL || call->bytes <= INT_MAX;
    return fits ? NULL : "more bytes than a status of this MPI can count";
}

bool result_set(const struct io_call *call)
{
    if (call->joins)
        return true;
    if (call->bytes > 0 && !move_pointer(call, call->position + call->bytes))
        return false;
    if (!(call->flags & CALL_NONBLOCKING)) {
        set_moved_bytes(call->status, call->bytes);
    } else if (!hand_out_request(call)) {
        move_pointer(call, call->position);
        return false;
    }
    return true;
}

int call_independently(const struct io_call *call)
{
    const struct mpi *mpi = running_mpi();
    const mpi_handle file = call->handle->file;
    const bool large = call->count > INT_MAX, writing = call->flags & CALL_WRITE;
    const int count = (int)call->count;
    void *status = call->status != NULL ? call->status : mpi->status_ignore;
    if (!(call->flags & CALL_EXPLICIT)) {
        if (large)
            return (writing ? mpi->File_write_c : mpi->File_read_c)(file, call->buffer, call->count, call->datatype,
                                                                    status);
        return (writing ? mpi->File_write : mpi->File_read)(file, call->buffer, count, call->datatype, status);
    }
    mpi_offset offset = call->position < 0 ? -1 : call->position / call->handle->view.etype_size;
    if (large)
        return (writing ? mpi->File_write_at_c : mpi->File_read_at_c)(file, offset, call->buffer, call->count,
                                                                      call->datatype, status);
    return (writing ? mpi->File_write_at : mpi->File_read_at)(file, offset, call->buffer, count, call->datatype,
                                                              status);
}
