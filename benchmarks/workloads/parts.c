/* IOR as PDLA modifies it (5.2.1), and the accesses of "LANL App 2" (5.2.4): three parts of a file, with small, medium
 * and large requests. In each part the requests of the tasks alternate. With --other the last part has requests of two
 * sizes in turn. The numbers of requests are those of a task. */
#include "workload.h"

static long long small = 16384, medium = 262144, large = 4194304, other, smalls, mediums, larges;
static long long task, tasks;

/* Bytes of the last part before a task's request. */
static long long before(long long request)
{
    return request / 2 * (large + other) + request % 2 * large;
}

static long long bytes(long long piece)
{
    if (piece < smalls)
        return small;
    if (piece < smalls + mediums)
        return medium;
    return (piece - smalls - mediums) % 2 == 0 ? large : other;
}

static MPI_Offset offset(long long piece)
{
    const long long own = task * bytes(piece), second = smalls * small * tasks;
    if (piece < smalls)
        return piece * small * tasks + own;
    if (piece < smalls + mediums)
        return second + (piece - smalls) * medium * tasks + own;
    return second + mediums * medium * tasks + before(piece - smalls - mediums) * tasks + own;
}

static void divide(long long own, long long all, struct access *access)
{
    task = own;
    tasks = all;
    other = other == 0 ? large : other;
    workload_require(small > 0 && medium >= small && large >= medium, "--small, --medium and --large must grow");
    *access = (struct access){smalls + mediums + larges, large > other ? large : other, offset, MPI_DATATYPE_NULL, 0,
                              bytes};
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"small", &small, 0},     {"medium", &medium, 0},   {"large", &large, 0},   {"other", &other, 0},
        {"smalls", &smalls, 0}, {"mediums", &mediums, 0}, {"larges", &larges, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 0, divide});
}
