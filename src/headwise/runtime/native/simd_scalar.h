/* See simd.h: plain C, for any processor. */

#define LANES for (int i = 0; i < 8; i++)

typedef struct f8 {
    float v[8];
} f8;

/* a b + c, rounded once. The product is exact in double precision; an inexact sum is rounded to odd, so that rounding to
   float is correct (Boldo and Melquiond, 2008). */
INLINE float fused(float a, float b, float c) {
#ifdef FP_FAST_FMAF
    return fmaf(a, b, c);
#else
    const double product = (double)a * b, sum = product + c, added = sum - product;
    const double rest = (product - (sum - added)) + (c - added);
    int64_t bits;
    memcpy(&bits, &sum, 8);
    const int away = rest > 0 ? (sum > 0 ? 1 : -1) : rest < 0 ? (sum > 0 ? -1 : 1) : 0; /* 0 for NaN, too */
    if (!(bits & 1)) bits += away;
    double odd;
    memcpy(&odd, &bits, 8);
    return (float)odd;
#endif
}

#define EACH(expression) \
    f8 y; \
    LANES y.v[i] = expression; \
    return y;

INLINE f8 load8(const float *x) { EACH(x[i]) }
INLINE void store8(float *to, f8 x) { memcpy(to, x.v, 32); }
INLINE f8 set8(float x) { EACH(x) }
INLINE f8 add8(f8 a, f8 b) { EACH(a.v[i] + b.v[i]) }
INLINE f8 sub8(f8 a, f8 b) { EACH(a.v[i] - b.v[i]) }
INLINE f8 mul8(f8 a, f8 b) { EACH(a.v[i] * b.v[i]) }
INLINE f8 div8(f8 a, f8 b) { EACH(a.v[i] / b.v[i]) }
INLINE f8 max8(f8 a, f8 b) { EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]) }
INLINE f8 fma8(f8 a, f8 b, f8 c) { EACH(fused(a.v[i], b.v[i], c.v[i])) }
INLINE f8 fnma8(f8 a, f8 b, f8 c) { EACH(fused(-a.v[i], b.v[i], c.v[i])) }
INLINE f8 round8(f8 x) { EACH(rintf(x.v[i])) }
INLINE f8 negative8(f8 x) { EACH(-fabsf(x.v[i])) }
INLINE f8 by_sign8(f8 x, f8 negative, f8 positive) { EACH(signbit(x.v[i]) ? negative.v[i] : positive.v[i]) }
INLINE f8 zero_below8(f8 value, f8 x, f8 least) { EACH(x.v[i] < least.v[i] ? 0 : value.v[i]) }
INLINE f8 select8(i8 mask, f8 x) { EACH(mask[i] ? x.v[i] : 0) }

INLINE f8 power_of_two8(f8 n) {
    int32_t bits[8];
    LANES bits[i] = isnan(n.v[i]) ? 0 : ((int32_t)n.v[i] + 127) << 23;
    f8 y;
    memcpy(y.v, bits, 32);
    return y;
}

INLINE int greater_mask8(f8 x, f8 least) {
    int hits = 0;
    LANES hits |= (x.v[i] >= least.v[i]) << i;
    return hits;
}

INLINE float reduce_add8(f8 x) {
    return ((x.v[0] + x.v[4]) + (x.v[2] + x.v[6])) + ((x.v[1] + x.v[5]) + (x.v[3] + x.v[7]));
}

INLINE f8 sum_groups8(f8 a, f8 b) {
    EACH(i % 4 < 2 ? (a.v[i % 2 * 2] + a.v[i % 2 * 2 + 1]) + (a.v[i % 2 * 2 + 4] + a.v[i % 2 * 2 + 5])
                   : (b.v[i % 2 * 2] + b.v[i % 2 * 2 + 1]) + (b.v[i % 2 * 2 + 4] + b.v[i % 2 * 2 + 5]))
}

INLINE void transpose8(const f8 in[8], float *to, int64_t stride) {
    for (int r = 0; r < 8; r++) LANES to[i * stride + r] = in[r].v[i];
}

/* --- Panels --- */

#include "simd_halves.h"

#define FLOAT_TILE 4
#define INT8_TILE 2

typedef struct i16 {
    int32_t v[PANEL];
} i16;

INLINE i16 zero16(void) { return (i16){{0}}; }

INLINE f16 minus16(i16 sums, const int32_t *numbers) {
    f16 y;
    LANES y.low.v[i] = (float)(sums.v[i] - numbers[i]);
    LANES y.high.v[i] = (float)(sums.v[i + 8] - numbers[i + 8]);
    return y;
}

/* Adds products in 16 bits, a part of those that AVX2 adds. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        for (int r = 0; r < ROWS; r++) {
            int16_t sums[4 * PANEL] = {0};
            for (int g = 0; g < GROUP / 4; g++) {
                int16_t fours[8];
                LANES fours[i] = x[r * depth + 4 * g + i % 4];
                for (int j = 0; j < 4 * PANEL; j += 8) LANES sums[j + i] += fours[i] * w[4 * PANEL * g + j + i];
            }
            for (int o = 0; o < PANEL; o++)
                total[r][p].v[o] += sums[4 * o] + sums[4 * o + 1] + sums[4 * o + 2] + sums[4 * o + 3];
        }
    }
}
