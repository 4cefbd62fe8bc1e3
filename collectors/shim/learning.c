/* PDLA_LEARN=1, for environment modules: sets in each rank what pdla run --learn sets. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder.h"

#define LOG_BYTES "67108864" /* as in pdla/autopilot/spool.py */

/* When a process began, in ticks since the machine started; "": not known. */
static void read_start(pid_t process, char *start, size_t room)
{
    char path[64], line[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    start[0] = '\0';
    if (file == NULL)
        return;
    char *field = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    for (int i = 0; field != NULL && i < 20; i++)
        field = strchr(field + 1, ' ');
    if (field != NULL)
        snprintf(start, room, "%.*s", (int)strcspn(field + 1, " "), field + 1);
    fclose(file);
}

/* Names what the launcher started, alike in all its ranks. False: this is no rank.
 * RATIONALE: no messages. Ranks without the library would keep those with it waiting for ever. Hydra
 * gives its ranks no name of the job; there it is their parent on the node, so that a program on
 * several nodes leaves several parts, from which nothing is learned. */
static bool name_launch(char *name, size_t room)
{
    const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    if (space != NULL) {
        snprintf(name, room, "%s", space);
    } else if (job != NULL && step != NULL && getenv("SLURM_PROCID") != NULL) {
        snprintf(name, room, "%s.%s", job, step);
    } else if (getenv("PMI_RANK") != NULL) {
        char host[64] = "", start[32];
        gethostname(host, sizeof host - 1);
        read_start(getppid(), start, sizeof start);
        snprintf(name, room, "%s %d %s", host, (int)getppid(), start);
    } else {
        return false;
    }
    return true;
}

/* Where pdla keeps its files: as pdla.config.home(). False: nobody says it. */
static bool find_home(char *home, size_t room)
{
    const char *chosen = getenv("PDLA_HOME"), *data = getenv("XDG_DATA_HOME"), *user = getenv("HOME");
    int length = -1;
    if (chosen != NULL && *chosen == '/')
        length = snprintf(home, room, "%s", chosen);
    else if (chosen == NULL && data != NULL && *data == '/')
        length = snprintf(home, room, "%s/pdla", data);
    else if (chosen == NULL && user != NULL && *user == '/')
        length = snprintf(home, room, "%s/.local/share/pdla", user);
    return length > 0 && length < (int)room;
}

static uint64_t hash(const char *text)
{
    uint64_t value = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return value;
}

/* Sets a variable to a path. */
static void set_place(const char *variable, const char *place, const char *below)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", place, below);
    setenv(variable, path, 0);
}

void learn_unasked(void)
{
    char home[PATH_MAX - 64], launch[512], place[PATH_MAX - 16];
    const char *wish = getenv("PDLA_LEARN");
    if (wish == NULL || strcmp(wish, "1") != 0 || getenv("PDLA_TRACE") != NULL || getenv("PDLA_MAP") != NULL ||
        !name_launch(launch, sizeof launch) || !find_home(home, sizeof home))
        return;
    snprintf(place, sizeof place, "%s/replicas.map", home);
    if (access(place, R_OK) == 0)
        set_place("PDLA_MAP", place, "");
    snprintf(place, sizeof place, "%s/learning/paused", home);
    if (access(place, F_OK) == 0)
        return;
    snprintf(place, sizeof place, "%s/learning", home);
    mkdir(home, 0700);
    mkdir(place, 0700);
    snprintf(place, sizeof place, "%s/learning/run.%016" PRIx64, home, hash(launch));
    mkdir(place, 0700);
    if (access(place, W_OK | X_OK) != 0)
        return;
    set_place("PDLA_MAP", home, "/replicas.map");
    set_place("PDLA_REPORT", place, "");
    set_place("PDLA_TRACE", place, "/raw");
    setenv("PDLA_TRACE_BYTES", LOG_BYTES, 0);
}
