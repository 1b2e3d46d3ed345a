/* See simd.h: WebAssembly with 128-bit SIMD, optionally with relaxed SIMD. The page checks that relaxed multiply-add rounds
   once (`web.c`). Relaxed integer products are exact, because one factor has 7 bits and sums fit into 16. */

#include <wasm_simd128.h>

typedef struct f8 {
    v128_t low, high;
} f8;

INLINE f8 load8(const float *x) { return (f8){wasm_v128_load(x), wasm_v128_load(x + 4)}; }
INLINE void store8(float *to, f8 x) { wasm_v128_store(to, x.low), wasm_v128_store(to + 4, x.high); }
INLINE f8 set8(float x) { return (f8){wasm_f32x4_splat(x), wasm_f32x4_splat(x)}; }
INLINE f8 add8(f8 a, f8 b) { return (f8){wasm_f32x4_add(a.low, b.low), wasm_f32x4_add(a.high, b.high)}; }
INLINE f8 sub8(f8 a, f8 b) { return (f8){wasm_f32x4_sub(a.low, b.low), wasm_f32x4_sub(a.high, b.high)}; }
INLINE f8 mul8(f8 a, f8 b) { return (f8){wasm_f32x4_mul(a.low, b.low), wasm_f32x4_mul(a.high, b.high)}; }
INLINE f8 div8(f8 a, f8 b) { return (f8){wasm_f32x4_div(a.low, b.low), wasm_f32x4_div(a.high, b.high)}; }
INLINE f8 max8(f8 a, f8 b) { return (f8){wasm_f32x4_pmax(b.low, a.low), wasm_f32x4_pmax(b.high, a.high)}; }
INLINE f8 round8(f8 x) { return (f8){wasm_f32x4_nearest(x.low), wasm_f32x4_nearest(x.high)}; }

#ifdef __wasm_relaxed_simd__
INLINE v128_t fused4(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#else
/* `fused` of simd_scalar.h, two at a time. */
INLINE v128_t fused2(v128_t a, v128_t b, v128_t c) {
    const v128_t product = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b));
    const v128_t plus = wasm_f64x2_promote_low_f32x4(c), sum = wasm_f64x2_add(product, plus);
    const v128_t added = wasm_f64x2_sub(sum, product), left = wasm_f64x2_sub(product, wasm_f64x2_sub(sum, added));
    const v128_t rest = wasm_f64x2_add(left, wasm_f64x2_sub(plus, added)), one = wasm_i64x2_splat(1);
    const v128_t inexact = wasm_f64x2_gt(wasm_f64x2_abs(rest), wasm_f64x2_splat(0));
    const v128_t even = wasm_i64x2_sub(wasm_v128_and(sum, one), one);
    const v128_t away = wasm_v128_or(wasm_i64x2_shr(wasm_v128_xor(rest, sum), 63), one);
    const v128_t odd = wasm_i64x2_add(sum, wasm_v128_and(away, wasm_v128_and(inexact, even)));
    return wasm_f32x4_demote_f64x2_zero(odd);
}
INLINE v128_t upper(v128_t x) { return wasm_i64x2_shuffle(x, x, 1, 1); }
INLINE v128_t fused4(v128_t a, v128_t b, v128_t c) {
    return wasm_i64x2_shuffle(fused2(a, b, c), fused2(upper(a), upper(b), upper(c)), 0, 2);
}
#endif
INLINE f8 fma8(f8 a, f8 b, f8 c) { return (f8){fused4(a.low, b.low, c.low), fused4(a.high, b.high, c.high)}; }
INLINE f8 fnma8(f8 a, f8 b, f8 c) {
    return fma8((f8){wasm_f32x4_neg(a.low), wasm_f32x4_neg(a.high)}, b, c);
}

INLINE v128_t power(v128_t n) {
    return wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127)), 23);
}
INLINE f8 power_of_two8(f8 n) { return (f8){power(n.low), power(n.high)}; }

INLINE v128_t minus(v128_t x) { return wasm_v128_or(x, wasm_f32x4_splat(-0.0f)); }
INLINE f8 negative8(f8 x) { return (f8){minus(x.low), minus(x.high)}; }

INLINE v128_t by_sign(v128_t x, v128_t negative, v128_t positive) {
    return wasm_v128_bitselect(negative, positive, wasm_i32x4_shr(x, 31));
}
INLINE f8 by_sign8(f8 x, f8 negative, f8 positive) {
    return (f8){by_sign(x.low, negative.low, positive.low), by_sign(x.high, negative.high, positive.high)};
}

INLINE f8 zero_below8(f8 value, f8 x, f8 least) {
    const v128_t low = wasm_f32x4_lt(x.low, least.low), high = wasm_f32x4_lt(x.high, least.high);
    return (f8){wasm_v128_andnot(value.low, low), wasm_v128_andnot(value.high, high)};
}
INLINE f8 select8(i8 mask, f8 x) {
    v128_t halves[2];
    memcpy(halves, &mask, 32);
    return (f8){wasm_v128_and(halves[0], x.low), wasm_v128_and(halves[1], x.high)};
}

