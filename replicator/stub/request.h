/* A call as a request, and ending it in the place of the MPI library. */
#ifndef PDLA_REQUEST_H
#define PDLA_REQUEST_H

#include "interpose.h"
#include "read_plan.h"

/* NULL: `request` is what the call reads or writes; else why that is not known or not to be redirected, a literal. */
const char *request_of(const struct io_call *, struct request *);
/* *memory: how the call's buffer is laid out, to be released; NULL: contiguous. False when that is not known. */
bool memory_of(const struct io_call *, struct typemap **memory);
/* NULL: this MPI can be told how many bytes the call moved; else why not. */
const char *result_fits(const struct io_call *);
/* Sets the status or the request, and the individual file pointer, as if MPI had done all of the call. False when that
 * could not be done; then nothing was changed. */
bool result_give(const struct io_call *);
/* A collective call's request by the MPI library's independent call, after the ranks have agreed that nobody makes the
 * collective one. Returns what that returned. */
int make_alone(const struct io_call *);

#endif
