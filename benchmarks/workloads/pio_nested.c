/* PIO-Bench, nested strided: --groups groups of --requests requests of --request_size bytes. The
 * requests of the tasks alternate. A group begins --group_stride bytes after the one before. */
#include "workload.h"

static long long size = 65536, requests = 16, groups = 1, stride;
static long long task, tasks;

static MPI_Offset offset(long long piece)
{
    return piece / requests * stride + (piece % requests * tasks + task) * size;
}

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    stride = stride == 0 ? requests * tasks * size : stride;
    workload_require(stride >= requests * tasks * size, "--group_stride must hold a group");
    *access = (struct access){groups * requests, size, offset, MPI_DATATYPE_NULL, task * size, NULL};
    MPI_Datatype group;
    MPI_Type_create_hvector((int)requests, (int)size, tasks * size, MPI_BYTE, &group);
    MPI_Type_create_resized(group, 0, stride, &access->view);
    MPI_Type_free(&group);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"request_size", &size, 0},
                                            {"requests", &requests, 0},
                                            {"groups", &groups, 0},
                                            {"group_stride", &stride, 0},
                                            {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
