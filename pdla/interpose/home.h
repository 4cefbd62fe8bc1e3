/* Where pdla keeps its own files, by the same rules as in pdla/config.py: what a variable names may begin with ~ or
 * ~user, and must be absolute then. RATIONALE: a program may change its directory. Two parts that found two directories
 * would each miss the bytes that wait in the other. */
#ifndef PDLA_HOME_H
#define PDLA_HOME_H

#include <limits.h>

/* The directory of pdla's own files, or a file in a directory. */
struct home_place {
    char path[PATH_MAX];      /* "": there is none */
    char directory[PATH_MAX]; /* whose owner counts */
    char why[PATH_MAX + 256]; /* there is none, now or ever */
};

/* Finds the file that a variable names or, if that is NULL, unset or empty, the one of this name in pdla's directory:
 * PDLA_HOME, otherwise XDG_DATA_HOME/pdla, otherwise ~/.local/share/pdla. `name` "": that directory itself. */
void home_find(struct home_place *, const char *variable, const char *name);
/* Its path, unless its directory belongs to another user, but root, or others can write to it. NULL: *why says in a
 * line why there is none; the text stays. */
const char *home_usable(const struct home_place *, const char **why);
/* The path of pdla's directory, which is found at the first call; NULL likewise. */
const char *home_directory(const char **why);

#endif
