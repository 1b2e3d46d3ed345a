/* Linear layers for inference: weights packed once, in float32, in bfloat16 or in 8-bit integers.

   Whatever rows stand beside it, what a row yields is the same to the last bit: every output is one chain of
   operations in a fixed order, or a sum of integers. */

#ifndef HEADWISE_PRODUCTS_H
#define HEADWISE_PRODUCTS_H

#include "activations.h"
#include "allocation.h"
#include "simd.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum Numbers { FLOAT32, INT8, BFLOAT16 } Numbers; /* of weights; NUMBERS in network.py */

/* y = x W^T + b. Panels hold PANEL outputs each; missing ones and missing inputs are zero. */
typedef struct Linear {
    int d_in, d_out;
    int depth;       /* d_in, in int8 rounded up to whole groups of inputs */
    int zero;        /* int8: the level of an input of 0 */
    int half;        /* whether `values` are bfloat16: inputs, sums and outputs are float32 all the same */
    int8_t *levels;  /* int8: panels of (depth / 4, PANEL, 4); else NULL */
    int32_t *shifts; /* int8: what `zero` adds to the sum of each output */
    float *scales;   /* int8: of each output */
    void *values;    /* float32 and bfloat16: panels of (depth, PANEL) */
    float *bias;     /* of each output, 0 where the layer has none */
} Linear;

/* Memory that grows with use and is never handed back before the end. */
typedef struct Buffer {
    void *bytes;
    int64_t size;
} Buffer;

/* At least `size` bytes, their content undefined; NULL if there are none left. */
void *room(Buffer *buffer, int64_t size);

/* What a product needs besides its operands. */
typedef struct Scratch {
    Buffer levels;
    const atomic_int *stop; /* whoever waits for the result makes it other than 0 to be told no more; may be NULL */
} Scratch;

static inline int stopped(const Scratch *scratch) {
    return scratch->stop && atomic_load_explicit(scratch->stop, memory_order_relaxed);
}

/* rows (rows, d_in) with `x_stride` numbers from row to row, to y (rows, d_out) likewise, and `kind` of them. 0, or -1
   without memory or when stopped. */
int apply(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride, Activation kind,
          Scratch *scratch);

EXPORT int headwise_version(void);

/* Packing. A layer lies in one piece of memory of that many bytes, the caller's, which holds zeros and begins where a register
   may: from weight (d_out, d_in) and bias (d_out) or NULL, `after_relu` where inputs are never negative; NULL without
   memory to pack with. Without a weight the memory has such a layer already, from another process: its beginning alone is
   written. Or some outputs of another, in this order: each yields what it does there. */
EXPORT int64_t headwise_linear_size(int d_out, int d_in, Numbers numbers);
EXPORT Linear *headwise_linear(void *zeros, const float *weight, const float *bias, int d_out, int d_in, Numbers numbers,
                                int after_relu);
EXPORT Linear *headwise_linear_rows(void *zeros, const Linear *layer, const int32_t *rows, int count);

EXPORT int headwise_apply(const Linear *layer, const float *x, int rows, float *y);
EXPORT void headwise_levels(const Linear *layer, int8_t *levels, float *scales);

/* `n` numbers in bfloat16, the nearest, of two the even one. */
EXPORT void headwise_halve(const float *x, int64_t n, uint16_t *to);

/* The checksum of `n` bytes; see checksum.c. */
EXPORT uint64_t headwise_checksum(const uint8_t *bytes, int64_t n);

#endif
