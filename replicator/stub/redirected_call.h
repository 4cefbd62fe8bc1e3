/* What a call reads or writes, and its completion in place of the MPI library. */
#ifndef PDLA_REDIRECTED_CALL_H
#define PDLA_REDIRECTED_CALL_H

#include "interpose.h"
#include "replica_choice.h"

/* Sets the range to what the call reads or writes. NULL, or why the call cannot be redirected: a
 * literal. */
const char *view_range_of(const struct io_call *, struct view_range *);
/* *memory: the layout of the call's buffer, to be released; NULL: contiguous. False: it is not
 * known. */
bool memory_of(const struct io_call *, struct typemap **memory);
/* NULL: a status of this MPI can count the bytes of the call; otherwise why not. */
const char *result_fits(const struct io_call *);
/* Sets the status or the request, and the individual file pointer, as if MPI had done the whole
 * call. False: not possible, and nothing was changed. */
bool result_set(const struct io_call *);
/* Makes the access of a collective call by the MPI library's independent call, after the ranks have
 * agreed that nobody makes the collective one. Returns its result. */
int call_independently(const struct io_call *);

#endif
