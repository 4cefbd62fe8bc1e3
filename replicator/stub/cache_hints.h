/* Whether and how the writes to a file are cached: by the hints of E10 (Congiu et al., Table II) on the node's
 * own device, or by S4D-Cache, iBridge or LiU on SSD servers. */
#ifndef PDLA_CACHE_HINTS_H
#define PDLA_CACHE_HINTS_H

#include "interpose.h"

/* romio_cb_write: whether pieces of a collective write are exchanged between nodes first. */
enum exchange_wish { EXCHANGE_AUTOMATIC, EXCHANGE_ALWAYS, EXCHANGE_NEVER };

/* Of a file. */
enum cache_policy { POLICY_NONE, POLICY_E10, POLICY_S4D, POLICY_IBRIDGE, POLICY_LIU };

/* Whether it judges each call for itself, and has what it wishes on SSD servers. */
static inline bool policy_judges(enum cache_policy policy)
{
    return policy == POLICY_S4D || policy == POLICY_IBRIDGE || policy == POLICY_LIU;
}

struct cache_hints {
    enum cache_policy policy;
    char directory[900];  /* e10_cache_path; or that of an SSD server */
    bool coherent;        /* e10_cache: coherent; reads on other nodes wait for bytes that are not home */
    bool on_close;        /* e10_cache_flush_flag: flush_onclose; otherwise flush_immediate */
    bool keeps;           /* e10_cache_discard_flag: disable; the cache file stays until the user removes it */
    int64_t request;      /* ind_wr_buffer_size: bytes that are brought home at a time, at most; 0: no limit */
    int64_t bytes;        /* of the device, for all processes of the node; 0: what is free */
    const char *pool;     /* directories, separated by colons, where `bytes` are for all programs; NULL: see `bytes` */
    enum exchange_wish exchange;
    int64_t unit;         /* cb_buffer_size: bytes that are exchanged as one; 0: chosen for each view */
    uint32_t guard;       /* deferred_close: a number for its pattern; 0: the close waits until the bytes are home */
};

/* That of the file at this path, as resolve_path() has it: PDLA_POLICY, whose first line with a pattern of the path
 * counts. POLICY_NONE: this process does not cache it. */
enum cache_policy cache_policy(const char *path);
const char *cache_policy_name(enum cache_policy);
/* Reads the hints of an open, for a rank: those of its MPI_Info first, then those of the file that
 * ROMIO_HINTS names, then the variables of pdla run. NULL, or why its writes are not cached: a literal. */
const char *cache_hints_of(const struct opening *, int rank, const char *unjudged, struct cache_hints *);
/* Where the bytes of an independent call have gaps in the file: how many bytes, gaps included, the MPI library reads
 * at once, and reads and writes back (data sieving); 0: it does not. */
void sieving_of(mpi_handle file, int64_t *reads, int64_t *writes);
/* The guard of an open of the file at `path`. */
uint32_t cache_guard_of(const struct opening *, const char *path);

#endif
