/* See simd.h: aarch64 with NEON; by compiler flags also the dot products of ARMv8.2 and the matrix products of ARMv8.6. */

#include <arm_neon.h>

typedef struct f8 {
    float32x4_t low, high;
} f8;

INLINE f8 load8(const float *x) { return (f8){vld1q_f32(x), vld1q_f32(x + 4)}; }
INLINE void store8(float *to, f8 x) { vst1q_f32(to, x.low), vst1q_f32(to + 4, x.high); }
INLINE f8 set8(float x) { return (f8){vdupq_n_f32(x), vdupq_n_f32(x)}; }
INLINE f8 add8(f8 a, f8 b) { return (f8){vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
INLINE f8 sub8(f8 a, f8 b) { return (f8){vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
INLINE f8 mul8(f8 a, f8 b) { return (f8){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
INLINE f8 div8(f8 a, f8 b) { return (f8){vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
INLINE f8 fma8(f8 a, f8 b, f8 c) { return (f8){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
INLINE f8 fnma8(f8 a, f8 b, f8 c) { return (f8){vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)}; }
INLINE f8 round8(f8 x) { return (f8){vrndnq_f32(x.low), vrndnq_f32(x.high)}; }
INLINE f8 negative8(f8 x) { return (f8){vnegq_f32(vabsq_f32(x.low)), vnegq_f32(vabsq_f32(x.high))}; }

/* NEON's maximum of a number and NaN is NaN. */
INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE f8 max8(f8 a, f8 b) { return (f8){larger(a.low, b.low), larger(a.high, b.high)}; }

INLINE float32x4_t power(float32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
INLINE f8 power_of_two8(f8 n) { return (f8){power(n.low), power(n.high)}; }

INLINE float32x4_t signed_as(float32x4_t x, float32x4_t negative, float32x4_t positive) {
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), negative, positive);
}
INLINE f8 by_sign8(f8 x, f8 negative, f8 positive) {
    return (f8){signed_as(x.low, negative.low, positive.low), signed_as(x.high, negative.high, positive.high)};
}

INLINE float32x4_t masked(uint32x4_t mask, float32x4_t x) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(x)));
}
INLINE f8 zero_below8(f8 value, f8 x, f8 least) {
    const uint32x4_t low = vmvnq_u32(vcltq_f32(x.low, least.low)), high = vmvnq_u32(vcltq_f32(x.high, least.high));
    return (f8){masked(low, value.low), masked(high, value.high)};
}
INLINE f8 select8(i8 mask, f8 x) {
    uint32x4_t halves[2];
    memcpy(halves, &mask, 32);
    return (f8){masked(halves[0], x.low), masked(halves[1], x.high)};
}

INLINE int greater_mask8(f8 x, f8 least) {
    static const uint32_t bits[] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint32x4_t low = vandq_u32(vcgeq_f32(x.low, least.low), vld1q_u32(bits));
    return (int)vaddvq_u32(vorrq_u32(low, vandq_u32(vcgeq_f32(x.high, least.high), vld1q_u32(bits + 4))));
}

INLINE float reduce_add8(f8 x) {
    const float32x4_t fours = vaddq_f32(x.low, x.high);
    const float32x2_t pairs = vadd_f32(vget_low_f32(fours), vget_high_f32(fours));
    return vget_lane_f32(pairs, 0) + vget_lane_f32(pairs, 1);
}

INLINE f8 sum_groups8(f8 a, f8 b) {
    const float32x4_t sums = vaddq_f32(vpaddq_f32(a.low, b.low), vpaddq_f32(a.high, b.high));
    return (f8){sums, sums};
}

/* Transposes four rows of four numbers. */
INLINE void transpose4(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d, float *to, int64_t stride) {
    const float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
    const float64x2_t ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b)), cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)));
    vst1q_f32(to + stride, vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd)));
    vst1q_f32(to + 2 * stride, vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)));
    vst1q_f32(to + 3 * stride, vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd)));
}

INLINE void transpose8(const f8 in[8], float *to, int64_t stride) {
    for (int r = 0; r < 8; r += 4) {
        transpose4(in[r].low, in[r + 1].low, in[r + 2].low, in[r + 3].low, to + r, stride);
        transpose4(in[r].high, in[r + 1].high, in[r + 2].high, in[r + 3].high, to + 4 * stride + r, stride);
    }
}

/* --- Panels --- */

#include "simd_halves.h"

#define FLOAT_TILE 6

typedef struct i16 {
    int32x4_t v[4];
} i16;

INLINE i16 zero16(void) {
    const int32x4_t none = vdupq_n_s32(0);
    return (i16){{none, none, none, none}};
}

