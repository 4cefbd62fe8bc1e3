/* What the launcher says of the program that it started, to be had before MPI_Init and without a message. */
#ifndef PDLA_LAUNCH_H
#define PDLA_LAUNCH_H

#include <stdbool.h>

enum launch_knowledge {
    LAUNCH_UNKNOWN, /* a launcher that gives no name, or none */
    LAUNCH_NAMED,
    LAUNCH_HIDDEN   /* Hydra's, which this process cannot see from its container */
};

struct launch {
    char name[256]; /* of the program: alike in all its ranks, on all nodes, and in no other program; has no slash */
    long rank;      /* in MPI_COMM_WORLD */
    long ranks;     /* 0: the launcher does not say */
};

/* Fills in what is found if the program is named. */
enum launch_knowledge launch_find(struct launch *);
/* Whether this process is the first one, or the launcher does not number them: it says what all could say. */
bool launch_is_first(void);

#endif
