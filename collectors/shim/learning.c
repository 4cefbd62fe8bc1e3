/* PDLA_LEARN=1, for environment modules: sets in each rank what pdla run --learn sets. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_size.h"
#include "home.h"
#include "launch.h"
#include "recorder.h"

#define LOG_BYTES "67108864" /* as in pdla/autopilot/spool.py */

/* The directory of a program. RATIONALE: it has the hour in its name, because launchers use names again. A run whose
 * ranks start in two hours leaves two parts, from which nothing is learned. */
static uint64_t hash(const char *name)
{
    char text[512];
    uint64_t value = UINT64_C(14695981039346656037); /* FNV-1a */
    snprintf(text, sizeof text, "%s %lld", name, (long long)time(NULL) / 3600);
    for (const char *at = text; *at; at++)
        value = (value ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return value;
}

/* Sets a variable to a path. */
static void set_place(const char *variable, const char *place, const char *below)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", place, below);
    setenv(variable, path, 0);
}

/* Says to the learner where the user lets writes go. All ranks write the same. */
static void note_writes(const char *place)
{
    char path[PATH_MAX];
    const char *wish = getenv("PDLA_WRITES");
    snprintf(path, sizeof path, "%s/writes", place);
    FILE *file = wish == NULL || !file_size_allowed((int64_t)strlen(wish)) ? NULL : fopen(path, "we");
    if (file == NULL)
        return;
    fputs(wish, file);
    fclose(file);
}

void learn_unasked(void)
{
    char place[PATH_MAX - 16];
    struct launch launch;
    const char *wish = getenv("PDLA_LEARN"), *home, *why;
    if (wish == NULL || strcmp(wish, "1") != 0 || getenv("PDLA_TRACE") != NULL || getenv("PDLA_MAP") != NULL ||
        launch_find(&launch) != LAUNCH_NAMED)
        return;
    home = home_directory(&why);
    if (home == NULL && launch_is_first())
        fprintf(stderr, "pdla: nothing is learned, because %s\n", why);
    if (home == NULL || strlen(home) >= PATH_MAX - 64)
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
    snprintf(place, sizeof place, "%s/learning/run.%016" PRIx64, home, hash(launch.name));
    mkdir(place, 0700);
    if (access(place, W_OK | X_OK) != 0)
        return;
    note_writes(place);
    set_place("PDLA_MAP", home, "/replicas.map");
    set_place("PDLA_REPORT", place, "");
    set_place("PDLA_TRACE", place, "/raw");
    setenv("PDLA_TRACE_BYTES", LOG_BYTES, 0);
}
