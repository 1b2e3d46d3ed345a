/* Threads of whoever trains: those of torch, which brings OpenMP, or none. */

#ifndef SIGHTLINE_TEAM_H
#define SIGHTLINE_TEAM_H

#include "products.h"

/* Items begin ... end of some work; nothing may depend on how they are shared out. */
typedef void (*Work)(void *data, int64_t begin, int64_t end);

/* All items from 0 to `count`, by as many threads as there are. */
void share(int64_t count, Work work, void *data);

/* Have work shared by the functions of an OpenMP runtime: GOMP_parallel and omp_get_max_threads. */
EXPORT void sightline_team(void *parallel, void *size);

#endif
