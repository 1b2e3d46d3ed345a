/* Threads for inference. The thread that asks for work always does some of it, and waits only for parts that others have begun:
   where other programs have the cores, it does all of it alone. How work is split must not affect results. */

#ifndef HEADWISE_POOL_H
#define HEADWISE_POOL_H

#include "common.h"

#include <stdatomic.h>
#include <stdint.h>

/* One of `parts` parts of some work. */
typedef void (*PartTask)(void *data, int part, int parts);

/* The number of parts into which the calling thread should split work of so many multiplications. */
int parts_for(int64_t multiplications);

/* Runs all parts: on the pool, or alone if another thread is using it. */
void run_parts(int parts, PartTask task, void *data);

/* How many threads the calls of this thread may use from now on; 1 at first. If `shared` is not NULL, they may use as many as it
   says at each time, at most `threads`. The pool grows to the largest number. */
EXPORT void headwise_set_threads(int threads, const atomic_int *shared);

#endif
