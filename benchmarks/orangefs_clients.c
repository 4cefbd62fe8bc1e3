/* What requests of many clients cost an OrangeFS server. Each client is a process with its own connection; the first
 * ACTIVE of them read and write, the others only stay connected. For each size, for writes and for reads, a line:
 * 1 for writes, the size, requests, those of the slowest and of the fastest client, seconds, seconds of the server's
 * processor, its most threads, its connections.
 * Usage: orangefs_clients FILE CLIENTS ACTIVE PID SECONDS SIZE... (PID: of the server; sizes ascend) */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <pvfs2.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 1024, LARGEST = 4 << 20, TURNS = 2, PATIENCE = 10, ROOT_ONLY = 0600 };

/* Of all processes. A client is on the way to its next request, which is of `size` bytes; 0: none is wanted. */
static struct shared {
    _Atomic long size, ready;
    _Atomic int write;
    _Atomic long done[CLIENTS];
    char bytes[LARGEST];
} *shared;

static void need(int result, const char *what)
{
    if (result < 0) {
        PVFS_perror(what, result);
        exit(1);
    }
}

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void pause_shortly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static PVFS_object_ref opened(const char *file, bool create, const PVFS_credential *credential)
{
    char path[PVFS_NAME_MAX];
    PVFS_fs_id system;
    PVFS_sysresp_lookup found;
    need(PVFS_util_resolve(file, &system, path, sizeof path), file);
    if (create) {
        PVFS_sysresp_create made;
        PVFS_sys_attr attributes = {.owner = credential->userid, .group = credential->group_array[0],
                                    .perms = ROOT_ONLY, .mask = PVFS_ATTR_SYS_ALL_SETABLE};
        need(PVFS_sys_lookup(system, "/", credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL), "/");
        need(PVFS_sys_create(path + 1, found.ref, attributes, credential, NULL, &made, NULL, NULL), path);
        return made.ref;
    }
    need(PVFS_sys_lookup(system, path, credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL), path);
    return found.ref;
}

static void access_file(PVFS_object_ref file, long offset, long size, bool write, const PVFS_credential *credential)
{
    PVFS_Request memory;
    PVFS_sysresp_io done;
    need(PVFS_Request_contiguous((int)size, PVFS_BYTE, &memory), "request");
    need(PVFS_sys_io(file, PVFS_BYTE, offset, shared->bytes, memory, credential, &done,
                     write ? PVFS_IO_WRITE : PVFS_IO_READ, NULL), "access");
    if (done.total_completed != size)
        exit(1);
    PVFS_Request_free(&memory);
}

/* A client goes round and round in its own part of the file. */
static void be_client(const char *name, int number, bool active)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PVFS_credential credential;
    need(PVFS_util_init_defaults(), "init");
    need(PVFS_util_gen_credential_defaults(&credential), "credential");
    PVFS_object_ref file = opened(name, number == 0, &credential);
    long base = (long)number * LARGEST;
    access_file(file, base, LARGEST, true, &credential);
    shared->ready++;
    while (!active)
        pause();
    for (long at = 0;;) {
        long size = shared->size;
        if (size == 0) {
            pause_shortly();
            continue;
        }
        at = at + size <= LARGEST ? at : 0;
        access_file(file, base + at, size, shared->write, &credential);
        at += size;
        shared->done[number]++;
    }
}

static long threads_of(int pid)
{
    char path[64], line[256];
    long threads = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Threads: %ld", &threads);
    if (status)
        fclose(status);
    return threads;
}

struct counted {
    long all, least, most;
};

/* The requests of the clients since `earlier`. */
static struct counted requests_since(const long *earlier, int clients)
{
    struct counted counted = {.least = LONG_MAX};
    for (int i = 0; i < clients; i++) {
        long own = shared->done[i] - earlier[i];
        counted.all += own;
        counted.least = own < counted.least ? own : counted.least;
        counted.most = own > counted.most ? own : counted.most;
    }
    return counted;
}

/* The sockets that the process has open, but the one at which it listens. */
static long connections_of(int pid)
{
    char path[64], link[64];
    long sockets = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *files = opendir(path);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.16s", pid, entry->d_name);
        ssize_t length = readlink(path, link, sizeof link);
        sockets += length > 7 && memcmp(link, "socket:", 7) == 0;
    }
    if (files)
        closedir(files);
    return sockets - 1;
}

/* From when all have been served once, so long and so many requests that those under way hardly count. */
static void measure(int active, int server, double seconds)
{
    clockid_t clock;
    clock_getcpuclockid(server, &clock);
    long earlier[CLIENTS], most = 0;
    for (int i = 0; i < active; i++)
        earlier[i] = shared->done[i];
    while (requests_since(earlier, active).least == 0)
        pause_shortly();
    for (int i = 0; i < active; i++)
        earlier[i] = shared->done[i];
    double cpu = seconds_of(clock), begin = seconds_of(CLOCK_MONOTONIC), taken;
    do {
        pause_shortly();
        long threads = threads_of(server);
        most = threads > most ? threads : most;
        taken = seconds_of(CLOCK_MONOTONIC) - begin;
    } while (taken < seconds || (requests_since(earlier, active).all < TURNS * active && taken < PATIENCE));
    double used = seconds_of(clock) - cpu;
    struct counted done = requests_since(earlier, active);
    printf("%d %ld %ld %ld %ld %.4f %.6f %ld %ld\n", shared->write, shared->size, done.all, done.least, done.most,
           taken, used, most, connections_of(server));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    int clients = atoi(argv[2]), active = atoi(argv[3]), server = atoi(argv[4]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || clients > CLIENTS)
        return 2;
    pid_t child[CLIENTS];
    for (int i = 0; i < clients; i++) { /* one after another: the server refuses many connections at once */
        if ((child[i] = fork()) == 0)
            be_client(argv[1], i, i < active);
        while (shared->ready == i) {
            if (waitpid(child[i], NULL, WNOHANG) != 0)
                return 1;
            pause_shortly();
        }
    }
    for (int i = 6; i < argc; i++)
        for (int write = 1; write >= 0; write--) {
            shared->write = write;
            shared->size = atol(argv[i]);
            measure(active, server, atof(argv[5]));
        }
    for (int i = 0; i < clients; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    return 0;
}
