/* See attention.h. */

#include "attention.h"

#include "parallel.h"

#include <math.h>
#include <string.h>


/* --- Softmax --- */

float exponentials(float *x, int n, float most) {
    const f8 subtracted = set8(most);
    f8 total[4] = {set8(0), set8(0), set8(0), set8(0)};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            f8 e = exponential(sub8(load8(x + i + 8 * j), subtracted));
            total[j] = add8(total[j], e);
            store8(x + i + 8 * j, e);
        }
    }
    for (; i + 8 <= n; i += 8) {
        f8 e = exponential(sub8(load8(x + i), subtracted));
        total[0] = add8(total[0], e);
        store8(x + i, e);
    }
    if (i < n) {
        float tail[8];
        for (int j = 0; j < 8; j++) tail[j] = i + j < n ? x[i + j] : -INFINITY;
        f8 e = exponential(sub8(load8(tail), subtracted));
        total[1] = add8(total[1], e);
        store8(tail, e);
        memcpy(x + i, tail, 4 * (size_t)(n - i));
    }
    return reduce_add8(add8(add8(total[0], total[1]), add8(total[2], total[3])));
}

float maximum(const float *x, int n) {
    f8 most = set8(-INFINITY);
    int i = 0;
    for (; i + 8 <= n; i += 8) most = max8(load8(x + i), most); /* in this order NaN is ignored */
    float parts[8], largest = -INFINITY;
    store8(parts, most);
    for (int j = 0; j < 8; j++) largest = MAX(parts[j], largest);
    for (; i < n; i++) largest = MAX(x[i], largest);
    return largest;
}

void softmax(float *x, int n, int width) {
    const float most = maximum(x, n);
    for (int i = n; i < width; i++) x[i] = -INFINITY;
    const f8 factor = set8(1 / exponentials(x, width, most));
    for (int i = 0; i < n; i += 8) store8(x + i, mul8(load8(x + i), factor));
}

/* --- Products --- */

INLINE void multiply_rows(const int ROWS, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int depth,
                          float *c, int64_t c_stride, int width) {
    for (int n = 0; n < width; n += 16) {
        const int both = n + 16 <= width;
        f8 total[4][2];
        UNROLL(4)
        for (int r = 0; r < ROWS; r++) total[r][0] = total[r][1] = set8(0);
        for (int k = 0; k < depth; k++) {
            const float *row = b + k * b_stride + n;
            f8 b0 = load8(row), b1 = both ? load8(row + 8) : set8(0);
            UNROLL(4)
            for (int r = 0; r < ROWS; r++) {
                f8 factor = set8(a[r * a_stride + k]);
                total[r][0] = fma8(factor, b0, total[r][0]);
                total[r][1] = fma8(factor, b1, total[r][1]);
            }
        }
        UNROLL(4)
        for (int r = 0; r < ROWS; r++) {
            store8(c + r * c_stride + n, total[r][0]);
            if (both) store8(c + r * c_stride + n + 8, total[r][1]);
        }
    }
}

void multiply(int rows, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int depth, float *c,
              int64_t c_stride, int width) {
    int r = 0;
#define ROWS(R) multiply_rows(R, a + r * a_stride, a_stride, b, b_stride, depth, c + r * c_stride, c_stride, width)
    for (; r + 4 <= rows; r += 4) ROWS(4);
    if (r + 2 <= rows) { ROWS(2); r += 2; }
    if (r < rows) ROWS(1);
#undef ROWS
}

void transpose(const float *rows, int64_t stride, int length, int width, float *to) {
    const int side = round_up(length);
    for (int t = 0; t < length; t += 8) {
        for (int i = 0; i < width; i += 8) {
            f8 block[8];
            for (int j = 0; j < 8; j++)
                block[j] = t + j < length ? load8(rows + (t + j) * stride + i) : set8(0);
            transpose8(block, to + (int64_t)i * side + t, side);
        }
    }
}

/* --- Attention for decoding --- */

void attend(int queries, const float *q, int64_t q_stride, int d_k, const float *keys, const float *values,
            int64_t v_stride, int d_v, int length, float *scores, float *out, int64_t out_stride) {
    const int width = round_up(length);
    for (int first = 0; first < queries; first += 4) {
        const int count = queries - first < 4 ? queries - first : 4;
        multiply(count, q + first * q_stride, q_stride, keys, width, d_k, scores, width, width);
        for (int i = 0; i < count; i++) softmax(scores + i * width, length, width);
        multiply(count, scores, width, values, v_stride, length, out + first * out_stride, out_stride, d_v);
    }
}

/* --- Attention for training --- */

