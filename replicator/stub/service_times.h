/* How long the servers take for a request, as the processes of a node measure it: the averages T_i of iBridge, in
 * memory that these processes share. Any thread may call these functions. */
#ifndef PDLA_SERVICE_TIMES_H
#define PDLA_SERVICE_TIMES_H

#include "interpose.h"

enum { SERVICE_SERVERS = 64 /* home servers that are told apart; of more, some share an average */ };

struct service_times;

/* `directory` NULL, or without room: only this process has them. NULL: out of memory. */
struct service_times *service_times_open(const char *directory);
void service_times_close(struct service_times *);
/* T_i of a home server, or of the SSD servers (-1), in seconds; 0: nothing has been measured. */
double service_time(const struct service_times *, int64_t server);
/* A request to `count` of `servers` servers, from the `first` of them on, took so long. Numbers begin with `base`. */
void service_times_add(struct service_times *, int64_t base, int64_t first, int64_t count, int64_t servers,
                       double seconds);
void service_times_add_ssd(struct service_times *, double seconds);
/* The program makes requests, whatever they take. */
void service_times_use(struct service_times *);
/* Whether no process of the node has made a request for as long as some of the home servers take. */
bool service_times_are_idle(const struct service_times *);
/* All ranks take the means of what they have measured. Collective. */
void service_times_exchange(struct service_times *, mpi_handle comm);

#endif
