/* The checkpoint of Flash-IO: --variables arrays of doubles, one after another; of each a task has --blocks blocks of
 * 16 * 16 * 16 zones, which follow those of the task before it. A call writes a task's part of an array. */
#include "workload.h"

enum { ZONES = 16 * 16 * 16 };

static long long variables = 24, blocks = 80;
static long long task, tasks, length;

static MPI_Offset offset(long long piece) { return (piece * tasks + task) * length; }

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    length = blocks * ZONES * (long long)sizeof(double);
    *access = (struct access){variables, length, offset, workload_turns(length, tasks), task * length, NULL};
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"variables", &variables, 0}, {"blocks", &blocks, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
