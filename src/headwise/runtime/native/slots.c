/* See slots.h. */

#include "slots.h"

#include "attention.h"

#include <string.h>

/* The first position that is visible from `position`. */
static int first_visible(const Attention *a, int position) {
    return a->window ? MAX(0, position - a->window + 1) : 0;
}

#ifdef REGISTER_IS_PANEL
#define KEYS 8 /* whose sums are in registers */
#else
#define KEYS 4
#endif

INLINE f8 dot_numbers(const int HALF, const float *q, const void *const k[8], int d) {
    f8 sums[8];
    UNROLL(2)
    for (int first = 0; first < 8; first += KEYS) {
        f16 total[KEYS];
        UNROLL(8)
        for (int j = 0; j < KEYS; j++) total[j] = set16(0);
        int i = 0;
        for (; i + 16 <= d; i += 16)
            UNROLL(8)
            for (int j = 0; j < KEYS; j++) total[j] = fma16(load16(q + i), read16(k[first + j], i, HALF), total[j]);
        UNROLL(8)
        for (int j = 0; j < KEYS; j++) {
            f8 *sum = &sums[first + j];
            *sum = add_halves16(total[j]);
            if (i < d) *sum = fma8(load8(q + i), read8(k[first + j], i, HALF), *sum);
        }
    }
    return reduce_add8x8(sums);
}

/* The products of a query of width `d` with eight keys. */
static f8 dot8(const float *q, const void *const k[8], int half, int d) {
    return half ? dot_numbers(1, q, k, d) : dot_numbers(0, q, k, d);
}

INLINE void add_numbers(const int HALF, const float *weights, int n, const void *const v[8], int d, float *out) {
    int i = 0;
    for (; i + 64 <= d; i += 64) {
        f16 total[4];
        UNROLL(4)
        for (int p = 0; p < 4; p++) total[p] = load16(out + i + 16 * p);
        for (int t = 0; t < n; t++)
            UNROLL(4)
            for (int p = 0; p < 4; p++) total[p] = fma16(set16(weights[t]), read16(v[t], i + 16 * p, HALF), total[p]);
        UNROLL(4)
        for (int p = 0; p < 4; p++) store16(out + i + 16 * p, total[p]);
    }
    for (; i < d; i += 8) {
        f8 total = load8(out + i);
        for (int t = 0; t < n; t++) total = fma8(set8(weights[t]), read8(v[t], i, HALF), total);
        store8(out + i, total);
    }
}

/* Adds `n` weighted values of width `d`. */
static void add_values(const float *weights, int n, const void *const v[8], int half, int d, float *out) {
    if (half) add_numbers(1, weights, n, v, d, out);
    else add_numbers(0, weights, n, v, d, out);
}

/* --- Steps --- */

/* The rows of keys or values at eight positions of a path from `t` on; the last one is repeated. */
static void rows_at(Cached rows, const Slots *slots, int path, int t, int last, int width, const void *to[8]) {
    for (int j = 0; j < 8; j++) {
        const int position = MIN(t + j, last), ahead = position - slots->n_prompt;
        const int64_t slot = ahead < 0 ? slots->prompt + position : slots->path[path * slots->stride + ahead];
        to[j] = cached_from(rows, slot * width).numbers;
    }
}

/* From eight rows of a head to those of the next one. */
static void next_head(const void *rows[8], int half, int width) {
    for (int j = 0; j < 8; j++) rows[j] = cached_from((Cached){rows[j], half}, width).numbers;
}

/* The number of positions up to `end` at which all of these paths have the same slots. */
static int shared_length(const Slots *slots, int paths, int end) {
    int length = end - slots->n_prompt;
    for (int r = 1; r < paths; r++)
        for (int t = 0; t < length; t++)
            if (slots->path[r * slots->stride + t] != slots->path[t]) length = t;
    return slots->n_prompt + length;
}

int score_paths(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, const Slots *slots,
                int position, float *scores) {
    const int begin = first_visible(a, position), end = position + 1, wide = round_up(end - begin);
    const int shared = shared_length(slots, count, end), heads = a->heads, group = heads / a->kv_heads;
    const int64_t side = (int64_t)heads * wide;
    for (int t = begin; t < end; t += 8)
        for (int r = 0, rows; r < count; r += rows) {
            const void *k[8];
            rows_at(keys, slots, r, t, position, a->kv_heads * a->d_k, k);
            rows = MIN(t + 8, end) <= shared ? count : 1;
            for (int h = 0; h < heads; h++) {
                for (int i = r; i < r + rows; i++)
                    store8(scores + i * side + (int64_t)h * wide + t - begin, dot8(q + i * q_stride + h * a->d_k, k, keys.half, a->d_k));
                if ((h + 1) % group == 0) next_head(k, keys.half, a->d_k);
            }
        }
    return shared;
}

void attend_to_paths(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, Cached values,
                     const Slots *slots, int position, float *scores, float *out) {
    const int begin = first_visible(a, position), end = position + 1, wide = round_up(end - begin);
    const int shared = score_paths(a, count, q, q_stride, keys, slots, position, scores);
    const int heads = a->heads, group = heads / a->kv_heads;
    const int64_t side = (int64_t)heads * wide, out_width = heads * a->d_v;
    for (int i = 0; i < count * heads; i++) softmax(scores + (int64_t)i * wide, end - begin, wide);
    memset(out, 0, 4 * (size_t)(count * out_width));
    for (int t = begin; t < end; t += 8)
        for (int r = 0, rows; r < count; r += rows) {
            const void *v[8];
            rows_at(values, slots, r, t, position, a->kv_heads * a->d_v, v);
            rows = MIN(t + 8, end) <= shared ? count : 1;
            for (int h = 0; h < heads; h++) {
                for (int i = r; i < r + rows; i++)
                    add_values(scores + i * side + (int64_t)h * wide + t - begin, MIN(8, end - t), v, values.half,
                               a->d_v, out + i * out_width + h * a->d_v);
                if ((h + 1) % group == 0) next_head(v, values.half, a->d_v);
            }
        }
}

/* --- Prompts --- */

void attend_to_prompt(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, Cached values,
                      int position, float *scores, float *out) {
    const int begin = first_visible(a, position), end = position + count, depth = end - begin;
    const int64_t wide = round_up(depth) + 8; /* the weights of a row may start at any number */
    const int group = a->heads / a->kv_heads, k_width = a->kv_heads * a->d_k, v_width = a->kv_heads * a->d_v;
    for (int g = 0; g < a->kv_heads; g++) {
        for (int t = 0; t < depth; t += 8) {
            const void *k[8];
            for (int j = 0; j < 8; j++)
                k[j] = cached_from(keys, (int64_t)(begin + MIN(t + j, depth - 1)) * k_width + g * a->d_k).numbers;
            for (int h = 0; h < group; h++)
                for (int r = 0; r < count; r++)
                    store8(scores + (h * count + r) * wide + t, dot8(q + r * q_stride + (g * group + h) * a->d_k, k, keys.half, a->d_k));
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
            multiply_cached(count, weights, wide, cached_from(values, (int64_t)begin * v_width + g * a->d_v), v_width, depth,
                     out + (g * group + h) * a->d_v, a->heads * a->d_v, a->d_v);
        }
    }
}
