/* What stands in for an observer or an interceptor that a library has not. RATIONALE: in a file of its own. A compiler
 * may take the value of a weak constant that it sees for the one that the library will have. */
#include "interpose.h"

__attribute__((weak)) const struct observer interpose_observer;
__attribute__((weak)) const struct interceptor interpose_interceptor;