INLINE float32x4_t less(int32x4_t sums, const int32_t *numbers) { return vcvtq_f32_s32(vsubq_s32(sums, vld1q_s32(numbers))); }
INLINE f16 minus16(i16 sums, const int32_t *n) {
    return (f16){{less(sums.v[0], n), less(sums.v[1], n + 4)}, {less(sums.v[2], n + 8), less(sums.v[3], n + 12)}};
}

/* Four inputs of a row, repeated four times. */
INLINE int8x16_t four_inputs(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

#ifdef __ARM_FEATURE_DOTPROD
#define INT8_TILE 6

/* Rows from FIRST on. */
INLINE void add_dots(const int FIRST, const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth,
                     const int8_t *w) {
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            UNROLL(MAX_TILE_ROWS)
            for (int r = FIRST; r < ROWS; r++) {
                UNROLL(4)
                for (int i = 0; i < 4; i++) {
                    const int8x16_t a = four_inputs(x + r * depth + 4 * g);
                    total[r][p].v[i] = vdotq_s32(total[r][p].v[i], a, vld1q_s8(w + 64 * g + 16 * i));
                }
            }
        }
    }
}

#ifdef __ARM_FEATURE_MATMUL_INT8
#define BLOCKED_SUMS

/* `smmla` multiplies eight inputs of two rows by those of two outputs. Sums stay in its layout until the end: blocks of two
   rows by two outputs, eight for a panel and two rows. An odd last row is computed alone. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    add_dots(ROWS & ~1, ROWS, P, total, x, depth, w);
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        UNROLL(2)
        for (int k = 0; k < GROUP; k += 8) {
            UNROLL(4)
            for (int i = 0; i < 4; i++) {
                const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(w + 16 * k + 16 * i));
                const int32x4_t next = vreinterpretq_s32_s8(vld1q_s8(w + 16 * k + 64 + 16 * i));
                const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(first, next));
                const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(first, next));
                UNROLL(MAX_TILE_ROWS / 2)
                for (int r = 0; r + 1 < ROWS; r += 2) {
                    const uint8x16_t rows = vcombine_u8(vld1_u8(x + r * depth + k), vld1_u8(x + (r + 1) * depth + k));
                    const int8x16_t a = vreinterpretq_s8_u8(rows); /* inputs have 7 bits */
                    int32x4_t *block = &total[r + i / 2][p].v[2 * i % 4];
                    block[0] = vmmlaq_s32(block[0], a, low);
                    block[1] = vmmlaq_s32(block[1], a, high);
                }
            }
        }
    }
}

INLINE int32x4_t pairs_of(int32x4_t a, int32x4_t b, int second) {
    const int64x2_t x = vreinterpretq_s64_s32(a), y = vreinterpretq_s64_s32(b);
    return vreinterpretq_s32_s64(second ? vzip2q_s64(x, y) : vzip1q_s64(x, y));
}

INLINE void sums_by_row(const int ROWS, const int P, i16 total[][4]) {
    UNROLL(MAX_TILE_ROWS / 2)
    for (int r = 0; r + 1 < ROWS; r += 2) {
        UNROLL(4)
        for (int p = 0; p < P; p++) {
            const i16 blocks[2] = {total[r][p], total[r + 1][p]};
            UNROLL(4)
            for (int i = 0; i < 4; i++) {
                const int32x4_t *block = &blocks[i / 2].v[2 * i % 4];
                total[r][p].v[i] = pairs_of(block[0], block[1], 0);
                total[r + 1][p].v[i] = pairs_of(block[0], block[1], 1);
            }
        }
    }
}
#else
#define add_products(...) add_dots(0, __VA_ARGS__)
#endif
#else
#define INT8_TILE 2

/* Adds four products in 16 bits, a part of those that AVX2 adds. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        UNROLL(2)
        for (int r = 0; r < ROWS; r++) {
            UNROLL(4)
            for (int i = 0; i < 4; i++) {
                int16x8_t low = vdupq_n_s16(0), high = low;
                UNROLL(4)
                for (int g = 0; g < GROUP / 4; g++) {
                    const int8x16_t a = four_inputs(x + r * depth + 4 * g), b = vld1q_s8(w + 64 * g + 16 * i);
                    low = vmlal_s8(low, vget_low_s8(a), vget_low_s8(b));
                    high = vmlal_high_s8(high, a, b);
                }
                const int32x4_t sums = vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
                total[r][p].v[i] = vaddq_s32(total[r][p].v[i], sums);
            }
        }
    }
}
#endif
