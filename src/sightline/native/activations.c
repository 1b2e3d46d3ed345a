/* See activations.h. What is no number stays so, which tells the search that a network is damaged. */

#include "activations.h"

#include "attention.h"

#include <string.h>

/* 1 / (1 + e^-x) */
INLINE __m256 sigmoid(__m256 x) {
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = exponential(_mm256_or_ps(x, _mm256_set1_ps(-0.0f))); /* of -|x| */
    __m256 above = _mm256_div_ps(one, _mm256_add_ps(one, e));
    return _mm256_blendv_ps(above, _mm256_mul_ps(e, above), x);
}

/* x Phi(x), the error function by Abramowitz and Stegun, 7.1.26: within 1.5e-7. */
INLINE __m256 gelu(__m256 x) {
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(magnitude, _mm256_set1_ps(0.3275911f * 0.70710678f), one));
    __m256 p = _mm256_set1_ps(0.5f * 1.061405429f);
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * -1.453152027f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * 1.421413741f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * -0.284496736f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.5f * 0.254829592f));
    __m256 e = exponential(_mm256_mul_ps(_mm256_set1_ps(-0.5f), _mm256_mul_ps(x, x)));
    __m256 outside = _mm256_mul_ps(_mm256_mul_ps(p, t), e); /* Phi(-|x|) */
    return _mm256_mul_ps(x, _mm256_blendv_ps(_mm256_sub_ps(one, outside), outside, x));
}

INLINE __m256 activated(const Activation kind, __m256 x) {
    if (kind == RELU) return _mm256_max_ps(_mm256_setzero_ps(), x); /* of two, the latter if one is NaN */
    if (kind == GELU) return gelu(x);
    if (kind == SILU) return _mm256_mul_ps(x, sigmoid(x));
    if (kind == QUICK_GELU) return _mm256_mul_ps(x, sigmoid(_mm256_mul_ps(_mm256_set1_ps(1.702f), x)));
    if (kind == NONE) return x;
    __m256 inner = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(0.044715f), _mm256_set1_ps(1.0f));
    inner = _mm256_mul_ps(_mm256_mul_ps(x, inner), _mm256_set1_ps(2 * 0.79788456f)); /* sqrt(2 / pi) */
    return _mm256_mul_ps(x, sigmoid(inner)); /* 0.5 (1 + tanh(y)) is the sigmoid of 2 y */
}

INLINE void eight(const Activation kind, float *x, const float *by) {
    __m256 y = activated(kind, _mm256_loadu_ps(x));
    _mm256_storeu_ps(x, by ? _mm256_mul_ps(y, _mm256_loadu_ps(by)) : y);
}

INLINE void all(const Activation kind, float *x, const float *by, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) eight(kind, x + i, by ? by + i : 0);
    if (i == n) return;
    float last[8] = {0}, factors[8] = {0};
    memcpy(last, x + i, 4 * (size_t)(n - i));
    if (by) memcpy(factors, by + i, 4 * (size_t)(n - i));
    eight(kind, last, by ? factors : 0);
    memcpy(x + i, last, 4 * (size_t)(n - i));
}

void gate(Activation kind, float *x, const float *by, int n) {
    switch (kind) { /* each with a loop of its own */
    case NONE: all(NONE, x, by, n); break;
    case RELU: all(RELU, x, by, n); break;
    case GELU: all(GELU, x, by, n); break;
    case GELU_TANH: all(GELU_TANH, x, by, n); break;
    case QUICK_GELU: all(QUICK_GELU, x, by, n); break;
    case SILU: all(SILU, x, by, n); break;
    }
}

void sightline_activate(Activation kind, float *x, int n) { gate(kind, x, 0, n); }