static int longest(const Packing *p) {
    int most = 1;
    for (int i = 0; i < p->sentences; i++)
        most = MAX(most, MAX(p->queries[i + 1] - p->queries[i], p->keys[i + 1] - p->keys[i]));
    return most;
}

static void scale_row(float *x, int n, float factor) {
    const f8 by = set8(factor);
    for (int i = 0; i < n; i += 8) store8(x + i, mul8(load8(x + i), by));
}

/* A pass over some sentences of a batch; `weights` starts at the first one. */
typedef struct Pass {
    const Packing *packing;
    const Inputs *in, *gradients;
    const void *out_gradient;
    float *weights;
    void *out;
    int failed;
} Pass;

/* The rows of one head and sentence: `width` numbers, `stride` apart. */
typedef struct Head {
    void *x;
    int64_t first, stride; /* offset in x */
    int rows, width;
} Head;

typedef struct Floats {
    float *x;
    int64_t stride;
} Floats;

/* The numbers in place, or converted to float32 in `room`. */
static Floats as_floats(const Packing *p, Head head, float *room) {
    if (!p->half) return (Floats){(float *)head.x + head.first, head.stride};
    for (int r = 0; r < head.rows; r++)
        convert((uint16_t *)head.x + head.first + r * head.stride, 1, head.width, room + r * head.width, 0);
    return (Floats){room, head.width};
}

/* Where to write: in place, or to `room`, from where `write_back` converts. */
static Floats destination(const Packing *p, Head head, float *room) {
    return p->half ? (Floats){room, head.width} : (Floats){(float *)head.x + head.first, head.stride};
}

static void write_back(const Packing *p, Head head, const float *room) {
    for (int r = 0; p->half && r < head.rows; r++)
        convert(room + r * head.width, 0, head.width, (uint16_t *)head.x + head.first + r * head.stride, 1);
}

static Head queries_of(const Packing *p, const Inputs *in, int head, int64_t first, int rows) {
    return (Head){in->q, first * in->q_stride + head * p->d_k, in->q_stride, rows, p->d_k};
}

static Head keys_of(const Packing *p, const Inputs *in, int head, int64_t first, int rows) {
    return (Head){in->k, first * in->k_stride + head * p->d_k, in->k_stride, rows, p->d_k};
}

static Head values_of(const Packing *p, const Inputs *in, int head, int64_t first, int rows) {
    return (Head){in->v, first * in->v_stride + head * p->d_v, in->v_stride, rows, p->d_v};
}

/* Size of `room`. */
static size_t scratch_size(const Packing *p, int widest) {
    return p->half ? (size_t)widest * MAX(p->d_k, p->d_v) : 0;
}

/* Offset of the weights of a sentence. */
static float *weights_of(const Pass *pass, int64_t sentence) {
    const Packing *p = pass->packing;
    int64_t before = 0;
    for (int64_t s = 0; s < sentence; s++)
        before += (int64_t)(p->queries[s + 1] - p->queries[s]) * round_up(p->keys[s + 1] - p->keys[s]);
    return pass->weights + before * p->heads;
}

static void attend_sentences(void *data, int64_t begin, int64_t end) {
    Pass *pass = data;
    const Packing *p = pass->packing;
    const Inputs *in = pass->in;
    const int widest = round_up(longest(p)), out_width = p->heads * p->d_v;
    const size_t room = scratch_size(p, widest), side = (size_t)p->d_k * widest;
    float *weights = weights_of(pass, begin), *keys = aligned_alloc(64, (4 * (side + 2 * room) + 127) / 64 * 64);
    if (!keys) {
        pass->failed = -1;
        return;
    }
    float *first = keys + side, *second = first + room;
    const float scale = 1 / sqrtf(p->d_k);
    for (int64_t s = begin; s < end; s++) {
        const int64_t q0 = p->queries[s], k0 = p->keys[s];
        const int rows = p->queries[s + 1] - q0, length = p->keys[s + 1] - k0, width = round_up(length);
        for (int h = 0; h < p->heads; h++, weights += (int64_t)rows * width) {
            const Head of_out = {pass->out, q0 * out_width + h * p->d_v, out_width, rows, p->d_v};
            const Floats k = as_floats(p, keys_of(p, in, h, k0, length), first);
            const Floats q = as_floats(p, queries_of(p, in, h, q0, rows), second);
            transpose(k.x, k.stride, length, p->d_k, keys);
            multiply(rows, q.x, q.stride, keys, width, p->d_k, weights, width, width);
            for (int r = 0; r < rows; r++) {
                scale_row(weights + (int64_t)r * width, width, scale);
                softmax(weights + (int64_t)r * width, p->causal ? r + 1 : length, width);
            }
            const Floats v = as_floats(p, values_of(p, in, h, k0, length), first), out = destination(p, of_out, second);
            multiply(rows, weights, width, v.x, v.stride, length, out.x, out.stride, p->d_v);
            write_back(p, of_out, out.x);
        }
    }
    free(keys);
}

