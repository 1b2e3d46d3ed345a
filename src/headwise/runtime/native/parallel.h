/* Threads for training: those of torch's OpenMP runtime, or none. A forked child uses none, since its runtime would wait for
   threads of the parent. */

#ifndef HEADWISE_PARALLEL_H
#define HEADWISE_PARALLEL_H

#include "products.h"

/* Items begin ... end of some work; results must not depend on the split. */
typedef void (*RangeTask)(void *data, int64_t begin, int64_t end);

/* Runs items 0 to `count` on up to `threads` threads. */
void parallel_for(int64_t count, int threads, RangeTask work, void *data);

/* Sets the function GOMP_parallel of an OpenMP runtime. */
EXPORT void headwise_set_openmp(void *parallel);

#endif
