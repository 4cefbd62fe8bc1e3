/* Programs that end, or do their I/O, in unusual ways. Usage: endings MODE FILE */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, EACH = 15000 };

static MPI_File file;

static void write_at(MPI_Offset offset)
{
    MPI_File_write_at(file, offset, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void *reader(void *argument)
{
    char byte;
    for (int i = 0; i < EACH; i++)
        MPI_File_read_at(file, *(int *)argument, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE);
    return NULL;
}

static void read_in_threads(void)
{
    pthread_t threads[THREADS];
    int offsets[THREADS];
    for (int i = 0; i < THREADS; i++) {
        offsets[i] = i;
        pthread_create(&threads[i], NULL, reader, &offsets[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int close_file(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    return MPI_File_close(&file);
}

/* Makes each descriptor of a log or side file mean a file of the program's own. */
static int take_descriptors(const char *path)
{
    int own = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), taken = 0;
    for (int fd = 3; fd < 1024; fd++) {
        char name[64], target[4096] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (readlink(name, target, sizeof target - 1) > 0 && (strstr(target, ".log") || strstr(target, ".side")))
            taken += dup2(own, fd) == fd;
    }
    return taken;
}

int main(int argc, char **argv)
{
    int provided, key;
    const char *mode = argv[1];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (strcmp(mode, "missing") == 0) {
        int rc = MPI_File_open(MPI_COMM_SELF, argv[2], MPI_MODE_RDONLY, MPI_INFO_NULL, &file), class;
        MPI_Error_class(rc, &class);
        printf("%d\n", class == MPI_ERR_NO_SUCH_FILE);
        MPI_Finalize();
        return 0;
    }
    MPI_File_open(MPI_COMM_SELF, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    write_at(0);
    if (strcmp(mode, "kill") == 0) {
        write_at(1);
        raise(SIGKILL);
    } else if (strncmp(mode, "dies-", 5) == 0) {
        for (int i = 1; i < 20000; i++)
            write_at(i);
        if (strcmp(mode, "dies-abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        if (strcmp(mode, "dies-exit") == 0)
            _exit(3);
        raise(strcmp(mode, "dies-kill") == 0 ? SIGKILL : strcmp(mode, "dies-term") == 0 ? SIGTERM : SIGSEGV);
    } else if (strcmp(mode, "sleep") == 0) {
        write_at(1);
        sleep(100);
    } else if (strcmp(mode, "limit") == 0) {
        struct rlimit limit = {2 << 20, 2 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        read_in_threads();
    } else if (strcmp(mode, "pending") == 0) {
        MPI_Request request;
        MPI_File_iwrite_at(file, 1, "z", 1, MPI_BYTE, &request);
        raise(SIGKILL);
    } else if (strcmp(mode, "fork") == 0) {
        if (fork() == 0)
            exit(0);
        wait(NULL);
        write_at(1);
    } else if (strcmp(mode, "threads") == 0) {
        read_in_threads();
    } else if (strcmp(mode, "short") == 0) {
        char bytes[100];
        MPI_File_read_at(file, 0, bytes, 100, MPI_BYTE, MPI_STATUS_IGNORE);
    } else if (strcmp(mode, "descriptors") == 0) {
        char path[4096];
        MPI_Request request;
        snprintf(path, sizeof path, "%s.own", argv[2]);
        MPI_File_iread_at(file, 0, path + 4095, 1, MPI_BYTE, &request);
        printf("%d\n", take_descriptors(path));
        read_in_threads();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
        MPI_File_open(MPI_COMM_SELF, argv[2], MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    } else if (strcmp(mode, "views") == 0) {
        MPI_Datatype type;
        MPI_Type_vector(2, 1, 3, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (int i = 0; i < 200; i++)
            MPI_File_set_view(file, i % 2 * 8, MPI_INT, type, "native", MPI_INFO_NULL);
        MPI_Type_free(&type);
    } else if (strcmp(mode, "pmpi") == 0) {
        PMPI_File_write_at(file, 1, "y", 1, MPI_BYTE, MPI_STATUS_IGNORE);
    } else if (strcmp(mode, "finalize") == 0) {
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_file, &key, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
        MPI_Finalize();
        return 0;
    } else if (strcmp(mode, "external32") == 0) {
        MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
        MPI_File_write_at(file, 1, &provided, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
