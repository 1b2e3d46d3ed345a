/* Equation 1 and what it is made of, for sentences of any length without padding. Widths of heads are multiples of 8;
   rows of weights have room for `rounded` many keys. */

#ifndef HEADWISE_ATTENTION_H
#define HEADWISE_ATTENTION_H

#include "products.h"

static inline int rounded(int n) { return (n + 7) / 8 * 8; }

/* The largest number of x; what is no number is passed over. -inf where there is none. */
float maximum(const float *x, int n);

/* x becomes exp(x - most) for numbers up to `most`; their sum. 87 below it and further down it is 0. */
float exponentials(float *x, int n, float most);

/* The first `n` of a row of `width` numbers, a multiple of 8; the rest becomes 0. */
void softmax(float *x, int n, int width);

/* c (rows, width) = a (rows, depth) b (depth, width), the width a multiple of 8. An output is one chain of additions,
   whatever else is computed. */
void multiply(int rows, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int depth, float *c,
              int64_t c_stride, int width);

/* Rows (length, width), `stride` apart, side by side: (width, rounded length), what is beyond them 0. */
void transpose(const float *rows, int64_t stride, int length, int width, float *to);

/* One head of one sentence: keys transposed, values below each other; `scores` has room for four rows. */
void attend(int queries, const float *q, int64_t q_stride, int d_k, const float *keys, const float *values,
            int64_t v_stride, int d_v, int length, float *scores, float *out, int64_t out_stride);

/* Sentences of a batch, one below the other: those of the queries begin at rows `queries[i]`, those of the keys at
   `keys[i]`; both have one entry more than there are sentences. */
typedef struct Packing {
    const int32_t *queries, *keys;
    int sentences, causal, heads, d_k, d_v;
    int half; /* inputs, outputs and their gradients are bfloat16; weights and what is computed never */
} Packing;

/* Where to find, or to put, queries, keys and values: (rows, heads * width), each with its own distance of rows. */
typedef struct Inputs {
    void *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
} Inputs;

/* Attention of all heads to (rows, heads * d_v). Keeps the weights, (queries, rounded keys) of each sentence and head
   one after the other. 0, or -1 without memory. */
EXPORT int headwise_attend(const Packing *packing, const Inputs *inputs, float *weights, void *out, int threads);

/* The gradients of the inputs from that of `out`. */
EXPORT int headwise_attend_backward(const Packing *packing, const Inputs *inputs, const float *weights,
                                     const void *out_gradient, const Inputs *gradients, int threads);

#endif
