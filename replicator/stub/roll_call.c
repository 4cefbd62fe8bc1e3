#include "roll_call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "running_mpi.h"

enum { TAG = 32025, BLOCK = 256 /* files in a directory */, NOBODY = -1 };

static struct {
    char place[PATH_MAX]; /* the directory of the job's files; "": nobody is asked */
    char missing[80];
    bool complete;
} roll;

/* The value after `option` in the command line of a process; whether there is one. */
static bool option_of(const char *line, size_t size, const char *option, char *value, size_t room)
{
    const char *at = line;
    while (at < line + size && strcmp(at, option) != 0)
        at += strlen(at) + 1;
    at += at < line + size ? strlen(at) + 1 : 0;
    return at < line + size && snprintf(value, room, "%s", at) < (int)room;
}

static size_t read_file(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? 0 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = '\0';
    return size > 0 ? (size_t)size : 0;
}

static long parent_of(long process)
{
    char path[64], text[1024];
    long parent;
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    const char *after = read_file(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return after != NULL && sscanf(after, ") %*c %ld", &parent) == 1 ? parent : 0;
}

/* Where Hydra's mpiexec listens, and the number of the group of ranks that it started: its proxy on
 * each node, an ancestor of this process, has them in its command line. RATIONALE: Hydra gives ranks
 * nothing else that names the job. */
static bool hydra_job(char *job, size_t room)
{
    long process = getppid();
    for (int steps = 0; process > 1 && steps < 16; steps++, process = parent_of(process)) {
        char path[64], line[8192];
        snprintf(path, sizeof path, "/proc/%ld/cmdline", process);
        const size_t size = read_file(path, line, sizeof line);
        const char *base = strrchr(line, '/');
        if (strcmp(base == NULL ? line : base + 1, "hydra_pmi_proxy") == 0) {
            char port[256], group[16];
            return option_of(line, size, "--control-port", port, sizeof port)
                && option_of(line, size, "--pgid", group, sizeof group)
                && snprintf(job, room, "%s-%s", port, group) < (int)room;
        }
    }
    return false;
}

/* What the launcher calls the job, on all its ranks alike, and this rank. False: not known. */
static bool find_job(char *job, size_t room, long *rank)
{
    const char *number = getenv("PMI_RANK"), *name = getenv("PMI_JOBID");
    if (number == NULL || !hydra_job(job, room)) {
        if (getenv("PMIX_NAMESPACE") != NULL) {
            number = getenv("PMIX_RANK");
            name = getenv("PMIX_NAMESPACE");
        }
        if (number == NULL || name == NULL || snprintf(job, room, "%s", name) >= (int)room)
            return false;
    }
    for (char *at = job; *at != '\0'; at++)
        *at = *at == '/' ? '_' : *at;
    char *end;
    *rank = strtol(number, &end, 10);
    return end != number && *end == '\0' && *rank >= 0;
}

static bool name_of(long rank, char name[PATH_MAX])
{
    return snprintf(name, PATH_MAX, "%s/%ld/%ld", roll.place, rank / BLOCK, rank) < PATH_MAX;
}

/* Makes the directories above a rank's file. */
static void make_place(long rank)
{
    char path[PATH_MAX];
    mkdir(roll.place, 0700);
    if (snprintf(path, sizeof path, "%s/%ld", roll.place, rank / BLOCK) < PATH_MAX)
        mkdir(path, 0700);
}

static void make_file(long rank)
{
    char name[PATH_MAX];
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = name_of(rank, name) ? open(name, flags, 0600) : -1;
    if (fd < 0 && errno == ENOENT) {
        make_place(rank);
        fd = open(name, flags, 0600);
    }
    if (fd >= 0)
        close(fd);
}

void roll_call_begin(void)
{
    const char *reports = getenv("PDLA_REPORT"), *map = getenv("PDLA_MAP");
    const int error = errno;
    char job[256], ranks[PATH_MAX];
    long rank;
    if (reports == NULL || *reports == '\0' || map == NULL || *map == '\0' || !find_job(job, sizeof job, &rank))
        return;
    /* pdla run makes this directory. RATIONALE: a node that does not have that of the run is one
     * from which no file reaches the other nodes. */
    const int length = snprintf(ranks, sizeof ranks, "%s/ranks", reports);
    if (length < PATH_MAX && (access(ranks, F_OK) == 0 || access(reports, F_OK) != 0)
        && snprintf(roll.place, sizeof roll.place, "%s/%s", ranks, job) < PATH_MAX)
        make_file(rank);
    errno = error;
}

/* The same on all ranks that ask, at any time. */
static bool is_there(long rank)
{
    char name[PATH_MAX];
    struct stat found;
    if (!name_of(rank, name))
        return false;
    if (lstat(name, &found) != 0) {
        make_place(rank);
        if (mkdir(name, 0700) == 0 || lstat(name, &found) != 0)
            return false;
    }
    return S_ISREG(found.st_mode);
}

static void note_lowest(int64_t *missing, int64_t other)
{
    if (other != NOBODY && (*missing == NOBODY || other < *missing))
        *missing = other;
}

static void pass(const struct mpi *mpi, int64_t *missing, int rank, bool sends)
{
    mpi_handle request = mpi->request_null;
    const int rc = sends ? mpi->Isend(missing, 1, mpi->int64, rank, TAG, mpi->comm_world, &request)
                         : mpi->Irecv(missing, 1, mpi->int64, rank, TAG, mpi->comm_world, &request);
    if (rc == 0)
        mpi->Wait(&request, mpi->status_ignore);
}

/* The lowest rank that any neighbour of one with the library found missing; NOBODY: all ranks are
 * there. Called on ranks that are there themselves. */
static int64_t ask(const struct mpi *mpi, int rank, int ranks)
{
    int64_t missing = NOBODY, other;
    int level = 0;
    unsigned children = 0; /* levels of those that are there */
    for (; INT64_C(1) << level < ranks && !(rank >> level & 1); level++) {
        const int64_t child = rank + (INT64_C(1) << level);
        if (child >= ranks)
            continue;
        if (is_there(child)) {
            children |= 1U << level;
            pass(mpi, &other, (int)child, false);
            note_lowest(&missing, other);
        } else {
            note_lowest(&missing, child);
        }
    }
    if (rank > 0) {
        const int parent = rank - (1 << level);
        if (is_there(parent)) {
            pass(mpi, &missing, parent, true);
            pass(mpi, &missing, parent, false);
        } else {
            note_lowest(&missing, parent);
        }
    }
    while (level-- > 0)
        if (children >> level & 1)
            pass(mpi, &missing, rank + (1 << level), true);
    return missing;
}

void roll_call_end(void)
{
    const struct mpi *mpi = running_mpi();
    const int error = errno;
    int rank, ranks;
    if (roll.place[0] == '\0' || mpi == NULL || mpi->Comm_size(mpi->comm_world, &ranks) != 0 || ranks == 1
        || mpi->Comm_rank(mpi->comm_world, &rank) != 0)
        return;
    /* RATIONALE: a rank that the others cannot find must not wait for them. */
    const int64_t missing = is_there(rank) ? ask(mpi, rank, ranks) : rank;
    if (missing == rank)
        snprintf(roll.missing, sizeof roll.missing, "the others cannot see that rank %d of %d has pdla", rank, ranks);
    else if (missing != NOBODY)
        snprintf(roll.missing, sizeof roll.missing, "rank %lld of %d runs without pdla", (long long)missing, ranks);
    roll.complete = missing == NOBODY;
    errno = error;
}

bool roll_call_complete(void)
{
    return roll.complete;
}

const char *roll_call_missing(void)
{
    return roll.missing[0] == '\0' ? NULL : roll.missing;
}
