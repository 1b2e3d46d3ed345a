/* See scarce.h. */

#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN long allocations_left = -1; /* below 0: as many as wanted */
SHOWN long blocks_held;

static int refused(void) { return allocations_left >= 0 && allocations_left-- == 0; }

static void *counted(void *bytes) {
    blocks_held += bytes != NULL;
    return bytes;
}

void *scarce_malloc(size_t n) { return refused() ? NULL : counted(malloc(n)); }
void *scarce_calloc(size_t n, size_t size) { return refused() ? NULL : counted(calloc(n, size)); }
void *scarce_aligned_alloc(size_t unit, size_t n) { return refused() ? NULL : counted(aligned_alloc(unit, n)); }

void scarce_free(void *bytes) {
    blocks_held -= bytes != NULL;
    free(bytes);
}
