/* See pool.h. Between two tasks of a search a few microseconds pass, so threads wait for the next task in a loop, and sleep when
   none comes for about 50 microseconds.

   Where other programs use the cores, the system may stop a thread in the middle of a part, and everybody would wait until it
   goes on. After such a stall the next tasks are done alone, twice as many after each further one. */

#include "pool.h"

#define PART_WORK (1 << 17) /* multiplications that are worth the microsecond that sharing them takes */
#define PARTS_PER_THREAD 4  /* to balance the load */
#define MOST_THREADS 64

static _Thread_local int most_threads = 1;
static _Thread_local const atomic_int *shared_threads;

int parts_for(int64_t multiplications) {
    const int threads = shared_threads ? MIN(atomic_load_explicit(shared_threads, memory_order_relaxed), most_threads) : most_threads;
    const int64_t wanted = multiplications / PART_WORK, most = (int64_t)PARTS_PER_THREAD * threads;
    return threads < 2 || wanted < 2 ? 1 : (int)MIN(wanted, most);
}

static void run_alone(int parts, PartTask task, void *data) {
    for (int part = 0; part < parts; part++) task(data, part, parts);
}

#if defined(_WIN32) || defined(__wasm__)

void run_parts(int parts, PartTask task, void *data) { run_alone(parts, task, data); }

void headwise_set_threads(int threads, const atomic_int *shared) { (void)threads, (void)shared; } /* always 1 */

#else

#include <pthread.h>
#include <time.h>

#define SPINS 2048      /* pauses before a thread sleeps */
#define STALL 8192      /* pauses of waiting that show that a thread was stopped */
#define FEWEST_ALONE 256/* tasks done alone after a stall */
#define MOST_ALONE (1 << 16)

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() (void)0
#endif

/* `claims` has the number of the task in its upper half, then its parts, then how many of them are claimed: a thread that is
   late cannot claim a part of another task than the one it has seen. While a part is claimed and not done, the task stays. */
static struct {
    PartTask task;
    void *data;
    atomic_uint_fast64_t claims;
    atomic_int done, sleeping, in_use;
    int threads; /* started */
    int alone, next_alone, good; /* tasks to do alone, also after the next stall; tasks without one */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} pool = {.next_alone = FEWEST_ALONE, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

#define NEXT(claims) ((int)((claims) & 0xffff))
#define PARTS(claims) ((int)((claims) >> 16 & 0xffff))

/* Does parts until all are claimed. */
static void help(void) {
    uint_fast64_t claims = atomic_load(&pool.claims);
    while (NEXT(claims) < PARTS(claims)) {
        if (!atomic_compare_exchange_weak(&pool.claims, &claims, claims + 1)) continue;
        pool.task(pool.data, NEXT(claims), PARTS(claims));
        atomic_fetch_add(&pool.done, 1);
        claims = atomic_load(&pool.claims);
    }
}

static int is_waiting(void) {
    const uint_fast64_t claims = atomic_load(&pool.claims);
    return NEXT(claims) < PARTS(claims);
}

static void *worker(void *nothing) {
    (void)nothing;
    for (;;) {
        for (int i = 0; i < SPINS && !is_waiting(); i++) PAUSE();
        if (!is_waiting()) {
            pthread_mutex_lock(&pool.mutex);
            atomic_fetch_add(&pool.sleeping, 1);
            while (!is_waiting()) pthread_cond_wait(&pool.wake, &pool.mutex);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.mutex);
        }
        help();
    }
    return NULL;
}

/* Waits for the parts that others have begun. */
static void finish(int parts) {
    int waited = 0;
    for (; atomic_load(&pool.done) < parts; waited++) {
        if (waited < STALL) PAUSE();
        else nanosleep(&(struct timespec){0, 20000}, NULL); /* 20 microseconds, so that the thread may run on this core */
    }
    if (waited >= STALL) {
        pool.alone = pool.next_alone;
        pool.good = 0;
        pool.next_alone = MIN(2 * pool.next_alone, MOST_ALONE);
    } else if (++pool.good >= pool.next_alone) {
        pool.next_alone = MAX(pool.next_alone / 2, FEWEST_ALONE);
        pool.good = 0;
    }
}

void run_parts(int parts, PartTask task, void *data) {
    if (parts < 2 || atomic_exchange(&pool.in_use, 1)) {
        run_alone(parts, task, data);
        return;
    }
    if (pool.alone) {
        pool.alone--;
        atomic_store(&pool.in_use, 0);
        run_alone(parts, task, data);
        return;
    }
    pool.task = task;
    pool.data = data;
    atomic_store(&pool.done, 0);
    atomic_store(&pool.claims, ((atomic_load(&pool.claims) >> 32) + 1) << 32 | (uint_fast64_t)parts << 16);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
    help();
    finish(parts);
    atomic_store(&pool.in_use, 0);
}

/* A child of `fork` has none of the threads, and may be born in the middle of a task of its parent. */
static void forget(void) {
    pool.threads = 0;
    atomic_store(&pool.claims, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.in_use, 0);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

void headwise_set_threads(int threads, const atomic_int *shared) {
    most_threads = MAX(1, MIN(threads, MOST_THREADS));
    shared_threads = shared;
    if (most_threads - 1 <= pool.threads) return;
    static atomic_int prepared;
    if (!atomic_exchange(&prepared, 1)) pthread_atfork(NULL, NULL, forget);
    pthread_mutex_lock(&pool.mutex);
    for (pthread_t thread; pool.threads < most_threads - 1; pool.threads++) {
        if (pthread_create(&thread, NULL, worker, NULL)) break;
        pthread_detach(thread);
    }
    pthread_mutex_unlock(&pool.mutex);
}

#endif
