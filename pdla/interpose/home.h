/* Where pdla keeps its own files, by the same rules as in pdla/config.py: what a variable names may begin with ~ or
 * ~user, and must be absolute then. RATIONALE: a program may change its directory. Two parts that found two directories
 * would each miss the bytes that wait in the other.
 *
 * Each place is found once. There is none as long as its directory belongs to another user, but root, or others can
 * write to it. */
#ifndef PDLA_HOME_H
#define PDLA_HOME_H

/* PDLA_HOME, otherwise XDG_DATA_HOME/pdla, otherwise ~/.local/share/pdla. NULL: *why says in a line why there is none;
 * the text stays. */
const char *home_directory(const char **why);
/* The published map: PDLA_MAP, otherwise replicas.map in that directory. */
const char *home_map(const char **why);

#endif
