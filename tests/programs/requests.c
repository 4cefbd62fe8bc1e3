/* Nonblocking operations, each completed in another way. Usage: requests FILE
 * Operation k writes k + 1 bytes at 100 * k, and is kept under way for at least 2 ms (k = 0: 30 ms). */
#include <mpi.h>
#include <unistd.h>

static char bytes[64];
static MPI_File file;
static int k;

static MPI_Request start(void)
{
    MPI_Request request;
    MPI_File_iwrite_at(file, 100 * k, bytes, k + 1, MPI_BYTE, &request);
    k++;
    usleep(2000);
    return request;
}

static void two(MPI_Request requests[2])
{
    for (int i = 0; i < 2; i++)
        requests[i] = start();
}

int main(int argc, char **argv)
{
    MPI_Status status, statuses[40];
    MPI_Request request, requests[40];
    int flag = 0, index, count, indices[40];
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    request = start();
    usleep(30000);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* 0 */
    request = start();
    MPI_Wait(&request, &status);
    for (request = start(), flag = 0; !flag;)
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    two(requests); /* 3, 4 */
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    two(requests);
    MPI_Waitall(2, requests, statuses);
    two(requests); /* 7, 8 */
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    MPI_Waitany(2, requests, &index, &status);
    two(requests); /* 9, 10 */
    for (int left = 2; left > 0; left -= count)
        MPI_Waitsome(2, requests, &count, indices, MPI_STATUSES_IGNORE);
    two(requests); /* 11, 12 */
    for (int left = 2; left > 0; left -= flag)
        MPI_Testany(2, requests, &index, &flag, MPI_STATUS_IGNORE);
    two(requests); /* 13, 14 */
    for (flag = 0; !flag;)
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
    two(requests); /* 15, 16 */
    for (int left = 2; left > 0; left -= count)
        MPI_Testsome(2, requests, &count, indices, statuses);
    for (request = start(), flag = 0; !flag;) /* 17 */
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    usleep(30000);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 40; i++) /* 18 .. 37, with others among them */
        requests[i] = i % 2 ? start() : MPI_REQUEST_NULL;
    MPI_Waitall(40, requests, MPI_STATUSES_IGNORE);
    request = start(); /* 38 */
    MPI_Request_free(&request);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
