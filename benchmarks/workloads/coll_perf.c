/* coll_perf of ROMIO: a block-distributed 3-D array of ints, --asize in each dimension. */
#include "workload.h"

static long long size = 128;

static void divide(long long task, long long tasks, struct access *access)
{
    long long parts[3], starts[3];
    workload_cube(task, tasks, size, parts, starts);
    workload_block((long long[]){size, size, size}, parts, starts, sizeof(int), 1, 0, access);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"asize", &size, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 1, divide});
}
