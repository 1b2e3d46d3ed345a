/* Attention (equation 1) for sentences of any length without padding. Head widths are multiples of 8; rows of weights have
   room for `round_up` keys. */

#ifndef HEADWISE_ATTENTION_H
#define HEADWISE_ATTENTION_H

#include "products.h"

/* Numbers in float32, or in bfloat16 if `half`, such as keys or values in a cache. */
typedef struct Cached {
    const void *numbers;
    int half;
} Cached;

/* From number i on. */
INLINE Cached cached_from(Cached x, int64_t i) { return (Cached){(const char *)x.numbers + i * (x.half ? 2 : 4), x.half}; }

/* The maximum of x, ignoring NaN; -inf if x is empty. */
float maximum(const float *x, int n);

/* Replaces x by exp(x - most), where `most` is the maximum, and returns the sum; 0 for x <= most - 87. */
float exponentials(float *x, int n, float most);

/* The same sum alone. */
float exponential_sum(const float *x, int n, float most);

/* Softmax of the first `n` numbers of a row of `width`, a multiple of 8; the rest becomes 0. */
void softmax(float *x, int n, int width);

/* c (rows, width) = a (rows, depth) b (depth, width), the width a multiple of 8. Every output is one chain of
   additions, independent of the other rows. */
void multiply(int rows, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int depth, float *c,
              int64_t c_stride, int width);

/* The same with b from a cache. */
void multiply_cached(int rows, const float *a, int64_t a_stride, Cached b, int64_t b_stride, int depth, float *c,
                     int64_t c_stride, int width);

/* Transposes rows (length, width), `stride` apart, to (width, rounded length), padded with 0. */
void transpose(const float *rows, int64_t stride, int length, int width, float *to);

#define SCORE_ROWS 8

/* Some heads of one sentence: queries and values d_k and d_v apart, keys transposed, one head after the other; `scores` has
   memory for SCORE_ROWS rows of each. */
void attend(int heads, int queries, const float *q, int64_t q_stride, int d_k, Cached keys, Cached values,
            int64_t v_stride, int d_v, int length, float *scores, float *out, int64_t out_stride);

/* A packed batch: the queries of sentence i start at row `queries[i]`, its keys at row `keys[i]`; both arrays have one more
   entry for the end. */
typedef struct Packing {
    const int32_t *queries, *keys;
    int sentences, causal, heads, d_k, d_v;
    int half; /* inputs, outputs and their gradients are bfloat16; weights and arithmetic are float32 */
} Packing;

/* Queries, keys and values (rows, heads * width), or their gradients, each with its own row stride. */
typedef struct Inputs {
    void *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
} Inputs;

/* Attention of all heads to (rows, heads * d_v). Stores the weights, (queries, rounded keys) for each sentence and
   head. Returns 0 or OUT_OF_MEMORY. */
EXPORT int headwise_attend(const Packing *packing, const Inputs *inputs, float *weights, void *out, int threads);

/* The gradients of the inputs from the gradient of `out`. */
EXPORT int headwise_attend_backward(const Packing *packing, const Inputs *inputs, const float *weights,
                                     const void *out_gradient, const Inputs *gradients, int threads);

#endif
