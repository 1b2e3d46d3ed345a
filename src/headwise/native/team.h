/* Threads of whoever trains: those of torch, which brings OpenMP, or none. In a child that was forked there are none: the
   runtime waits there for threads that only its parent has. */

#ifndef HEADWISE_TEAM_H
#define HEADWISE_TEAM_H

#include "products.h"

/* Items begin ... end of some work; nothing may depend on how they are shared out. */
typedef void (*Work)(void *data, int64_t begin, int64_t end);

/* All items from 0 to `count`, by up to `threads` threads. */
void share(int64_t count, int threads, Work work, void *data);

/* Have work shared by the function GOMP_parallel of an OpenMP runtime. */
EXPORT void headwise_team(void *parallel);

#endif
