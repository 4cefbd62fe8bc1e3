/* Prints what the launcher says of this program, by the environment: its name, this rank, and the number of ranks. */
#include <stdio.h>

#include "launch.h"

int main(void)
{
    struct launch launch;
    const enum launch_knowledge found = launch_find(&launch);
    if (found == LAUNCH_NAMED)
        printf("%s %ld %ld\n", launch.name, launch.rank, launch.ranks);
    else
        printf(found == LAUNCH_HIDDEN ? "hidden\n" : "unknown\n");
    return 0;
}
