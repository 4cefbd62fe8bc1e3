/* locks_unit FILE END: a lock that moves on with writes up to END. Reads lines "low high" of what is written next;
 * prints the bytes that are then locked, or that were to be, and whether they are. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../replicator/stub/locks.h"

int main(int argc, char **argv)
{
    struct moving_lock lock = {.fd = argc == 3 ? open(argv[1], O_RDWR) : -1, .end = strtoll(argv[argc - 1], NULL, 10)};
    int64_t low, high;
    while (scanf("%" SCNd64 " %" SCNd64, &low, &high) == 2) {
        moving_lock_reach(&lock, low, high);
        printf("%" PRId64 " %" PRId64 " %d\n", lock.low, lock.high, lock.locked);
    }
    moving_lock_leave(&lock);
    return 0;
}
