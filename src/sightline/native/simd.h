/* SIMD: eight numbers (f8) or a panel of sixteen (f16, and i16 of whole numbers) at a time. The only files that know what
   a processor calls its instructions are this one's bodies; which is taken follows from the compiler's flags, and
   build.py compiles the library once for each.

   The same bits from all of them are the contract: no approximations, no other order. `fma8` rounds once, `max8` is
   a > b ? a : b, so of two, the latter where one is no number; roundings are to even; `lanes_sum` is
   ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). */

#ifndef SIGHTLINE_SIMD_H
#define SIGHTLINE_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define PANEL 16 /* outputs that are computed together */
#define TALLEST 6 /* rows of a tile */
#define GROUP 16 /* inputs whose products in 8 bits are added at once: see products.c */

/* Sums of a tile stay in registers only where the loops over them are gone. */
#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL(n) PRAGMA(clang loop unroll(full))
#else
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

typedef int32_t i8 __attribute__((vector_size(32))); /* whole numbers go by the compiler's own operators */
typedef uint32_t u8 __attribute__((vector_size(32)));

#if defined(__AVX2__) && !defined(SCALAR)
#include "simd_avx2.h"
#elif defined(__aarch64__) && !defined(SCALAR)
#include "simd_neon.h"
#elif defined(__wasm_simd128__)
#include "simd_wasm.h"
#else
#include "simd_scalar.h"
#endif

/* ln x by its series in double precision: systems' own differ in the last bit. */
static inline float logarithm(float x) {
    if (!(x > 0) || isinf(x)) return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    int exponent;
    double m = frexp(x, &exponent), sum = 0;
    if (m < 0.70710678) m *= 2, exponent--;
    const double s = (m - 1) / (m + 1);
    for (int k = 17; k > 0; k -= 2) sum = sum * (s * s) + 1.0 / k;
    return (float)(2 * s * sum + exponent * 0.69314718055994530942);
}

/* e^x for x <= 0, within two units of the last place: x = n ln 2 + r, e^r by its series (Cephes, expf). */
INLINE f8 exponential(f8 x) {
    const f8 least = all8(-87.0f), clipped = max8(least, x), n = round8(mul8(clipped, all8(1.44269504f)));
    const f8 r = fnma8(n, all8(-2.12194440e-4f), fnma8(n, all8(0.693359375f), clipped));
    f8 p = fma8(all8(1.9875691500e-4f), r, all8(1.3981999507e-3f));
    p = fma8(p, r, all8(8.3334519073e-3f));
    p = fma8(p, r, all8(4.1665795894e-2f));
    p = fma8(p, r, all8(1.6666665459e-1f));
    p = fma8(p, r, all8(5.0000001201e-1f));
    p = fma8(p, mul8(r, r), add8(r, all8(1.0f)));
    return unless_below8(mul8(p, power8(n)), x, least); /* what is no number stays so */
}

#endif
