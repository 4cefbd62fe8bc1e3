/* BTIO of the NAS Parallel Benchmarks: cubic blocks, a block for each task, five doubles for each
 * point, --problem_size points in each dimension, --steps arrays one after the other. Without
 * --useFileView it is the subtype "simple", one call for each row; with it, "full". */
#include "workload.h"

enum { POINT = 40 };

static long long size = 64, steps = 1;

static void divide(long long task, long long tasks, struct access *access)
{
    long long parts[3], starts[3];
    workload_cube(task, tasks, size, parts, starts);
    workload_block((long long[]){size, size, size}, parts, starts, POINT, steps, 0, access);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"problem_size", &size, 0}, {"steps", &steps, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
