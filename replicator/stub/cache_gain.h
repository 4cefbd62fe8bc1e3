/* Whether a cache gains anything. The program waits for the storage later if it writes to a cache first: by the
 * first write. So it must compute for longer than that before it waits, and bytes must go home meanwhile. What one
 * file has seen is the best guess for the next one of its series, whose path differs in digits only. After a file
 * that gained nothing, the collective writes to the next one go straight to the original, as long as that is not
 * slower. */
#ifndef PDLA_CACHE_GAIN_H
#define PDLA_CACHE_GAIN_H

#include <stdbool.h>
#include <stdint.h>

struct cache_gain;

/* Of an open file. `hides`: bytes go home while the program computes. NULL: out of memory. */
struct cache_gain *cache_gain_make(const char *path, bool hides);
void cache_gain_free(struct cache_gain *);

/* What an earlier file of the series says. */
enum cache_gain_guess { GAIN_NOT_KNOWN, GAIN_LIKELY, GAIN_UNLIKELY };
enum cache_gain_guess cache_gain_guess(const struct cache_gain *);

/* To be called around what the program waits for: a collective write of so many bytes, or until all bytes are home.
 * The waits may be nested. `gain` NULL: nothing is learned. */
enum { GAIN_HOME = -1 };
void cache_gain_wait_begins(struct cache_gain *, int64_t bytes);
void cache_gain_wait_ends(struct cache_gain *);
/* The file was written, and all its bytes are home. `straight`: its writes went to the original. */
void cache_gain_learn(const struct cache_gain *, bool straight);

#endif
