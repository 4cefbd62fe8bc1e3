/* Stands in for an observer or an interceptor that a library does not have. RATIONALE: in a file of
 * its own, since a compiler may use the value of a weak constant that it sees instead of the one
 * that is linked. */
#include "interpose.h"

__attribute__((weak)) const struct observer interpose_observer;
__attribute__((weak)) const struct interceptor interpose_interceptor;
