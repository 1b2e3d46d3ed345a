/* See slots.h. */

#include "slots.h"

#include "attention.h"

#include <string.h>

/* The first position that is visible from `position`. */
static int first_visible(const Attention *a, int position) {
    return a->window ? MAX(0, position - a->window + 1) : 0;
}

/* The products of a query of width `d` with eight keys. */
INLINE f8 dot8(const float *q, const float *const k[8], int d) {
    f8 total[8];
    UNROLL(8)
    for (int j = 0; j < 8; j++) total[j] = set8(0);
    for (int i = 0; i < d; i += 8) {
        const f8 x = load8(q + i);
        UNROLL(8)
        for (int j = 0; j < 8; j++) total[j] = fma8(x, load8(k[j] + i), total[j]);
    }
    return reduce_add8x8(total);
}

/* --- Steps --- */

/* The values of a row at a position. */
static const float *row_at(const float *rows, const Slots *slots, int position, int width) {
    const int ahead = position - slots->n_prompt;
    return rows + (ahead < 0 ? slots->prompt + position : slots->path[ahead]) * width;
}

/* Weighted sums of 8 N components of the values from position `begin` on. */
INLINE void sum_values(const int N, const float *weights, const float *values, const Slots *slots, int begin, int end, int width,
                       float *out) {
    f8 total[8];
    UNROLL(8)
    for (int i = 0; i < N; i++) total[i] = set8(0);
    for (int t = begin; t < end; t++) {
        const float *v = row_at(values, slots, t, width);
        const f8 weight = set8(weights[t - begin]);
        UNROLL(8)
        for (int i = 0; i < N; i++) total[i] = fma8(weight, load8(v + 8 * i), total[i]);
    }
    UNROLL(8)
    for (int i = 0; i < N; i++) store8(out + 8 * i, total[i]);
}

void attend_to_path(const Attention *a, const float *q, const float *keys, const float *values, const Slots *slots, int position,
                    float *raw, int recorded, float *scores, float *out) {
    const int begin = first_visible(a, position), end = position + 1, wide = round_up(end - begin);
    const int group = a->heads / a->kv_heads, k_width = a->kv_heads * a->d_k, v_width = a->kv_heads * a->d_v;
    for (int t = begin; t < end; t += 8)
        for (int g = 0; g < a->kv_heads; g++) {
            const float *k[8];
            for (int j = 0; j < 8; j++) k[j] = row_at(keys, slots, MIN(t + j, position), k_width) + g * a->d_k;
            for (int h = g * group; h < (g + 1) * group; h++)
                store8(scores + (int64_t)h * wide + t - begin, dot8(q + h * a->d_k, k, a->d_k));
        }
    if (raw) memcpy(raw, scores + (int64_t)recorded * wide, 4 * (size_t)(end - begin));
    for (int h = 0; h < a->heads; h++) {
        float *weights = scores + (int64_t)h * wide, *to = out + h * a->d_v;
        const float *v = values + h / group * a->d_v;
        softmax(weights, end - begin, wide);
        int i = 0;
        for (; i + 64 <= a->d_v; i += 64) sum_values(8, weights, v + i, slots, begin, end, v_width, to + i);
        for (; i + 32 <= a->d_v; i += 32) sum_values(4, weights, v + i, slots, begin, end, v_width, to + i);
        for (; i < a->d_v; i += 8) sum_values(1, weights, v + i, slots, begin, end, v_width, to + i);
    }
}

/* --- Prompts --- */

void attend_to_prompt(const Attention *a, int count, const float *q, int64_t q_stride, const float *keys, const float *values,
                      int position, float *scores, float *out) {
    const int begin = first_visible(a, position), end = position + count, depth = end - begin;
    const int64_t wide = round_up(depth) + 8; /* the weights of a row may start at any number */
    const int group = a->heads / a->kv_heads, k_width = a->kv_heads * a->d_k, v_width = a->kv_heads * a->d_v;
    for (int g = 0; g < a->kv_heads; g++) {
        for (int t = 0; t < depth; t += 8) {
            const float *k[8];
            for (int j = 0; j < 8; j++) k[j] = keys + (int64_t)(begin + MIN(t + j, depth - 1)) * k_width + g * a->d_k;
            for (int h = 0; h < group; h++)
                for (int r = 0; r < count; r++)
                    store8(scores + (h * count + r) * wide + t, dot8(q + r * q_stride + (g * group + h) * a->d_k, k, a->d_k));
        }
        for (int h = 0; h < group; h++) {
            float *weights = scores + h * count * wide;
            for (int r = 0; r < count; r++) {
                const int first = first_visible(a, position + r), hidden = first - begin, length = position + r + 1 - first;
                float *row = weights + r * wide;
                softmax(row + hidden, length, round_up(length));
                memset(row, 0, 4 * (size_t)hidden);
                for (int t = hidden + length; t < depth; t++) row[t] = 0;
            }
            multiply(count, weights, wide, values + (int64_t)begin * v_width + g * a->d_v, v_width, depth,
                     out + (g * group + h) * a->d_v, a->heads * a->d_v, a->d_v);
        }
    }
}
