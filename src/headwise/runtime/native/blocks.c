/* See blocks.h. */

#include "blocks.h"

#include "allocation.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define SMALLEST (64 << 10) /* bytes; smaller blocks come from the heap */
#define MOST_BLOCKS 64
#define MOST_BYTES (128 << 20)
#define HEADER 64 /* bytes in front of a block, with its size */
#define HUGE (2 << 20)  /* bytes of a huge page */

static void *kept[MOST_BLOCKS]; /* the longest kept first */
static int n_kept;
static int64_t bytes_kept;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/* Nobody waits: while another thread looks, memory comes from the system. So a child of `fork` never waits for a thread that
   it does not have. */
static int lock(void) { return !atomic_flag_test_and_set_explicit(&busy, memory_order_acquire); }

static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

int64_t block_size(const void *block) { return *(const int64_t *)((const char *)block - HEADER); }

/* Large blocks ask for huge pages, so that the processor has fewer addresses to look up. */
static char *new_block(int64_t size) {
#ifdef MADV_HUGEPAGE
    if (size >= 2 * HUGE) {
        char *bytes = aligned_alloc(HUGE, size);
        if (bytes) madvise(bytes, size, MADV_HUGEPAGE);
        return bytes;
    }
#endif
    return aligned_alloc(64, size);
}

static void free_block(void *block) { free((char *)block - HEADER); }

static void *remove_kept(int at) {
    void *block = kept[at];
    bytes_kept -= block_size(block);
    memmove(kept + at, kept + at + 1, sizeof(void *) * (size_t)(--n_kept - at));
    return block;
}

/* The smallest block that is kept and large enough. Without one, NULL: blocks that are kept are freed for the new one, so that
   memory which nothing uses does not add to it. */
static void *best_fit(int64_t size) {
    int best = -1;
    for (int i = 0; i < n_kept; i++) {
        const int64_t found = block_size(kept[i]);
        if (found >= size && (best < 0 || found < block_size(kept[best]))) best = i;
    }
    if (best >= 0) return remove_kept(best);
    for (int64_t freed = 0; freed < size && n_kept;) {
        freed += block_size(kept[0]);
        free_block(remove_kept(0));
    }
    return NULL;
}

void *take_block(int64_t size) {
    void *block = NULL;
    if (size >= SMALLEST && lock()) {
        block = best_fit(size);
        unlock();
    }
    if (block) return block;
    size = (size + 127) / 64 * 64;
    char *bytes = new_block(HEADER + size);
    if (!bytes) return NULL;
    *(int64_t *)bytes = size;
    return bytes + HEADER;
}

void give_block(void *block) {
    if (!block) return;
    if (block_size(block) >= SMALLEST && lock()) {
        const int keep = n_kept < MOST_BLOCKS && bytes_kept + block_size(block) <= MOST_BYTES;
        if (keep) {
            kept[n_kept++] = block;
            bytes_kept += block_size(block);
        }
        unlock();
        if (keep) return;
    }
    free_block(block);
}

void headwise_free_blocks(void) {
    if (!lock()) return;
    while (n_kept) free_block(remove_kept(0));
    unlock();
}
