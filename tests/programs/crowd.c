/* Threads of each rank share one handle for reads and writes of every kind. Each thread also opens,
 * reads and closes another file. Usage: crowd DIRECTORY, for 2 ranks. Each thread writes its own
 * pieces of the file "all" and must read them back. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, THREADS = 3, PIECES = 12, SIZE = 16, OTHER = 4096 };

static const char *directory;
static MPI_File all;
static int rank;

struct member {
    int number;
    MPI_Comm comm; /* of this rank and thread alone */
};

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        exit(1);
    }
}

static void moved(const MPI_Status *status, int wanted)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    expect(count == wanted, "a wrong count");
}

static void write_piece(MPI_Offset offset, const char *bytes, int turn)
{
    MPI_Status status;
    MPI_Request request;
    if (turn % 2) {
        MPI_File_write_at(all, offset, bytes, SIZE, MPI_BYTE, &status);
    } else {
        MPI_File_iwrite_at(all, offset, bytes, SIZE, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    }
    moved(&status, SIZE);
}

static void read_piece(MPI_Offset offset, const char *wanted, int turn)
{
    char bytes[SIZE] = "";
    MPI_Status status;
    MPI_Request request;
    if (turn % 3) {
        MPI_File_read_at(all, offset, bytes, SIZE, MPI_BYTE, &status);
    } else {
        MPI_File_iread_at(all, offset, bytes, SIZE, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    }
    moved(&status, SIZE);
    expect(memcmp(bytes, wanted, SIZE) == 0, "its own bytes are not there");
}

/* The file "other", whose byte i is i % 251. */
static void read_other(MPI_Comm comm, int turn)
{
    char path[4096];
    unsigned char bytes[64];
    const int start = turn * 97 % (OTHER - (int)sizeof bytes);
    MPI_File other;
    MPI_Status status;
    snprintf(path, sizeof path, "%s/other", directory);
    MPI_File_open(comm, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &other);
    MPI_File_seek(other, start, MPI_SEEK_SET);
    MPI_File_read_all(other, bytes, sizeof bytes, MPI_BYTE, &status);
    moved(&status, sizeof bytes);
    for (int i = 0; i < (int)sizeof bytes; i++)
        expect(bytes[i] == (start + i) % 251, "the other file's bytes are not there");
    MPI_File_close(&other);
}

static void *take_part(void *argument)
{
    const struct member *member = argument;
    const int id = THREADS * rank + member->number;
    char bytes[SIZE];
    for (int i = 0; i < PIECES; i++) {
        const MPI_Offset offset = (MPI_Offset)(i * RANKS * THREADS + id) * SIZE;
        MPI_Offset size;
        memset(bytes, 'a' + id, SIZE);
        write_piece(offset, bytes, i);
        read_piece(offset, bytes, i);
        MPI_File_get_size(all, &size);
        expect(size >= offset + SIZE, "the size is not that of what was written");
        read_other(member->comm, i);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    char path[4096];
    pthread_t threads[THREADS];
    struct member members[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    expect(provided == MPI_THREAD_MULTIPLE, "no threads");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    directory = argv[1];
    snprintf(path, sizeof path, "%s/all", directory);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &all);
    for (int i = 0; i < THREADS; i++) {
        members[i].number = i;
        MPI_Comm_dup(MPI_COMM_SELF, &members[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, take_part, &members[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&members[i].comm);
    MPI_File_close(&all);
    MPI_Finalize();
    return 0;
}
