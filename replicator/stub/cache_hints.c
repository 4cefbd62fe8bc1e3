#include "cache_hints.h"

#include <ctype.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loadedmap.h"
#include "pool_room.h"
#include "reservations.h"
#include "storage.h"

enum { LONGEST = 900, LINE = 2048 };

static const char *const policy_names[] = {
    [POLICY_NONE] = "none", [POLICY_E10] = "e10", [POLICY_S4D] = "s4d", [POLICY_IBRIDGE] = "ibridge",
    [POLICY_LIU] = "liu",
};

const char *cache_policy_name(enum cache_policy policy)
{
    return policy_names[policy];
}

/* RATIONALE: a pattern without a slash is for names, as those of MPIWRAP (E10). */
static bool is_of(const char *pattern, const char *path)
{
    const char *name = strchr(pattern, '/') == NULL ? strrchr(path, '/') : NULL;
    return fnmatch(pattern, name != NULL ? name + 1 : path, FNM_PATHNAME) == 0;
}

struct policy_line {
    enum cache_policy policy;
    char pattern[PATH_MAX]; /* "": of all files */
};

/* Takes a line of PDLA_POLICY off `text`: "NAME PATTERN", or "NAME". False: there is none. */
static bool next_policy(const char **text, struct policy_line *line)
{
    if (*text == NULL || **text == '\0')
        return false;
    const int length = (int)strcspn(*text, "\n"), name = (int)strcspn(*text, " \n");
    const int pattern = name < length ? name + 1 : length;
    *line = (struct policy_line){0};
    for (enum cache_policy policy = POLICY_NONE; policy <= POLICY_LIU; policy++)
        if ((int)strlen(policy_names[policy]) == name && strncmp(*text, policy_names[policy], (size_t)name) == 0)
            line->policy = policy;
    if (length - pattern >= PATH_MAX)
        line->pattern[0] = '/'; /* longer than any path: of no file */
    else
        memcpy(line->pattern, *text + pattern, (size_t)(length - pattern));
    *text += length + ((*text)[length] == '\n');
    return true;
}

enum cache_policy cache_policy(const char *path)
{
    struct policy_line line;
    for (const char *text = getenv("PDLA_POLICY"); next_policy(&text, &line);)
        if (line.pattern[0] == '\0' || is_of(line.pattern, path))
            return line.policy;
    return POLICY_NONE;
}

static bool of_info(mpi_handle info, const char *name, char value[LONGEST])
{
    const struct mpi *mpi = running_mpi();
    int found = 0, length = LONGEST;
    if (info == mpi->info_null)
        return false;
    if (mpi->Info_get_string != NULL)
        return mpi->Info_get_string(info, name, &length, value, &found) == 0 && found && length <= LONGEST;
    return mpi->Info_get != NULL && mpi->Info_get(info, name, LONGEST - 1, value, &found) == 0 && found;
}

/* A line is a name and a value; others are comments. The first line of a name counts, as in ROMIO. */
static bool of_file(const char *name, char value[LONGEST])
{
    const char *path = getenv("ROMIO_HINTS");
    FILE *hints = path == NULL || *path == '\0' ? NULL : fopen(path, "re");
    char line[LINE], key[LINE], rest[LINE];
    bool found = false;
    while (hints != NULL && !found && fgets(line, sizeof line, hints) != NULL)
        if (line[0] != '#' && sscanf(line, "%s %s", key, rest) == 2 && strcmp(key, name) == 0)
            found = snprintf(value, LONGEST, "%s", rest) < LONGEST;
    if (hints != NULL)
        fclose(hints);
    return found;
}

/* Of hint "x_y" the variable is PDLA_X_Y. */
static bool of_variable(const char *name, char value[LONGEST])
{
    char variable[64] = "PDLA_";
    for (size_t i = strlen(variable); *name != '\0' && i < sizeof variable - 1; name++, i++)
        variable[i] = (char)toupper((unsigned char)*name);
    const char *found = getenv(variable);
    return found != NULL && *found != '\0' && snprintf(value, LONGEST, "%s", found) < LONGEST;
}

static bool hint(mpi_handle info, const char *name, char value[LONGEST])
{
    return of_info(info, name, value) || of_file(name, value) || of_variable(name, value);
}

static bool hint_is(mpi_handle info, const char *name, const char *wanted)
{
    char value[LONGEST];
    return hint(info, name, value) && strcmp(value, wanted) == 0;
}

/* Not positive numbers are ignored, as MPI asks of hints. */
static int64_t number_in(const char *value)
{
    char *end;
    const long long number = strtoll(value, &end, 10);
    return number > 0 && *end == '\0' ? number : 0;
}

static int64_t hint_number(mpi_handle info, const char *name)
{
    char value[LONGEST];
    return hint(info, name, value) ? number_in(value) : 0;
}

uint32_t cache_guard_of(const struct opening *opening, const char *path)
{
    char pattern[LONGEST];
    const bool guards = hint(opening->info, "deferred_close", pattern) && is_of(pattern, path);
    return guards ? crc32c(0, pattern, strlen(pattern)) | 1 : 0;
}

