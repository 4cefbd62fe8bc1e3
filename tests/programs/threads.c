/* MPI_THREAD_MULTIPLE: the threads of each rank write the file "all" through one handle, and each
 * thread also opens and writes a file of its own: threads DIRECTORY, for 2 ranks. Every byte is
 * written once, and is 1 + 4 * rank + thread. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 2, THREADS = 4, PIECES = 20, SIZE = 8 };

static const char *directory;
static MPI_File all;
static int rank;

struct writer {
    int number;
    MPI_Comm comm; /* of this rank and thread alone */
};

static void *write_pieces(void *argument)
{
    const struct writer *writer = argument;
    char path[4096], bytes[SIZE];
    const int id = THREADS * rank + writer->number;
    MPI_File own;
    memset(bytes, 1 + id, SIZE);
    snprintf(path, sizeof path, "%s/%d", directory, id);
    MPI_File_open(writer->comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &own);
    for (int i = 0; i < PIECES; i++) {
        const MPI_Offset offset = (MPI_Offset)(i * RANKS * THREADS + id) * SIZE;
        MPI_Request request;
        if (i % 5) {
            MPI_File_write_at(all, offset, bytes, SIZE, MPI_BYTE, MPI_STATUS_IGNORE);
        } else {
            MPI_File_iwrite_at(all, offset, bytes, SIZE, MPI_BYTE, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_File_write(own, bytes, SIZE, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_File_close(&own);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    char path[4096];
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    directory = argv[1];
    snprintf(path, sizeof path, "%s/all", directory);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &all);
    for (int i = 0; i < THREADS; i++) {
        writers[i].number = i;
        MPI_Comm_dup(MPI_COMM_SELF, &writers[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, write_pieces, &writers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&writers[i].comm);
    MPI_File_close(&all);
    MPI_Finalize();
    return 0;
}
