/* Fused passes over large tensors of a training step: dropout (5.4) and the softmax of logits. */

#include "attention.h"
#include "parallel.h"

#include <stddef.h>

#define STRETCH 16384 /* elements per random generator */

/* --- Dropout --- */

/* Eight parallel generators xoshiro128+ (Blackman and Vigna, prng.di.unimi.it). Both halves of each number are used; its weak
   lowest bits hardly matter in comparisons of 16 bits. */
typedef struct Generator {
    u8 s[4];
} Generator;

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static Generator generator(uint64_t seed) {
    uint64_t words[16];
    for (int i = 0; i < 16; i++) words[i] = splitmix(&seed);
    Generator g;
    memcpy(g.s, words, sizeof words);
    return g;
}

static inline u8 next(Generator *g) {
    u8 *s = g->s, result = s[0] + s[3], t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 11) | (s[3] >> 21);
    return result;
}

typedef struct Drop {
    const void *x;
    const float *residual;
    void *out;
    float scale;
    int64_t seed, n;
    int dropped, half, to_half;
} Drop;

/* Eight elements from index i on; random numbers are below 2^16. */
INLINE void drop_eight(const Drop *d, const void *x, const float *residual, u8 draws, void *out, int64_t i) {
    f8 value = select8((i8)draws >= d->dropped, mul8(read8(x, i, d->half), set8(d->scale)));
    if (residual) value = add8(value, load8(residual + i));
    write8(out, i, value, d->to_half);
}

/* The last elements, fewer than sixteen. */
static void drop_last(const Drop *d, int64_t first, int64_t n, u8 draws) {
    const int64_t size = d->half ? 2 : 4, to_size = d->to_half ? 2 : 4;
    float x[16] = {0}, residual[16] = {0}, out[16];
    memcpy(x, (const char *)d->x + first * size, (size_t)(n * size));
    if (d->residual) memcpy(residual, d->residual + first, (size_t)(4 * n));
    uint16_t each[16];
    memcpy(each, &draws, sizeof each);
    for (int i = 0; i < 16; i += 8) {
        u8 own;
        for (int j = 0; j < 8; j++) own[j] = each[i + j];
        drop_eight(d, x, d->residual ? residual : NULL, own, out, i);
    }
    memcpy((char *)d->out + first * to_size, out, (size_t)(n * to_size));
}

/* Some blocks of elements, each with its own generator. */
static void drop_stretches(void *data, int64_t begin, int64_t end) {
    const Drop *d = data;
    for (int64_t s = begin; s < end; s++) {
        const int64_t first = s * STRETCH, last = first + STRETCH < d->n ? first + STRETCH : d->n;
        Generator g = generator((uint64_t)d->seed + (uint64_t)s * 0xd1342543de82ef95u);
        int64_t i = first;
        for (; i + 16 <= last; i += 16) {
            const u8 draws = next(&g);
            drop_eight(d, d->x, d->residual, draws >> 16, d->out, i);
            drop_eight(d, d->x, d->residual, draws & 0xffff, d->out, i + 8);
        }
        if (i < last) drop_last(d, i, last - i, next(&g));
    }
}

/* out = residual + scale * x; elements whose random number is below `dropped` (of 65536) become the residual, or 0 if that is
   NULL. The same seed drops the same elements. `half`, `to_half`: whether x and out are bfloat16. */
EXPORT void headwise_drop(const void *x, int half, const float *residual, int64_t seed, int dropped, float scale,
                           int64_t n, void *out, int to_half, int threads) {
    Drop d = {x, residual, out, scale, seed, n, dropped, half, to_half};
    parallel_for((n + STRETCH - 1) / STRETCH, threads, drop_stretches, &d);
}

/* --- Loss --- */

typedef struct Softmax {
    void *x;
    float *normalizers;
    int64_t n;
    int half, failed;
} Softmax;

/* Softmax in place; returns the logarithm of the sum of exponentials. */
static float softmax_row(float *x, int64_t n) {
    const float most = maximum(x, n), sum = exponentials(x, n, most);
    const f8 factor = set8(1 / sum);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) store8(x + i, mul8(load8(x + i), factor));
    for (; i < n; i++) x[i] /= sum;
    return most + logarithm(sum);
}

static void softmax_rows(void *data, int64_t begin, int64_t end) {
    Softmax *s = data;
    if (!s->half) {
        for (int64_t r = begin; r < end; r++) s->normalizers[r] = softmax_row((float *)s->x + r * s->n, s->n);
        return;
    }
    float *row = malloc(4 * (size_t)s->n);
    if (!row) {
        s->failed = OUT_OF_MEMORY;
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        uint16_t *x = (uint16_t *)s->x + r * s->n;
        convert(x, 1, s->n, row, 0);
        s->normalizers[r] = softmax_row(row, s->n);
        convert(row, 0, s->n, x, 1);
    }
    free(row);
}

/* Converts rows (rows, n) of logits, bfloat16 if `half`, to probabilities, and writes the logarithm of each row's sum of
   exponentials. Returns 0 or OUT_OF_MEMORY. */
EXPORT int headwise_softmax(void *x, int half, int64_t rows, int64_t n, float *normalizers, int threads) {
    Softmax s = {x, normalizers, n, half, 0};
    parallel_for(rows, threads, softmax_rows, &s);
    return s.failed;
}