static const char silent[] = "the storage of the cache does not answer";

/* Why there is no directory for the cache files of a rank: a literal. RATIONALE: a cache file is on one server, so that
 * each server gets whole requests; the ranks take turns. */
static const char *find_directory(int rank, char directory[LONGEST])
{
    const char *list = getenv("PDLA_SSD_PATH");
    int servers = list != NULL && *list != '\0';
    for (const char *at = list; servers > 0 && *at != '\0'; at++)
        servers += *at == ':';
    for (int skipped = 0; servers > 0 && skipped < rank % servers; skipped++)
        list = strchr(list, ':') + 1;
    char server[LONGEST];
    if (servers == 0 || list[0] != '/'
        || snprintf(server, sizeof server, "%.*s", (int)strcspn(list, ":"), list) >= LONGEST)
        return "PDLA_SSD_PATH does not name the directories of SSD servers";
    if (!storage_responds(server, TIMEOUT_SHORT))
        return silent;
    return reservations_name(directory, LONGEST, server) ? NULL
        : "PDLA_SSD_PATH does not name the directories of SSD servers";
}

/* Of S4D-Cache, iBridge and LiU. A program's own hints do not count: they are for E10, and this room is for all
 * programs. */
static const char *ssd_hints_of(enum cache_policy policy, int rank, const char *unjudged, struct cache_hints *hints)
{
    char bytes[LONGEST];
    *hints = (struct cache_hints){.policy = policy, .exchange = EXCHANGE_NEVER,
                                  .bytes = of_variable("ssd_bytes", bytes) ? number_in(bytes) : 0};
    if (unjudged != NULL)
        return unjudged;
    hints->pool = hints->bytes > 0 ? getenv("PDLA_SSD_PATH") : NULL;
    const char *why = find_directory(rank, hints->directory);
    return why == NULL && hints->pool != NULL && !pool_room_responds(hints->pool) ? silent : why;
}

static const char *e10_hints_of(const struct opening *opening, struct cache_hints *hints)
{
    const mpi_handle info = opening->info;
    char value[LONGEST];
    const bool coherent = hint_is(info, "e10_cache", "coherent");
    /* RATIONALE: a read would wait for a close that may come after it. */
    *hints = (struct cache_hints){.policy = POLICY_E10,
                                  .coherent = coherent,
                                  .on_close = !coherent && hint_is(info, "e10_cache_flush_flag", "flush_onclose"),
                                  .keeps = hint_is(info, "e10_cache_discard_flag", "disable"),
                                  .request = hint_number(info, "ind_wr_buffer_size"),
                                  .bytes = hint_number(info, "cache_bytes"),
                                  .exchange = hint_is(info, "romio_cb_write", "enable") ? EXCHANGE_ALWAYS
                                      : hint_is(info, "romio_cb_write", "disable")      ? EXCHANGE_NEVER
                                                                                        : EXCHANGE_AUTOMATIC,
                                  .unit = hint_number(info, "cb_buffer_size"),
                                  .guard = cache_guard_of(opening, opening->path)};
    if (hints->keeps)
        hints->guard = 0; /* rank 0 of a deferred close removes what the others leave */
    if (!hint(info, "e10_cache", value) || (strcmp(value, "enable") != 0 && strcmp(value, "coherent") != 0))
        return "the hint e10_cache does not enable the cache";
    if (!hint(info, "e10_cache_path", hints->directory))
        return "no hint e10_cache_path names a directory of the node's own device";
    if (hints->directory[0] != '/')
        return "the hint e10_cache_path is not an absolute path";
    return storage_responds(hints->directory, TIMEOUT_SHORT) ? NULL : silent;
}

const char *cache_hints_of(const struct opening *opening, int rank, const char *unjudged, struct cache_hints *hints)
{
    const enum cache_policy policy = cache_policy(opening->path);
    return policy_judges(policy) ? ssd_hints_of(policy, rank, unjudged, hints) : e10_hints_of(opening, hints);
}

/* RATIONALE: the hints of the open file, not those of the program: ROMIO adds its own, and its drivers change them. */
static int64_t sieved(mpi_handle info, const char *sieving, const char *size)
{
    char value[LONGEST];
    if (!of_info(info, sieving, value) || strcmp(value, "disable") == 0 || !of_info(info, size, value))
        return 0;
    const long long bytes = strtoll(value, NULL, 10);
    return bytes > 0 ? bytes : 0;
}

void sieving_of(mpi_handle file, int64_t *reads, int64_t *writes)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle info = mpi->info_null;
    *reads = *writes = 0;
    if (mpi->File_get_info == NULL || mpi->Info_free == NULL || mpi->File_get_info(file, &info) != 0)
        return;
    *reads = sieved(info, "romio_ds_read", "ind_rd_buffer_size");
    *writes = sieved(info, "romio_ds_write", "ind_wr_buffer_size");
    mpi->Info_free(&info);
}
