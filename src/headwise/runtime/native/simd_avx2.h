/* See simd.h: x86-64 with AVX2 and FMA. */

#include <immintrin.h>

typedef __m256 f8;

INLINE f8 load8(const float *x) { return _mm256_loadu_ps(x); }
INLINE void store8(float *to, f8 x) { _mm256_storeu_ps(to, x); }
INLINE f8 set8(float x) { return _mm256_set1_ps(x); }
INLINE f8 add8(f8 a, f8 b) { return _mm256_add_ps(a, b); }
INLINE f8 sub8(f8 a, f8 b) { return _mm256_sub_ps(a, b); }
INLINE f8 mul8(f8 a, f8 b) { return _mm256_mul_ps(a, b); }
INLINE f8 div8(f8 a, f8 b) { return _mm256_div_ps(a, b); }
INLINE f8 max8(f8 a, f8 b) { return _mm256_max_ps(a, b); }

/* a b + c, and c - a b */
INLINE f8 fma8(f8 a, f8 b, f8 c) { return _mm256_fmadd_ps(a, b, c); }
INLINE f8 fnma8(f8 a, f8 b, f8 c) { return _mm256_fnmadd_ps(a, b, c); }

INLINE f8 round8(f8 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

/* 2^n for integers from -126 to 127 */
INLINE f8 power_of_two8(f8 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

/* -|x| */
INLINE f8 negative8(f8 x) { return _mm256_or_ps(x, _mm256_set1_ps(-0.0f)); }

/* Selects lanes by the sign of x. */
INLINE f8 by_sign8(f8 x, f8 negative, f8 positive) { return _mm256_blendv_ps(positive, negative, x); }

/* `value`, or 0 where x < least. */
INLINE f8 zero_below8(f8 value, f8 x, f8 least) { return _mm256_and_ps(value, _mm256_cmp_ps(x, least, _CMP_NLT_UQ)); }

/* x where the mask is -1, 0 where it is 0. */
INLINE f8 select8(i8 mask, f8 x) { return _mm256_and_ps(x, (__m256)mask); }

/* A bit for each lane that is at least `least`. */
INLINE int greater_mask8(f8 x, f8 least) { return _mm256_movemask_ps(_mm256_cmp_ps(x, least, _CMP_GE_OQ)); }

INLINE float reduce_add8(f8 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

#define FAST_REDUCTIONS
INLINE float reduce_max8(f8 x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

INLINE f8 reduce_add8x8(const f8 x[8]) {
    f8 fours[4], twos[2];
    for (int i = 0; i < 4; i++) /* of two vectors: lanes 0 + 4, 1 + 5, 2 + 6, 3 + 7 */
        fours[i] = add8(_mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x20), _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x31));
    for (int i = 0; i < 2; i++) /* of four: the first plus the third of these, the second plus the fourth */
        twos[i] = add8(_mm256_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0x44), _mm256_shuffle_ps(fours[2 * i], fours[2 * i + 1], 0xee));
    const f8 sums = add8(_mm256_shuffle_ps(twos[0], twos[1], 0x88), _mm256_shuffle_ps(twos[0], twos[1], 0xdd));
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Interleaves lanes of a and b for the transposition. */
INLINE f8 sum_groups8(f8 a, f8 b) {
    const f8 pairs = _mm256_hadd_ps(a, b);
    return _mm256_add_ps(pairs, _mm256_permute2f128_ps(pairs, pairs, 1));
}

/* Transposes eight rows of eight numbers into rows `stride` apart. */
INLINE void transpose8(const f8 in[8], float *to, int64_t stride) {
    f8 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        store8(to + i * stride, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
        store8(to + (i + 4) * stride, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
    }
}

#if defined(__AVX512VNNI__) && !defined(NARROW)
#include "simd_avx512.h"
#else

/* --- Panels --- */

#include "simd_halves.h"

#define FLOAT_TILE 6 /* panels of float32 sums that fit in registers */

typedef struct i16 {
    __m256i low, high;
} i16;

INLINE i16 zero16(void) { return (i16){_mm256_setzero_si256(), _mm256_setzero_si256()}; }

/* Sums minus these numbers. */
INLINE f16 minus16(i16 sums, const int32_t *numbers) {
    __m256i low = _mm256_loadu_si256((const __m256i *)numbers), high = _mm256_loadu_si256((const __m256i *)(numbers + 8));
    low = _mm256_sub_epi32(sums.low, low);
    high = _mm256_sub_epi32(sums.high, high);
    return (f16){_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
}

#if defined(__AVXVNNI__) || defined(NARROW)
#include "simd_avxvnni.h"
#else

#define INT8_TILE 3 /* panels of int8 sums that fit in registers */

/* Add the products of GROUP inputs of each row x, `depth` apart, and their weights in P panels. `vpmaddubsw` multiplies and
   adds neighbours in 16 bits; four such sums are added before they are widened. The empty asm keeps the compiler from
   computing all products before the sums, which would need too many registers. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        i16 sum[4];
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            const __m256i low = _mm256_load_si256((const __m256i *)(w + 64 * g));
            const __m256i high = _mm256_load_si256((const __m256i *)(w + 64 * g + 32));
            UNROLL(4)
            for (int r = 0; r < ROWS; r++) {
                int32_t four;
                memcpy(&four, x + r * depth + 4 * g, 4);
                const __m256i a = _mm256_set1_epi32(four);
                const __m256i by_low = _mm256_maddubs_epi16(a, low), by_high = _mm256_maddubs_epi16(a, high);
                sum[r].low = g ? _mm256_add_epi16(sum[r].low, by_low) : by_low;
                sum[r].high = g ? _mm256_add_epi16(sum[r].high, by_high) : by_high;
                __asm__ volatile("" : "+x"(sum[r].low), "+x"(sum[r].high)::"memory");
            }
        }
        UNROLL(4)
        for (int r = 0; r < ROWS; r++) {
            i16 *t = &total[r][p];
            t->low = _mm256_add_epi32(t->low, _mm256_madd_epi16(sum[r].low, ones));
            __asm__ volatile("" : "+x"(t->low));
            t->high = _mm256_add_epi32(t->high, _mm256_madd_epi16(sum[r].high, ones));
            __asm__ volatile("" : "+x"(t->high));
        }
    }
}

#endif
#endif
