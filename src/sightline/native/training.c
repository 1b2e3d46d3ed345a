/* Passes over large tensors of a training step that torch makes in several: dropout (5.4) and the softmax of logits. */

#include "attention.h"
#include "team.h"

#include <stddef.h>

#define STRETCH 16384 /* elements that one generator draws for */

/* --- Dropout --- */

/* Eight generators xoshiro128+ (Blackman and Vigna, prng.di.unimi.it) side by side; 16 bits of each number are used
   twice, and the lowest, which are weak, in comparisons of 16 bits count for nearly nothing. */
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

/* Draws are below 2^16. */
INLINE void drop_eight(const float *x, const float *residual, u8 draws, int dropped, f8 factor, float *out) {
    f8 value = where8((i8)draws >= dropped, mul8(load8(x), factor));
    if (residual) value = add8(value, load8(residual));
    store8(out, value);
}

typedef struct Drop {
    const float *x, *residual;
    float *out, scale;
    int64_t seed, n;
    int dropped;
} Drop;

/* Some stretches, each with a generator of its own. */
static void drop_stretches(void *data, int64_t begin, int64_t end) {
    const Drop *d = data;
    const f8 factor = all8(d->scale);
    for (int64_t s = begin; s < end; s++) {
        const int64_t first = s * STRETCH, n = d->n - first < STRETCH ? d->n - first : STRETCH;
        const float *x = d->x + first, *residual = d->residual ? d->residual + first : NULL;
        float *out = d->out + first;
        Generator g = generator((uint64_t)d->seed + (uint64_t)s * 0xd1342543de82ef95u);
        int64_t i = 0;
        for (; i + 16 <= n; i += 16) {
            const u8 draws = next(&g);
            drop_eight(x + i, residual ? residual + i : NULL, draws >> 16, d->dropped, factor, out + i);
            drop_eight(x + i + 8, residual ? residual + i + 8 : NULL, draws & 0xffff, d->dropped, factor, out + i + 8);
        }
        const u8 draws = next(&g);
        uint16_t last[16];
        memcpy(last, &draws, sizeof last);
        for (int j = 0; i < n; i++, j++)
            out[i] = (residual ? residual[i] : 0) + (last[j] >= d->dropped ? x[i] * d->scale : 0);
    }
}

/* out = residual + scale * x, but for `dropped` of 65536 draws, which follow from `seed`, the residual alone, or 0 if
   that is NULL. The same seed drops the same. */
EXPORT void sightline_drop(const float *x, const float *residual, int64_t seed, int dropped, float scale, int64_t n,
                           float *out, int threads) {
    Drop d = {x, residual, out, scale, seed, n, dropped};
    share((n + STRETCH - 1) / STRETCH, threads, drop_stretches, &d);
}

/* --- Loss --- */

typedef struct Softmax {
    float *x, *normalizers;
    int64_t n;
} Softmax;

static void softmax_rows(void *data, int64_t begin, int64_t end) {
    const Softmax *s = data;
    const int64_t n = s->n;
    for (int64_t r = begin; r < end; r++) {
        float *x = s->x + r * n;
        const float most = maximum(x, n), sum = exponentials(x, n, most);
        const f8 factor = all8(1 / sum);
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) store8(x + i, mul8(load8(x + i), factor));
        for (; i < n; i++) x[i] /= sum;
        s->normalizers[r] = most + logarithm(sum);
    }
}

/* Rows (rows, n) of logits become probabilities; the logarithm of each row's sum of exponentials. */
EXPORT void sightline_softmax(float *x, int64_t rows, int64_t n, float *normalizers, int threads) {
    Softmax s = {x, normalizers, n};
    share(rows, threads, softmax_rows, &s);
}
