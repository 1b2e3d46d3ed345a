/* See attention.h. */

#include "attention.h"

#include "parallel.h"
#include "pool.h"

#include <math.h>
#include <string.h>


/* --- Softmax --- */

/* The sum of exp(x - most); stores the terms in `to` unless it is NULL. */
INLINE float sum_exponentials(const float *x, int n, float most, float *to) {
    const f16 subtracted = set16(most);
    f16 total[2] = {set16(0), set16(0)};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        UNROLL(2)
        for (int j = 0; j < 2; j++) {
            const f16 e = exponential16(sub16(load16(x + i + 16 * j), subtracted));
            total[j] = add16(total[j], e);
            if (to) store16(to + i + 16 * j, e);
        }
    }
    f8 rest = set8(0);
    for (; i < n; i += 8) {
        const int count = MIN(8, n - i);
        float last[8];
        if (count < 8)
            for (int j = 0; j < 8; j++) last[j] = j < count ? x[i + j] : -INFINITY;
        const f8 e = exponential(sub8(load8(count < 8 ? last : x + i), set8(most)));
        rest = add8(rest, e);
        if (to && count == 8) store8(to + i, e);
        if (count == 8) continue;
        store8(last, e);
        if (to) memcpy(to + i, last, 4 * (size_t)count);
    }
    return reduce_add8(add8(add_halves16(add16(total[0], total[1])), rest));
}

float exponentials(float *x, int n, float most) { return sum_exponentials(x, n, most, x); }

float exponential_sum(const float *x, int n, float most) { return sum_exponentials(x, n, most, NULL); }

float maximum(const float *x, int n) {
    f16 most[2] = {set16(-INFINITY), set16(-INFINITY)};
    f8 rest = set8(-INFINITY);
    int i = 0;
    for (; i + 32 <= n; i += 32) /* in this order NaN is ignored */
        for (int j = 0; j < 2; j++) most[j] = max16(load16(x + i + 16 * j), most[j]);
    for (; i + 8 <= n; i += 8) rest = max8(load8(x + i), rest);
    float largest = reduce_max8(max8(rest, max_halves16(max16(most[0], most[1]))));
    for (; i < n; i++) largest = MAX(x[i], largest);
    return largest;
}

/* Eight numbers from index i on; from index n on they are -inf. */
INLINE f8 visible8(const float *x, int i, int n) {
    if (i + 8 <= n) return load8(x + i);
    const i8 shown = FIRST8(n - i);
    return add8(select8(shown, load8(x + i)), select8(~shown, set8(-INFINITY)));
}

/* Each pass loads what the pass before it has stored, in the same registers: other sizes would have to wait for it. */
void softmax(float *x, int n, int width) {
    const int whole = n / 16 * 16;
    f16 most = set16(-INFINITY), total = set16(0);
    f8 rest_most = set8(-INFINITY), rest = set8(0);
    int i = 0;
    for (; i < whole; i += 16) most = max16(load16(x + i), most); /* in this order NaN is ignored */
    for (; i < width; i += 8) rest_most = max8(visible8(x, i, n), rest_most);
    const float largest = reduce_max8(max8(rest_most, max_halves16(most)));
    for (i = 0; i < whole; i += 16) {
        const f16 e = exponential16(sub16(load16(x + i), set16(largest)));
        total = add16(total, e);
        store16(x + i, e);
    }
    for (; i < width; i += 8) {
        const f8 e = exponential(sub8(visible8(x, i, n), set8(largest)));
        rest = add8(rest, e);
        store8(x + i, e);
    }
    const float factor = 1 / reduce_add8(add8(add_halves16(total), rest));
    for (i = 0; i < whole; i += 16) store16(x + i, mul16(load16(x + i), set16(factor)));
    for (; i < width; i += 8) store8(x + i, mul8(load8(x + i), set8(factor)));
}

/* --- Products --- */

/* Matrices of several heads: how far apart heads and rows are. */
typedef struct Matrix {
    const float *x;
    int64_t head, row;
} Matrix;

/* The second factor of a product; `first` is where it starts in x. */
typedef struct Factor {
    Cached x;
    int64_t first, head, row;
} Factor;

typedef struct Result {
    float *x;
    int64_t head, row;
} Result;

#ifdef REGISTER_IS_PANEL
#define SUMS 8 /* panels of sums that are computed at once: enough to hide the latency of additions */
#define TALL 8
#else
#define SUMS 4
#define TALL 4
#endif

/* ROWS rows of HEADS heads by P panels of c; by eight columns if P is 0. */
INLINE void multiply_tile(const int HALF, const int HEADS, const int ROWS, const int P, Matrix a, Factor b, int depth,
                          Result c) {
    f16 total[8][4];
    f8 narrow[8];
    UNROLL(8)
    for (int i = 0; i < HEADS * ROWS; i++) {
        UNROLL(4)
        for (int p = 0; p < P; p++) total[i][p] = set16(0);
        narrow[i] = set8(0);
    }
    for (int k = 0; k < depth; k++) {
        UNROLL(8)
        for (int i = 0; i < HEADS * ROWS; i++) {
            const int h = i / ROWS, r = i % ROWS;
            const float factor = a.x[h * a.head + r * a.row + k];
            const int64_t row = b.first + h * b.head + k * b.row;
            if (!P) narrow[i] = fma8(set8(factor), read8(b.x.numbers, row, HALF), narrow[i]);
            UNROLL(4)
            for (int p = 0; p < P; p++)
                total[i][p] = fma16(set16(factor), read16(b.x.numbers, row + 16 * p, HALF), total[i][p]);
        }
    }
    UNROLL(8)
    for (int i = 0; i < HEADS * ROWS; i++) {
        float *to = c.x + i / ROWS * c.head + i % ROWS * c.row;
        if (!P) store8(to, narrow[i]);
        UNROLL(4)
        for (int p = 0; p < P; p++) store16(to + 16 * p, total[i][p]);
    }
}

