/* See blocks.h. */

#include "blocks.h"

#include "allocation.h"

#include <stdatomic.h>

#define SMALLEST (64 << 10) /* bytes; smaller blocks come from the heap */
#define MOST_BLOCKS 64
#define MOST_BYTES (128 << 20)

typedef struct Block {
    void *bytes;
    int64_t size;
} Block;

static Block kept[MOST_BLOCKS];
static int n_kept;
static int64_t bytes_kept;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/* Nobody waits: while another thread looks, memory comes from the system. So a child of `fork` never waits for a thread that
   it does not have. */
static int lock(void) { return !atomic_flag_test_and_set_explicit(&busy, memory_order_acquire); }

static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

/* The smallest block that is kept and large enough, but not by more than half; NULL if there is none. */
static void *best_fit(int64_t size) {
    int best = -1;
    for (int i = 0; i < n_kept; i++) {
        const int64_t found = kept[i].size;
        if (found >= size && found <= size + size / 2 && (best < 0 || found < kept[best].size)) best = i;
    }
    if (best < 0) return NULL;
    void *bytes = kept[best].bytes;
    bytes_kept -= kept[best].size;
    kept[best] = kept[--n_kept];
    return bytes;
}

void *take_block(int64_t size) {
    void *bytes = NULL;
    if (size >= SMALLEST && lock()) {
        bytes = best_fit(size);
        unlock();
    }
    return bytes ? bytes : aligned_alloc(64, (size + 127) / 64 * 64);
}

void give_block(void *block, int64_t size) {
    if (block && size >= SMALLEST && lock()) {
        const int keep = n_kept < MOST_BLOCKS && bytes_kept + size <= MOST_BYTES;
        if (keep) {
            kept[n_kept++] = (Block){block, size};
            bytes_kept += size;
        }
        unlock();
        if (keep) return;
    }
    free(block);
}

void headwise_free_blocks(void) {
    if (!lock()) return;
    for (int i = 0; i < n_kept; i++) free(kept[i].bytes);
    n_kept = 0;
    bytes_kept = 0;
    unlock();
}
