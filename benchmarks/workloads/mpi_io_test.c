/* mpi-io-test of PVFS: -b bytes of a block, -i iterations; in each iteration the tasks' blocks follow one another in
 * the file, from byte --offset on. */
#include "workload.h"

static long long block = 16 << 20, iterations = 1, offset;
static long long task, tasks;

static MPI_Offset place(long long piece)
{
    return offset + (piece * tasks + task) * block;
}

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    *access = (struct access){iterations, block, place, workload_turns(block, tasks), offset + task * block, NULL};
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"b", &block, 0}, {"i", &iterations, 0}, {"offset", &offset, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
