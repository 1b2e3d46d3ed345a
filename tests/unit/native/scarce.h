/* Before the sources of the library (-include): its allocations, which can be made to fail and are counted. */

#include <stdlib.h>

void *scarce_malloc(size_t);
void *scarce_calloc(size_t, size_t);
void *scarce_aligned_alloc(size_t, size_t);
void scarce_free(void *);

#define malloc scarce_malloc
#define calloc scarce_calloc
#define aligned_alloc scarce_aligned_alloc
#define free scarce_free