int headwise_attend(const Packing *packing, const Inputs *inputs, float *weights, void *out, int threads) {
    Pass pass = {packing, inputs, NULL, NULL, weights, out, 0};
    parallel_for(packing->sentences, threads, attend_sentences, &pass);
    return pass.failed;
}

/* Backward pass of softmax, in place: from the gradient of weights to that of scores, times `scale`. */
static void scores_gradient(const float *weights, float *gradient, int width, float scale) {
    f8 total = set8(0);
    for (int i = 0; i < width; i += 8)
        total = fma8(load8(weights + i), load8(gradient + i), total);
    const f8 mean = set8(reduce_add8(total)), factor = set8(scale);
    for (int i = 0; i < width; i += 8) {
        f8 off = sub8(load8(gradient + i), mean);
        off = mul8(mul8(off, load8(weights + i)), factor);
        store8(gradient + i, off);
    }
}

/* With P the weights and G the gradient of P V: dV = P^T G, dP = G V^T,
   dS = P (dP - rowsum(P dP)), dQ = dS K and dK = dS^T Q. */
static void attend_sentences_backward(void *data, int64_t begin, int64_t end) {
    Pass *pass = data;
    const Packing *p = pass->packing;
    const Inputs *in = pass->in, *to = pass->gradients;
    const int widest = round_up(longest(p)), out_width = p->heads * p->d_v;
    const float scale = 1 / sqrtf(p->d_k), *weights = weights_of(pass, begin);
    const size_t square = (size_t)widest * widest, side = (size_t)p->d_v * widest, room = scratch_size(p, widest);
    float *values = aligned_alloc(64, (4 * (side + 2 * square + 3 * room) + 127) / 64 * 64);
    if (!values) {
        pass->failed = -1;
        return;
    }
    float *s = values + side, *turned = s + square, *first = turned + square, *second = first + room, *third = second + room;
    for (int64_t i = begin; i < end; i++) {
        const int64_t q0 = p->queries[i], k0 = p->keys[i];
        const int rows = p->queries[i + 1] - q0, length = p->keys[i + 1] - k0, width = round_up(length);
        const int height = round_up(rows);
        for (int h = 0; h < p->heads; h++, weights += (int64_t)rows * width) {
            const Head of_g = {(void *)pass->out_gradient, q0 * out_width + h * p->d_v, out_width, rows, p->d_v};
            const Head of_gq = queries_of(p, to, h, q0, rows), of_gk = keys_of(p, to, h, k0, length);
            const Head of_gv = values_of(p, to, h, k0, length);
            const Floats g = as_floats(p, of_g, first), gv = destination(p, of_gv, second);
            transpose(weights, width, rows, width, turned);
            multiply(length, turned, height, g.x, g.stride, rows, gv.x, gv.stride, p->d_v);
            write_back(p, of_gv, gv.x);
            const Floats v = as_floats(p, values_of(p, in, h, k0, length), second);
            transpose(v.x, v.stride, length, p->d_v, values);
            multiply(rows, g.x, g.stride, values, width, p->d_v, s, width, width);
            for (int r = 0; r < rows; r++)
                scores_gradient(weights + (int64_t)r * width, s + (int64_t)r * width, width, scale);
            const Floats k = as_floats(p, keys_of(p, in, h, k0, length), second), gq = destination(p, of_gq, third);
            multiply(rows, s, width, k.x, k.stride, length, gq.x, gq.stride, p->d_k);
            write_back(p, of_gq, gq.x);
            transpose(s, width, rows, width, turned);
            const Floats q = as_floats(p, queries_of(p, in, h, q0, rows), second), gk = destination(p, of_gk, third);
            multiply(length, turned, height, q.x, q.stride, rows, gk.x, gk.stride, p->d_k);
            write_back(p, of_gk, gk.x);
        }
    }
    free(values);
}

int headwise_attend_backward(const Packing *packing, const Inputs *inputs, const float *weights,
                             const void *out_gradient, const Inputs *gradients, int threads) {
    Pass pass = {packing, inputs, gradients, out_gradient, (float *)weights, NULL, 0};
    parallel_for(packing->sentences, threads, attend_sentences_backward, &pass);
    return pass.failed;
}
