/* IOR, api MPIIO: -b blockSize, -t transferSize, -s segmentCount, -z random order of a task's
 * transfers. (The original also distributes all transfers of a shared file at random.) One segment
 * of large blocks is "segmented", many segments of one transfer are "strided". */
#include "workload.h"

#include <stdint.h>
#include <stdlib.h>

static long long block, transfer = 262144, segments = 1, shuffled;
static long long task, tasks, *order;

static MPI_Offset offset(long long piece)
{
    const long long number = order == NULL ? piece : order[piece], each = block / transfer;
    return number / each * tasks * block + task * block + number % each * transfer;
}

/* The same order in every run, and a different one for every task. */
static long long *shuffle(long long count)
{
    long long *numbers = malloc((size_t)count * sizeof *numbers);
    uint64_t state = (uint64_t)task + 1;
    for (long long i = 0; numbers != NULL && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const long long other = (long long)((state >> 33) % (uint64_t)(i + 1));
        numbers[i] = numbers[other];
        numbers[other] = i;
    }
    workload_require(numbers != NULL, "no memory for a random order");
    return numbers;
}

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    block = block == 0 ? transfer : block;
    workload_require(transfer > 0 && block % transfer == 0, "-b must be a multiple of -t");
    *access = (struct access){block / transfer * segments, transfer, offset, MPI_DATATYPE_NULL, task * block, NULL};
    if (shuffled) {
        order = shuffle(access->pieces);
        return;
    }
    access->view = workload_turns(block, tasks);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"b", &block, 0}, {"t", &transfer, 0}, {"s", &segments, 0}, {"z", &shuffled, 1}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
