/* Aligned memory. Windows frees aligned memory with another function, so all memory is aligned there. */

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
