/* POSIX calls that an MPI program makes itself. Usage: plain_posix MODE FILE. Prints the values
 * that the test examines. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[8192];
static int handled; /* descriptor of the signal handler */
static int signals; /* handled; by any thread, also those of the MPI library */

/* Every call once, each at its own offset. */
static void every_call(const char *path)
{
    struct iovec pieces[2] = {{bytes, 10}, {bytes, 20}};
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    errno = 77; /* no successful call changes it */
    write(fd, bytes, 100);
    pwrite(fd, bytes, 200, 1000);
    writev(fd, pieces, 2);
    pwritev(fd, pieces, 2, 2000);
    pwritev2(fd, pieces, 2, 3000, 0);
    lseek(fd, 50, SEEK_SET);
    read(fd, bytes, 60);
    pread(fd, bytes, 5000, 1100);
    readv(fd, pieces, 2);
    preadv(fd, pieces, 2, 2000);
    preadv2(fd, pieces, 2, 3000, 0);
    ftruncate(fd, 4000);
    posix_fallocate(fd, 4000, 96);
    fsync(fd);
    fdatasync(fd);
    int other = dup(fd);
    pwrite(other, bytes, 1, 1);
    close(other);
    close(fd);
    printf("%d", errno);
    fd = openat(AT_FDCWD, path, O_RDONLY);
    int rc = (int)pwrite(fd, bytes, 7, 7);
    printf(" %d %d", rc, errno == EBADF);
    close(fd);
    FILE *stream = fopen(path, "r+");
    fwrite(bytes, 1, 9, stream); /* not seen */
    fclose(stream);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    write(pair[0], bytes, 3); /* on no file, by the number of the closed descriptor */
    read(pair[1], bytes, 3);
    printf(" %d\n", pair[0] == fd);
}

static void asynchronous(const char *path)
{
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    struct aiocb one = {
        .aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 1000, .aio_offset = 0, .aio_lio_opcode = LIO_WRITE};
    struct aiocb two = {
        .aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 2000, .aio_offset = 1000, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *list[2] = {&one, &two};
    const struct aiocb *wait[1] = {&one};
    lio_listio(LIO_WAIT, list, 2, NULL);
    printf("%zd", aio_return(&one));
    printf(" %zd", aio_return(&two));
    one.aio_offset = 2500;
    aio_read(&one);
    while (aio_error(&one) == EINPROGRESS)
        aio_suspend(wait, 1, NULL);
    printf(" %zd\n", aio_return(&one));
    close(fd);
}

static void on_alarm(int number)
{
    (void)number;
    int error = errno;
    pwrite(handled, bytes, 1, 0);
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
    errno = error;
}

/* A signal handler interrupts the recording of the program's own calls, thousands of times. */
static void signalled(const char *path)
{
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    handled = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    long calls = 0;
    for (; __atomic_load_n(&signals, __ATOMIC_RELAXED) < 2000; calls++)
        pwrite(handled, bytes, 2, 10);
    setitimer(ITIMER_REAL, &never, NULL);
    raise(SIGALRM);
    close(handled);
    printf("%ld\n", calls + signals);
}

static void *in_thread(void *descriptor)
{
    for (int i = 0; i < 5000; i++)
        pwrite(*(int *)descriptor, bytes, 1, i);
    return NULL;
}

static void in_threads(const char *path)
{
    pthread_t threads[4];
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, in_thread, &fd);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    close(fd);
}

/* Neither the child of a fork nor that of a vfork, nor what it executes, is the program. */
static void children(const char *path)
{
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    pwrite(fd, bytes, 1, 0);
    if (fork() == 0) {
        pwrite(fd, bytes, 1, 1);
        _exit(0);
    }
    wait(NULL);
    if (vfork() == 0) {
        close(fd);
        execl("/bin/sh", "sh", "-c", "echo x >> \"$0\"", path, (char *)NULL);
        _exit(1);
    }
    wait(NULL);
    pwrite(fd, bytes, 1, 3);
    close(fd);
}

/* The file's inode number is reused for another file. */
static void reused(const char *path)
{
    MPI_File file;
    char other[4096];
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_close(&file);
    unlink(path);
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_CREAT | O_RDWR, 0600);
    pwrite(fd, bytes, 1, 0);
    close(fd);
    /* A file without a name is still the same file. */
    fd = open(path, O_CREAT | O_RDWR, 0600);
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    unlink(path);
    pwrite(fd, bytes, 2, 0);
    MPI_File_close(&file);
    close(fd);
}

int main(int argc, char **argv)
{
    const char *mode = argv[1], *path = argv[2];
    MPI_File file;
    MPI_Init(&argc, &argv);
    if (strcmp(mode, "opened") == 0) {
        int early = open(path, O_CREAT | O_RDWR, 0600);
        pwrite(early, bytes, 5, 0); /* before MPI knows the file */
        MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        pwrite(early, bytes, 6, 0);
        MPI_File_close(&file);
        close(early);
    } else if (strcmp(mode, "every") == 0) {
        every_call(path);
    } else if (strcmp(mode, "asynchronous") == 0) {
        asynchronous(path);
    } else if (strcmp(mode, "signalled") == 0) {
        signalled(path);
    } else if (strcmp(mode, "threads") == 0) {
        in_threads(path);
    } else if (strcmp(mode, "reused") == 0) {
        reused(path);
    } else if (strcmp(mode, "children") == 0) {
        children(path);
    }
    MPI_Finalize();
    return 0;
}