INLINE int greater_mask8(f8 x, f8 least) {
    const int low = wasm_i32x4_bitmask(wasm_f32x4_ge(x.low, least.low));
    return low | wasm_i32x4_bitmask(wasm_f32x4_ge(x.high, least.high)) << 4;
}

INLINE float reduce_add8(f8 x) {
    const v128_t fours = wasm_f32x4_add(x.low, x.high);
    const v128_t pairs = wasm_f32x4_add(fours, wasm_i64x2_shuffle(fours, fours, 1, 1));
    return wasm_f32x4_extract_lane(pairs, 0) + wasm_f32x4_extract_lane(pairs, 1);
}

INLINE v128_t neighbours(v128_t a, v128_t b) {
    return wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}
INLINE f8 sum_groups8(f8 a, f8 b) {
    const v128_t sums = wasm_f32x4_add(neighbours(a.low, b.low), neighbours(a.high, b.high));
    return (f8){sums, sums};
}

/* Transposes four rows of four numbers. */
INLINE void transpose4(v128_t a, v128_t b, v128_t c, v128_t d, float *to, int64_t stride) {
    const v128_t ab = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), cd = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5);
    const v128_t ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7), cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
    wasm_v128_store(to, wasm_i64x2_shuffle(ab, cd, 0, 2));
    wasm_v128_store(to + stride, wasm_i64x2_shuffle(ab, cd, 1, 3));
    wasm_v128_store(to + 2 * stride, wasm_i64x2_shuffle(ab_high, cd_high, 0, 2));
    wasm_v128_store(to + 3 * stride, wasm_i64x2_shuffle(ab_high, cd_high, 1, 3));
}

INLINE void transpose8(const f8 in[8], float *to, int64_t stride) {
    for (int r = 0; r < 8; r += 4) {
        transpose4(in[r].low, in[r + 1].low, in[r + 2].low, in[r + 3].low, to + r, stride);
        transpose4(in[r].high, in[r + 1].high, in[r + 2].high, in[r + 3].high, to + 4 * stride + r, stride);
    }
}

/* --- Panels --- */

#include "simd_halves.h"

#define FLOAT_TILE 2

INLINE v128_t less(v128_t sums, const int32_t *numbers) {
    return wasm_f32x4_convert_i32x4(wasm_i32x4_sub(sums, wasm_v128_load(numbers)));
}

#ifdef __wasm_relaxed_simd__
#define INT8_TILE 2

typedef struct i16 {
    v128_t v[4];
} i16;

INLINE v128_t sums4(i16 sums, int i) { return sums.v[i]; }

INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            UNROLL(MAX_TILE_ROWS)
            for (int r = 0; r < ROWS; r++) {
                const v128_t a = wasm_v128_load32_splat(x + r * depth + 4 * g);
                UNROLL(4)
                for (int i = 0; i < 4; i++) {
                    const v128_t b = wasm_v128_load(w + 64 * g + 16 * i);
                    total[r][p].v[i] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(b, a, total[r][p].v[i]);
                }
            }
        }
    }
}
#else
#define INT8_TILE 1

typedef struct i16 {
    v128_t v[8]; /* two sums of each output */
} i16;

INLINE v128_t sums4(i16 sums, int i) {
    const v128_t a = sums.v[2 * i], b = sums.v[2 * i + 1];
    return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}

INLINE v128_t added(v128_t total, v128_t a, v128_t b) { return wasm_i32x4_add(total, wasm_i32x4_dot_i16x8(a, b)); }

INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            UNROLL(MAX_TILE_ROWS)
            for (int r = 0; r < ROWS; r++) {
                const v128_t a = wasm_u16x8_extend_low_u8x16(wasm_v128_load32_splat(x + r * depth + 4 * g));
                v128_t *t = total[r][p].v;
                UNROLL(4)
                for (int i = 0; i < 4; i++) {
                    const v128_t b = wasm_v128_load(w + 64 * g + 16 * i);
                    t[2 * i] = added(t[2 * i], a, wasm_i16x8_extend_low_i8x16(b));
                    t[2 * i + 1] = added(t[2 * i + 1], a, wasm_i16x8_extend_high_i8x16(b));
                }
            }
        }
    }
}
#endif

INLINE i16 zero16(void) { return (i16){{0}}; }

INLINE f16 minus16(i16 sums, const int32_t *n) {
    return (f16){{less(sums4(sums, 0), n), less(sums4(sums, 1), n + 4)},
                 {less(sums4(sums, 2), n + 8), less(sums4(sums, 3), n + 12)}};
}
