#include "launch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The variables of a launcher; NULL: it has none. The name is `job`, or `job`-`part`. A launcher that is started by
 * another one comes before it. */
static const struct launcher {
    const char *rank, *ranks, *job, *part;
} launchers[] = {
    /* Intel MPI's Hydra. The second number counts what MPI_Comm_spawn starts. Seen under Intel MPI 2021.17; oneCCL
     * (src/atl/ofi) takes the first one for the job's name, too. */
    {"PMI_RANK", "PMI_SIZE", "I_MPI_HYDRA_UUID", "HYDRA_BSTRAP_PGID"},
    /* PMIx: Open MPI, PRRTE, jsrun, srun --mpi=pmix. PMIx standard, PMIx_Init. */
    {"PMIX_RANK", NULL, "PMIX_NAMESPACE", NULL},
    /* flux-core, src/shell/task.c. */
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_ID", NULL},
    /* PALS, the mpiexec and aprun of HPE Cray EX: flux-coral2, src/shell/plugins/cray_pals.c; Slurm,
     * src/plugins/mpi/cray_shasta. */
    {"PALS_RANKID", NULL, "PALS_APID", NULL},
    /* ALPS, the aprun of Cray XC: aprun(1); Slurm, src/plugins/task/cray_aries. */
    {"ALPS_APP_PE", NULL, "ALPS_APP_ID", NULL},
    /* srun --mpi=pmi2: Slurm, src/plugins/mpi/pmi2. */
    {"PMI_RANK", "PMI_SIZE", "PMI_JOBID", NULL},
    /* srun with a PMI of the MPI library's own: srun(1). */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };
static const struct launcher *const intel = &launchers[0];

/* ---- Hydra ------------------------------------------------------------------------------------------------------- */

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

/* Whether /proc shows the processes by the numbers that this process knows. */
static bool sees_processes(void)
{
    char number[32] = "";
    return readlink("/proc/self", number, sizeof number - 1) > 0 && atol(number) == (long)getpid();
}

/* The command line of Hydra's proxy on this node, an ancestor of this process; 0: there is none to be seen. */
static size_t find_proxy(char *line, size_t room)
{
    long process = sees_processes() ? getppid() : 0;
    for (int steps = 0; process > 1 && steps < 16; steps++, process = parent_of(process)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/cmdline", process);
        const size_t size = read_file(path, line, room);
        const char *base = strrchr(line, '/');
        if (strcmp(base == NULL ? line : base + 1, "hydra_pmi_proxy") == 0)
            return size;
    }
    return 0;
}

/* Where Hydra's mpiexec listens, and the number of the group of ranks that it started. RATIONALE: Hydra gives ranks
 * nothing else that names the program. */
static bool name_by_proxy(const char *line, size_t size, char *name, size_t room)
{
    char port[200], group[16];
    return option_of(line, size, "--control-port", port, sizeof port)
        && option_of(line, size, "--pgid", group, sizeof group)
        && snprintf(name, room, "%s-%s", port, group) < (int)room;
}

/* In another PID namespace than the first one of the machine, which has this inode on every Linux. */
static bool is_contained(void)
{
    const ino_t first = 0xEFFFFFFC; /* PROC_PID_INIT_INO of include/linux/proc_ns.h */
    struct stat found;
    return stat("/proc/self/ns/pid", &found) == 0 && found.st_ino != first;
}

/* ---- what is common ---------------------------------------------------------------------------------------------- */

/* A whole number >= 0. */
static bool read_number(const char *variable, long *number)
{
    const char *text = variable == NULL ? NULL : getenv(variable);
    char *end = NULL;
    *number = text == NULL ? 0 : strtol(text, &end, 10);
    return text != NULL && end != text && *end == '\0' && *number >= 0;
}

/* Whether a number agrees with that of PMI, if there is one. RATIONALE: what a launcher starts passes its variables on
 * to what it starts itself, such as another launcher, whose ranks then all have the same ones. */
static bool agrees(const char *variable, long number)
{
    long other;
    return !read_number(variable, &other) || other == number;
}

static bool name_by_variables(const struct launcher *launcher, struct launch *launch)
{
    const char *job = getenv(launcher->job), *part = launcher->part == NULL ? NULL : getenv(launcher->part);
    launch->ranks = 0;
    if (job == NULL || *job == '\0' || (launcher->part != NULL && part == NULL)
        || !read_number(launcher->rank, &launch->rank) || !agrees("PMI_RANK", launch->rank)
        || (launcher->ranks != NULL
            && (!read_number(launcher->ranks, &launch->ranks) || !agrees("PMI_SIZE", launch->ranks))))
        return false;
    return snprintf(launch->name, sizeof launch->name, "%s%s%s", job, part == NULL ? "" : "-", part == NULL ? "" : part)
        < (int)sizeof launch->name;
}

static enum launch_knowledge find(struct launch *launch)
{
    char line[8192];
    const bool pmi = read_number("PMI_RANK", &launch->rank);
    const size_t size = pmi ? find_proxy(line, sizeof line) : 0;
    if (size > 0 && name_by_proxy(line, size, launch->name, sizeof launch->name))
        return read_number("PMI_SIZE", &launch->ranks) ? LAUNCH_NAMED : LAUNCH_UNKNOWN;
    for (int i = 0; i < LAUNCHERS; i++)
        if ((size == 0 || &launchers[i] == intel) && name_by_variables(&launchers[i], launch))
            return LAUNCH_NAMED;
    return pmi && size == 0 && is_contained() ? LAUNCH_HIDDEN : LAUNCH_UNKNOWN;
}

bool launch_is_first(void)
{
    static const char *const numbers[] = {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "ALPS_APP_PE", "MPI_RANK"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *number = getenv(numbers[i]);
        if (number && strcmp(number, "0") != 0)
            return false;
    }
    return true;
}

enum launch_knowledge launch_find(struct launch *launch)
{
    const enum launch_knowledge found = find(launch);
    for (char *at = launch->name; found == LAUNCH_NAMED && *at != '\0'; at++)
        *at = *at == '/' ? '_' : *at;
    return found;
}