INLINE void multiply_rows(const int HALF, const int HEADS, const int ROWS, const int P, Matrix a, Factor b, int depth,
                          Result c, int width) {
    int n = 0;
    for (; P == 4 && n + 64 <= width; n += 64, b.first += 64, c.x += 64) multiply_tile(HALF, HEADS, ROWS, 4, a, b, depth, c);
    for (; P >= 2 && n + 32 <= width; n += 32, b.first += 32, c.x += 32) multiply_tile(HALF, HEADS, ROWS, 2, a, b, depth, c);
    for (; n + 16 <= width; n += 16, b.first += 16, c.x += 16) multiply_tile(HALF, HEADS, ROWS, 1, a, b, depth, c);
    if (n < width) multiply_tile(HALF, HEADS, ROWS, 0, a, b, depth, c);
}

INLINE void multiply_numbers(const int HALF, int heads, int rows, Matrix a, Factor b, int depth, Result c, int width) {
    for (int r = 0, height; r < rows; r += height, a.x += height * a.row, c.x += height * c.row) {
        const int left = rows - r, wide = width >= 32;
        height = left >= TALL && !(wide && SUMS > 4) ? TALL : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        Matrix x = a;
        Factor y = b;
        Result z = c;
#define TILES(HEADS, ROWS, P) \
    for (; h + HEADS <= heads; h += HEADS, x.x += HEADS * x.head, y.first += HEADS * y.head, z.x += HEADS * z.head) \
        multiply_rows(HALF, HEADS, ROWS, P, x, y, depth, z, width);
        int h = 0;
        if (height == TALL) {
            TILES(1, TALL, 1)
        } else if (height == 4) {
            TILES(1, 4, 2)
        } else if (height == 2) {
            if (!wide) TILES(SUMS / 2, 2, 1)
            TILES(1, 2, 2)
        } else {
            if (!wide) TILES(SUMS, 1, 1)
#ifdef REGISTER_IS_PANEL
            TILES(4, 1, 4)
#endif
            TILES(2, 1, 2)
            TILES(1, 1, 2)
        }
#undef TILES
    }
}

/* c = a b for each head, like `multiply`. */
static __attribute__((noinline)) void multiply_heads(int heads, int rows, Matrix a, Factor b, int depth, Result c, int width) {
    if (b.x.half) multiply_numbers(1, heads, rows, a, b, depth, c, width);
    else multiply_numbers(0, heads, rows, a, b, depth, c, width);
}

void multiply_cached(int rows, const float *a, int64_t a_stride, Cached b, int64_t b_stride, int depth, float *c,
                     int64_t c_stride, int width) {
    multiply_heads(1, rows, (Matrix){a, 0, a_stride}, (Factor){b, 0, 0, b_stride}, depth, (Result){c, 0, c_stride}, width);
}

void multiply(int rows, const float *a, int64_t a_stride, const float *b, int64_t b_stride, int depth, float *c,
              int64_t c_stride, int width) {
    multiply_cached(rows, a, a_stride, (Cached){b, 0}, b_stride, depth, c, c_stride, width);
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

typedef struct Attend {
    const float *q;
    Cached keys, values;
    float *scores, *out;
    int64_t q_stride, v_stride, out_stride;
    int heads, queries, d_k, d_v, length;
} Attend;

/* Some of the heads. */
static void attend_heads(void *data, int part, int parts) {
    const Attend *s = data;
    const int first = s->heads * part / parts, heads = s->heads * (part + 1) / parts - first;
    const int width = round_up(s->length), side = SCORE_ROWS * width, d_k = s->d_k, d_v = s->d_v;
    const Factor keys = {s->keys, (int64_t)first * d_k * width, (int64_t)d_k * width, width};
    const Factor values = {s->values, first * d_v, d_v, s->v_stride};
    float *scores = s->scores + (int64_t)first * side;
    for (int row = 0; row < s->queries; row += SCORE_ROWS) {
        const int count = MIN(SCORE_ROWS, s->queries - row);
        const Matrix q = {s->q + first * d_k + row * s->q_stride, d_k, s->q_stride}, weights = {scores, side, width};
        multiply_heads(heads, count, q, keys, d_k, (Result){scores, side, width}, width);
        for (int i = 0; i < heads * count; i++) softmax(scores + i / count * side + i % count * width, s->length, width);
        const Result out = {s->out + first * d_v + row * s->out_stride, d_v, s->out_stride};
        multiply_heads(heads, count, weights, values, s->length, out, d_v);
    }
}

void attend(int heads, int queries, const float *q, int64_t q_stride, int d_k, Cached keys, Cached values,
            int64_t v_stride, int d_v, int length, float *scores, float *out, int64_t out_stride) {
    Attend all = {q, keys, values, scores, out, q_stride, v_stride, out_stride, heads, queries, d_k, d_v, length};
    const int parts = parts_for((int64_t)heads * queries * length * (d_k + d_v));
    run_parts(MIN(parts, heads), attend_heads, &all);
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
        pass->failed = OUT_OF_MEMORY;
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
        pass->failed = OUT_OF_MEMORY;
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
