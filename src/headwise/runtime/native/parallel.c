/* See parallel.h. The library does not link OpenMP: the threads of a second runtime would wait on the cores that torch uses. */

#include "parallel.h"

#ifndef _WIN32
#include <pthread.h>
#endif
#include <stdatomic.h>

#define PARTS 4 /* several per thread, to balance the load */

typedef void (*Parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);

static Parallel run_parallel;

typedef struct Shares {
    int64_t count, parts;
    atomic_llong taken;
    RangeTask work;
    void *data;
} Shares;

#ifdef _WIN32
static void forget_in_children(void) {} /* no fork */
#else
static void forget(void) { run_parallel = NULL; }

static void forget_in_children(void) { pthread_atfork(NULL, NULL, forget); }
#endif

void headwise_set_openmp(void *parallel) {
    if (!run_parallel) forget_in_children();
    run_parallel = (Parallel)parallel;
}

static void take_parts(void *data) {
    Shares *s = data;
    for (int64_t p; (p = atomic_fetch_add(&s->taken, 1)) < s->parts;)
        s->work(s->data, s->count * p / s->parts, s->count * (p + 1) / s->parts);
}

void parallel_for(int64_t count, int threads, RangeTask work, void *data) {
    Shares shares = {count, (int64_t)PARTS * threads, 0, work, data};
    if (!run_parallel || threads < 2 || count < 2) work(data, 0, count);
    else run_parallel(take_parts, &shares, threads, 0);
}
