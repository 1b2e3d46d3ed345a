/* Passes over large tensors of a training step that torch makes in several: dropout (5.4) and the softmax of logits. */

#include "attention.h"
#include "team.h"

#include <math.h>
#include <stddef.h>

#define STRETCH 16384 /* elements that one generator draws for */

/* --- Dropout --- */

/* Eight generators xoshiro128+ (Blackman and Vigna, prng.di.unimi.it) side by side; 16 bits of each number are used
   twice, and the lowest, which are weak, in comparisons of 16 bits count for nearly nothing. */
typedef struct Generator {
    __m256i s[4];
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
    for (int i = 0; i < 4; i++) g.s[i] = _mm256_loadu_si256((const __m256i *)(words + 4 * i));
    return g;
}

static inline __m256i next(Generator *g) {
    __m256i *s = g->s, result = _mm256_add_epi32(s[0], s[3]), t = _mm256_slli_epi32(s[1], 9);
    s[2] = _mm256_xor_si256(s[2], s[0]);
    s[3] = _mm256_xor_si256(s[3], s[1]);
    s[1] = _mm256_xor_si256(s[1], s[2]);
    s[0] = _mm256_xor_si256(s[0], s[3]);
    s[2] = _mm256_xor_si256(s[2], t);
    s[3] = _mm256_or_si256(_mm256_slli_epi32(s[3], 11), _mm256_srli_epi32(s[3], 21));
    return result;
}

static inline void drop_eight(const float *x, const float *residual, __m256i draw, __m256i below, __m256 factor, float *out) {
    __m256 kept = _mm256_castsi256_ps(_mm256_cmpgt_epi32(draw, below));
    __m256 value = _mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(x), factor), kept);
    if (residual) value = _mm256_add_ps(value, _mm256_loadu_ps(residual));
    _mm256_storeu_ps(out, value);
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
    const __m256 factor = _mm256_set1_ps(d->scale);
    const __m256i below = _mm256_set1_epi32(d->dropped - 1), low = _mm256_set1_epi32(0xffff);
    for (int64_t s = begin; s < end; s++) {
        const int64_t first = s * STRETCH, n = d->n - first < STRETCH ? d->n - first : STRETCH;
        const float *x = d->x + first, *residual = d->residual ? d->residual + first : NULL;
        float *out = d->out + first;
        Generator g = generator((uint64_t)d->seed + (uint64_t)s * 0xd1342543de82ef95u);
        int64_t i = 0;
        for (; i + 16 <= n; i += 16) {
            const __m256i draws = next(&g), high = _mm256_srli_epi32(draws, 16), rest = _mm256_and_si256(draws, low);
            drop_eight(x + i, residual ? residual + i : NULL, high, below, factor, out + i);
            drop_eight(x + i + 8, residual ? residual + i + 8 : NULL, rest, below, factor, out + i + 8);
        }
        uint16_t last[16];
        _mm256_storeu_si256((__m256i *)last, next(&g));
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
        const __m256 factor = _mm256_set1_ps(1 / sum);
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
        for (; i < n; i++) x[i] /= sum;
        s->normalizers[r] = most + logf(sum);
    }
}

/* Rows (rows, n) of logits become probabilities; the logarithm of each row's sum of exponentials. */
EXPORT void sightline_softmax(float *x, int64_t rows, int64_t n, float *normalizers, int threads) {
    Softmax s = {x, normalizers, n};
    share(rows, threads, softmax_rows, &s);
}
