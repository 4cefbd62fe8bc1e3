#include "home.h"

#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY = 16384 /* of the user database */ };

/* The value of a variable; NULL: it is unset or empty. */
static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);
    return value == NULL || *value == '\0' ? NULL : value;
}

/* The home directory of the user of that name; "": of this one. */
static bool find_user(const char *name, char directory[PATH_MAX])
{
    char entry[ENTRY];
    struct passwd record, *found = NULL;
    const char *own = *name == '\0' ? value_of("HOME") : NULL;
    if (own == NULL && (*name == '\0' ? getpwuid_r(getuid(), &record, entry, sizeof entry, &found)
                                      : getpwnam_r(name, &record, entry, sizeof entry, &found)) == 0 && found != NULL)
        own = found->pw_dir;
    return own != NULL && snprintf(directory, PATH_MAX, "%s", own) < PATH_MAX;
}

/* Writes the user's directory that a value begins with. Returns the rest of the value, or NULL: there is no such
 * user. */
static const char *expand(const char *value, char directory[PATH_MAX])
{
    char name[256];
    directory[0] = '\0';
    if (*value != '~')
        return value;
    const char *rest = value + strcspn(value, "/");
    const int length = snprintf(name, sizeof name, "%.*s", (int)(rest - value) - 1, value + 1);
    return length < (int)sizeof name && find_user(name, directory) ? rest : NULL;
}

/* Adds the parts of a path but those that mean nothing. False: it is too long. */
static bool add(char path[PATH_MAX], const char *more)
{
    size_t length = strlen(path);
    for (size_t part; more += strspn(more, "/"), (part = strcspn(more, "/")) > 0; more += part) {
        if (part == 1 && *more == '.')
            continue;
        if (length + part + 2 > PATH_MAX)
            return false;
        path[length++] = '/';
        memcpy(path + length, more, part);
        path[length += part] = '\0';
    }
    return true;
}

/* The place that a variable names, with `below` behind it. */
static void find(struct home_place *place, const char *variable, const char *value, const char *below)
{
    char user[PATH_MAX];
    const char *rest = expand(value, user);
    if (rest == NULL)
        snprintf(place->why, sizeof place->why, "%s=%.*s names the home of an unknown user (give an absolute path)",
                 variable, PATH_MAX, value);
    else if ((*user == '\0' ? *rest : *user) != '/')
        snprintf(place->why, sizeof place->why, "%s=%.*s is not an absolute path (give one that begins with / or ~)",
                 variable, PATH_MAX, value);
    else if (!add(place->path, user) || !add(place->path, rest) || !add(place->path, below)) {
        place->path[0] = '\0';
        snprintf(place->why, sizeof place->why, "%s is too long for a path", variable);
    } else if (place->path[0] == '\0') {
        strcpy(place->path, "/");
    }
}

static void find_below_home(struct home_place *place, const char *name)
{
    char below[64];
    const char *chosen = value_of("PDLA_HOME"), *data = value_of("XDG_DATA_HOME"), *user = value_of("HOME");
    const char *variable = chosen != NULL ? "PDLA_HOME" : data != NULL ? "XDG_DATA_HOME" : "HOME";
    const char *value = chosen != NULL ? chosen : data != NULL ? data : user != NULL ? user : "~";
    snprintf(below, sizeof below, "%s/%s", chosen != NULL ? "" : data != NULL ? "pdla" : ".local/share/pdla", name);
    find(place, variable, value, below);
}

/* Notes the directory whose owner counts, and what there is to say of it. */
static void guard(struct home_place *place, size_t length)
{
    snprintf(place->directory, PATH_MAX, "%.*s", (int)length, place->path);
    if (length > 0)
        snprintf(place->why, sizeof place->why, "%s belongs to another user, or others can write to it (chmod go-w)",
                 place->directory);
}

void home_find(struct home_place *place, const char *variable, const char *name)
{
    const char *chosen = variable == NULL ? NULL : value_of(variable), *last;
    *place = (struct home_place){0};
    if (chosen != NULL)
        find(place, variable, chosen, "");
    else
        find_below_home(place, name);
    last = *name == '\0' ? NULL : strrchr(place->path, '/');
    guard(place, last == NULL ? strlen(place->path) : last == place->path ? 1 : (size_t)(last - place->path));
}

const char *home_usable(const struct home_place *place, const char **why)
{
    struct stat found;
    *why = place->why;
    if (place->path[0] == '\0')
        return NULL;
    /* What is missing, or cannot be looked at, harms nobody. */
    return stat(place->directory, &found) != 0
            || ((found.st_uid == 0 || found.st_uid == geteuid()) && !(found.st_mode & (S_IWGRP | S_IWOTH)))
        ? place->path : NULL;
}

static struct home_place home;

static void find_home(void)
{
    home_find(&home, NULL, "");
}

const char *home_directory(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_home);
    return home_usable(&home, why);
}
