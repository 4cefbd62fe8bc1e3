/* HPIO, noncontiguous in the file: each task has -c regions of -s bytes. The regions of the tasks
 * alternate, and each is followed by a gap of -p bytes. */
#include "workload.h"

static long long count = 1024, size = 8192, spacing = 128;
static long long task, tasks;

static MPI_Offset offset(long long piece)
{
    return (piece * tasks + task) * (size + spacing);
}

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    *access = (struct access){count, size, offset, MPI_DATATYPE_NULL, task * (size + spacing), NULL};
    MPI_Type_create_hvector((int)count, (int)size, tasks * (size + spacing), MPI_BYTE, &access->view);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"c", &count, 0}, {"s", &size, 0}, {"p", &spacing, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 1, divide});
}
