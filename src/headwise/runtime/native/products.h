/* Linear layers for inference: weights packed once, in float32, bfloat16 or 8-bit integers.

   The result of a row is bit-identical in any batch: every output is one chain of operations in a fixed order, or a sum
   of integers. */

#ifndef HEADWISE_PRODUCTS_H
#define HEADWISE_PRODUCTS_H

#include "activations.h"
#include "allocation.h"
#include "blocks.h"
#include "simd.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum Numbers { FLOAT32, INT8, BFLOAT16, INT4 } Numbers; /* of weights; in the order of NUMBERS in linear.py */

/* y = x W^T + b. Panels hold PANEL outputs each, padded with zeros. */
typedef struct Linear {
    int d_in, d_out;
    int depth;       /* d_in; of integers rounded up to whole groups */
    int zero_point;  /* of integers: quantised value of an input of 0 */
    int in_blocks;   /* of integers: whether each INPUT_BLOCK inputs have a scale of their own; else it is that of the row */
    Numbers numbers; /* of the weights; inputs, biases and outputs are float32 */
    int8_t *quantised;     /* int8: panels of (depth / 4, PANEL, 4); else NULL */
    int32_t *compensation; /* int8: contribution of `zero_point` to each output */
    float *scales;   /* int8: of each output */
    void *values;    /* float32 and bfloat16: panels of (depth, PANEL); int4: see int4.h */
    float *bias;     /* of each output; 0 if the layer has none */
} Linear;

/* Memory that grows on demand and is freed only at the end. */
typedef struct Buffer {
    void *bytes;
    int64_t size;
} Buffer;

/* At least `size` bytes of undefined content; NULL if out of memory. */
void *reserve(Buffer *buffer, int64_t size);
void release(Buffer *buffer);

/* The context of a product. */
typedef struct Scratch {
    Buffer quantised; /* inputs in int8 */
    const atomic_int *stop; /* set to non-zero to cancel; may be NULL */
} Scratch;

static inline int is_cancelled(const Scratch *scratch) {
    return scratch->stop && atomic_load_explicit(scratch->stop, memory_order_relaxed);
}

/* rows (rows, d_in) with `x_stride` numbers from row to row, to y (rows, d_out) likewise, and `kind` of them. Returns 0,
   OUT_OF_MEMORY or CANCELLED. */
int linear_forward(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride, Activation kind,
          Scratch *scratch);

EXPORT int headwise_version(void);

/* Packing. `headwise_linear_size` is the number of bytes of a layer. The caller provides the memory: zeros, aligned to a
   register. `headwise_linear` packs weight (d_out, d_in) and bias (d_out) or NULL; `after_relu` means that inputs are never
   negative, `in_blocks` that they have a scale for each block, as they always have with int4. It returns NULL if out of memory. If weight is NULL, another process has already packed the layer there, and only
   its header is written. `headwise_linear_rows` copies some outputs of a layer. */
EXPORT int64_t headwise_linear_size(int d_out, int d_in, Numbers numbers);
EXPORT Linear *headwise_linear(void *zeros, const float *weight, const float *bias, int d_out, int d_in, Numbers numbers,
                                int after_relu, int in_blocks);
EXPORT Linear *headwise_linear_rows(void *zeros, const Linear *layer, const int32_t *rows, int count);

EXPORT int headwise_linear_forward(const Linear *layer, const float *x, int rows, float *y);
EXPORT void headwise_quantised_weights(const Linear *layer, int8_t *levels, float *scales);

/* Rounds `n` numbers to bfloat16, ties to even. */
EXPORT void headwise_to_bfloat16(const float *x, int64_t n, uint16_t *to);

/* The checksum of `n` bytes; see checksum.c. */
EXPORT uint64_t headwise_checksum(const uint8_t *bytes, int64_t n);

#endif
