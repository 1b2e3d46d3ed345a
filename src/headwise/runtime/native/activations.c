/* See activations.h. NaN stays NaN, so that the search can detect a damaged network. */

#include "activations.h"

#include "attention.h"

#include <string.h>

/* 1 / (1 + e^-x) */
INLINE f8 sigmoid(f8 x) {
    const f8 one = set8(1.0f);
    f8 e = exponential(negative8(x));
    f8 above = div8(one, add8(one, e));
    return by_sign8(x, mul8(e, above), above);
}

/* x Phi(x), with the error function of Abramowitz and Stegun, 7.1.26 (error < 1.5e-7). */
#define DEFINE_GELU(name, N, exponential_of) \
    INLINE f##N name(f##N x) { \
        const f##N one = set##N(1.0f); \
        f##N t = div##N(one, fnma##N(negative##N(x), set##N(0.3275911f * 0.70710678f), one)); \
        f##N p = set##N(0.5f * 1.061405429f); \
        p = fma##N(p, t, set##N(0.5f * -1.453152027f)); \
        p = fma##N(p, t, set##N(0.5f * 1.421413741f)); \
        p = fma##N(p, t, set##N(0.5f * -0.284496736f)); \
        p = fma##N(p, t, set##N(0.5f * 0.254829592f)); \
        f##N e = exponential_of(mul##N(set##N(-0.5f), mul##N(x, x))); \
        f##N outside = mul##N(mul##N(p, t), e); /* Phi(-|x|) */ \
        return mul##N(x, by_sign##N(x, outside, sub##N(one, outside))); \
    }

DEFINE_GELU(gelu, 8, exponential)
#ifdef REGISTER_IS_PANEL
DEFINE_GELU(gelu16, 16, exponential16)
#else
INLINE f16 gelu16(f16 x) { return (f16){gelu(x.low), gelu(x.high)}; }
#endif

INLINE f8 activated(const Activation kind, f8 x) {
    if (kind == RELU) return max8(set8(0), x); /* the second one if one is NaN */
    if (kind == GELU) return gelu(x);
    if (kind == SILU) return mul8(x, sigmoid(x));
    if (kind == QUICK_GELU) return mul8(x, sigmoid(mul8(set8(1.702f), x)));
    if (kind == NONE) return x;
    f8 inner = fma8(mul8(x, x), set8(0.044715f), set8(1.0f));
    inner = mul8(mul8(x, inner), set8(2 * 0.79788456f)); /* sqrt(2 / pi) */
    return mul8(x, sigmoid(inner)); /* 0.5 (1 + tanh(y)) is the sigmoid of 2 y */
}

INLINE void eight(const Activation kind, float *x, const float *by) {
    f8 y = activated(kind, load8(x));
    store8(x, by ? mul8(y, load8(by)) : y);
}

INLINE void all(const Activation kind, float *x, const float *by, int n) {
    int i = 0;
    for (; kind == GELU && !by && i + 16 <= n; i += 16) store16(x + i, gelu16(load16(x + i)));
    for (; i + 8 <= n; i += 8) eight(kind, x + i, by ? by + i : 0);
    if (i == n) return;
    float last[8] = {0}, factors[8] = {0};
    memcpy(last, x + i, 4 * (size_t)(n - i));
    if (by) memcpy(factors, by + i, 4 * (size_t)(n - i));
    eight(kind, last, by ? factors : 0);
    memcpy(x + i, last, 4 * (size_t)(n - i));
}

void gate(Activation kind, float *x, const float *by, int n) {
    switch (kind) { /* a separate loop for each */
    case NONE: all(NONE, x, by, n); break;
    case RELU: all(RELU, x, by, n); break;
    case GELU: all(GELU, x, by, n); break;
    case GELU_TANH: all(GELU_TANH, x, by, n); break;
    case QUICK_GELU: all(QUICK_GELU, x, by, n); break;
    case SILU: all(SILU, x, by, n); break;
    }
}

void headwise_activate(Activation kind, float *x, int n) { gate(kind, x, 0, n); }
