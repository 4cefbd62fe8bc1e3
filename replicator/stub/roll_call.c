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

#include "launch.h"
#include "running_mpi.h"

enum { TAG = 32025, BLOCK = 256 /* files in a directory */, NOBODY = -1 };

static struct {
    char place[PATH_MAX]; /* the directory of the job's files; "": nobody is asked */
    long ranks;           /* of the job; 0: the launcher does not say */
    char missing[96];
    bool complete;
} roll;

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
    char ranks[PATH_MAX];
    struct launch job;
    if (reports == NULL || *reports == '\0' || map == NULL || *map == '\0')
        return;
    /* pdla run makes this directory. RATIONALE: a node that does not have that of the run is one
     * from which no file reaches the other nodes. */
    const int length = snprintf(ranks, sizeof ranks, "%s/ranks", reports);
    const enum launch_knowledge known = length < PATH_MAX && (access(ranks, F_OK) == 0 || access(reports, F_OK) != 0)
        ? launch_find(&job) : LAUNCH_UNKNOWN;
    /* RATIONALE: ranks outside of the container know the name, and would take this one for one without pdla. */
    if (known == LAUNCH_HIDDEN)
        strcpy(roll.missing, "a container hides the launcher: share the PID namespace of the host");
    else if (known == LAUNCH_NAMED && snprintf(roll.place, sizeof roll.place, "%s/%s", ranks, job.name) < PATH_MAX)
        make_file(job.rank);
    roll.ranks = known == LAUNCH_NAMED ? job.ranks : 0;
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
    /* RATIONALE: these variables are those of another launcher, which started this one. */
    if (roll.ranks != 0 && roll.ranks != ranks)
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
