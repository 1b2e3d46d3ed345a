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
INLINE f8 gelu(f8 x) {
    const f8 one = set8(1.0f);
    f8 t = div8(one, fnma8(negative8(x), set8(0.3275911f * 0.70710678f), one));
    f8 p = set8(0.5f * 1.061405429f);
    p = fma8(p, t, set8(0.5f * -1.453152027f));
    p = fma8(p, t, set8(0.5f * 1.421413741f));
    p = fma8(p, t, set8(0.5f * -0.284496736f));
    p = fma8(p, t, set8(0.5f * 0.254829592f));
    f8 e = exponential(mul8(set8(-0.5f), mul8(x, x)));
    f8 outside = mul8(mul8(p, t), e); /* Phi(-|x|) */
    return mul8(x, by_sign8(x, outside, sub8(one, outside)));
}

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
