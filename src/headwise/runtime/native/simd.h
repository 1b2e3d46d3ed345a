/* SIMD operations on eight numbers (f8) or a panel of sixteen (f16, and i16 of integers). Only the simd_*.h files contain
   instructions of a processor. The compiler's flags choose one, and build.py compiles the library for each.

   All of them must give the same bits: no approximations, no other order of operations. `fma8` rounds once; `max8` is
   a > b ? a : b, so it returns b if one is NaN; rounding is to even; `reduce_add8` is
   ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). */

#ifndef HEADWISE_SIMD_H
#define HEADWISE_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define PANEL 16 /* outputs that are computed together */
#define MAX_TILE_ROWS 6 /* rows of a tile */
#define GROUP 16 /* inputs whose 8-bit products are added at once: see products.c */

/* Sums of a tile stay in registers only if the loops over them are unrolled. */
#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL(n) PRAGMA(clang loop unroll(full))
#else
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

typedef int32_t i8 __attribute__((vector_size(32))); /* integers use the compiler's vector operators */
typedef uint32_t u8 __attribute__((vector_size(32)));
typedef uint16_t h8 __attribute__((vector_size(16)));

/* Eight bfloat16 numbers from index i on, converted to float32. */
INLINE void widen_bfloat8(const void *x, int64_t i, u8 *bits) {
    h8 upper;
    memcpy(&upper, (const uint16_t *)x + i, 16);
    *bits = __builtin_convertvector(upper, u8) << 16;
}

#if defined(__AVX2__) && !defined(SCALAR)
#include "simd_avx2.h"
#elif defined(__aarch64__) && !defined(SCALAR)
#include "simd_neon.h"
#elif defined(__wasm_simd128__)
#include "simd_wasm.h"
#else
#include "simd_scalar.h"
#endif

#ifndef BLOCKED_SUMS
/* Converts the sums of `add_products` to one sum per row and output; only NEON needs it. */
INLINE void sums_by_row(const int ROWS, const int P, i16 total[][4]) { (void)ROWS, (void)P, (void)total; }
#endif

#ifndef FAST_REDUCTIONS
/* The maximum of the lanes, none of which is NaN. */
INLINE float reduce_max8(f8 x) {
    float lanes[8], most;
    store8(lanes, x);
    most = lanes[0];
    for (int i = 1; i < 8; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* `reduce_add8` of each of eight. */
INLINE f8 reduce_add8x8(const f8 x[8]) {
    float sums[8];
    for (int i = 0; i < 8; i++) sums[i] = reduce_add8(x[i]);
    return load8(sums);
}
#endif

/* The mask of the first n of eight. */
#define FIRST8(n) ((i8){0, 1, 2, 3, 4, 5, 6, 7} < (n))

/* --- bfloat16: the upper half of a float32 --- */

/* Eight numbers from index i on, bfloat16 if `half`, else float32. */
INLINE f8 read8(const void *x, int64_t i, int half) {
    if (!half) return load8((const float *)x + i);
    u8 bits;
    f8 y;
    widen_bfloat8(x, i, &bits);
    memcpy(&y, &bits, 32);
    return y;
}

/* Rounds to even, like torch, with integer arithmetic: the same bits everywhere. NaN stays NaN. */
INLINE void write8(void *to, int64_t i, f8 x, int half) {
    if (!half) {
        store8((float *)to + i, x);
        return;
    }
    u8 bits;
    memcpy(&bits, &x, 32);
    const u8 none = (u8)((bits & 0x7fffffff) > 0x7f800000), nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const h8 upper = __builtin_convertvector((none & 0x7fc0) | (~none & nearest), h8);
    memcpy((uint16_t *)to + i, &upper, 16);
}

/* Converts `n` numbers between float32 and bfloat16. */
static inline void convert(const void *x, int half, int64_t n, void *to, int to_half) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) write8(to, i, read8(x, i, half), to_half);
    if (i == n) return;
    const size_t rest = (size_t)(n - i), size = half ? 2 : 4, to_size = to_half ? 2 : 4;
    float last[8] = {0}, result[8];
    memcpy(last, (const char *)x + i * (int64_t)size, rest * size);
    write8(result, 0, read8(last, 0, half), to_half);
    memcpy((char *)to + i * (int64_t)to_size, result, rest * to_size);
}

/* ln x by its series in double precision, since C libraries differ in the last bit. */
static inline float logarithm(float x) {
    if (!(x > 0) || isinf(x)) return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    int exponent;
    double m = frexp(x, &exponent), sum = 0;
    if (m < 0.70710678) {
        m *= 2;
        exponent--;
    }
    const double s = (m - 1) / (m + 1);
    for (int k = 17; k > 0; k -= 2) sum = sum * (s * s) + 1.0 / k;
    return (float)(2 * s * sum + exponent * 0.69314718055994530942);
}

/* e^x for x <= 0, within two units of the last place: x = n ln 2 + r, e^r by its series (Cephes, expf). NaN stays NaN. */
#define EXPONENTIAL(name, N) \
    INLINE f##N name(f##N x) { \
        const f##N least = set##N(-87.0f), clipped = max##N(least, x), n = round##N(mul##N(clipped, set##N(1.44269504f))); \
        const f##N r = fnma##N(n, set##N(-2.12194440e-4f), fnma##N(n, set##N(0.693359375f), clipped)); \
        f##N p = fma##N(set##N(1.9875691500e-4f), r, set##N(1.3981999507e-3f)); \
        p = fma##N(p, r, set##N(8.3334519073e-3f)); \
        p = fma##N(p, r, set##N(4.1665795894e-2f)); \
        p = fma##N(p, r, set##N(1.6666665459e-1f)); \
        p = fma##N(p, r, set##N(5.0000001201e-1f)); \
        p = fma##N(p, mul##N(r, r), add##N(r, set##N(1.0f))); \
        return zero_below##N(mul##N(p, power_of_two##N(n)), x, least); \
    }

EXPONENTIAL(exponential, 8)
#ifdef REGISTER_IS_PANEL
EXPONENTIAL(exponential16, 16)
#else
INLINE f16 exponential16(f16 x) { return (f16){exponential(x.low), exponential(x.high)}; }
#endif

#endif
