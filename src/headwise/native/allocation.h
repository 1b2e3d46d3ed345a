/* Memory for whole registers. Windows takes aligned memory back by another name than the rest: there all of it is aligned. */

#ifndef HEADWISE_ALLOCATION_H
#define HEADWISE_ALLOCATION_H

#include <stdlib.h>

#ifdef _WIN32
#include <malloc.h>
#include <string.h>

static inline void *zeroed(size_t count, size_t size) {
    void *bytes = _aligned_malloc(count * size, 64);
    return bytes ? memset(bytes, 0, count * size) : NULL;
}

#define aligned_alloc(unit, size) _aligned_malloc(size, unit)
#define malloc(size) _aligned_malloc(size, 64)
#define calloc(count, size) zeroed(count, size)
#define free(bytes) _aligned_free(bytes)
#endif

#endif
