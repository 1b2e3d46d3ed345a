/* See simd.h: AVX-512 with VNNI; a panel is one register. f8 is that of AVX2, with twice the registers. */

#define FLOAT_TILE 24
#define INT8_TILE 24
#define REGISTER_IS_PANEL /* f16 has all operations that `exponential` needs */

typedef __m512 f16;
typedef __m512i i16;

INLINE f16 load16(const float *x) { return _mm512_loadu_ps(x); }
/* See `read8`. */
INLINE f16 read16(const void *x, int64_t i, int half) {
    if (!half) return load16((const float *)x + i);
    const __m256i upper = _mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16));
}
INLINE void store16(float *to, f16 x) { _mm512_storeu_ps(to, x); }
INLINE f16 set16(float x) { return _mm512_set1_ps(x); }
INLINE f16 add16(f16 a, f16 b) { return _mm512_add_ps(a, b); }
INLINE f16 sub16(f16 a, f16 b) { return _mm512_sub_ps(a, b); }
INLINE f16 mul16(f16 a, f16 b) { return _mm512_mul_ps(a, b); }
INLINE f16 div16(f16 a, f16 b) { return _mm512_div_ps(a, b); }
INLINE f16 negative16(f16 x) { return _mm512_or_ps(x, _mm512_set1_ps(-0.0f)); }
INLINE f16 by_sign16(f16 x, f16 negative, f16 positive) {
    return _mm512_mask_mov_ps(positive, _mm512_movepi32_mask(_mm512_castps_si512(x)), negative);
}
INLINE f16 max16(f16 a, f16 b) { return _mm512_max_ps(a, b); }
INLINE f16 fma16(f16 a, f16 b, f16 c) { return _mm512_fmadd_ps(a, b, c); }
INLINE f16 fnma16(f16 a, f16 b, f16 c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE f16 round16(f16 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE f16 power_of_two16(f16 n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
INLINE f16 zero_below16(f16 value, f16 x, f16 least) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), value);
}
INLINE f8 add_halves16(f16 x) { return add8(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
INLINE f8 max_halves16(f16 x) { return max8(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
INLINE i16 zero16(void) { return _mm512_setzero_si512(); }
INLINE f16 minus16(i16 sums, const int32_t *numbers) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, _mm512_loadu_si512(numbers)));
}

/* For `quantise_row`. */
INLINE i16 larger_magnitude16(i16 most, f16 x) {
    return _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX)));
}
INLINE int32_t largest_integer16(i16 x) { return _mm512_reduce_max_epi32(x); }
INLINE void store_levels16(uint8_t *to, f16 x, int zero) {
    const i16 levels = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(zero));
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(levels));
}

/* The groups of four neighbours that are not all zero, and their numbers; returns how many. Sixteen zeros follow them. */
INLINE int nonzero_fours(const uint8_t *x, int count, int32_t *fours, int32_t *numbers) {
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int n = 0;
    for (int i = 0; i < count; i += 16, number = _mm512_add_epi32(number, _mm512_set1_epi32(16))) {
        const __mmask16 exist = count - i < 16 ? (__mmask16)((1 << (count - i)) - 1) : (__mmask16)0xffff;
        const __m512i four = _mm512_maskz_loadu_epi32(exist, x + 4 * i);
        const __mmask16 kept = _mm512_test_epi32_mask(four, four);
        _mm512_storeu_si512(fours + n, _mm512_maskz_compress_epi32(kept, four));
        _mm512_storeu_si512(numbers + n, _mm512_maskz_compress_epi32(kept, number));
        n += __builtin_popcount(kept);
    }
    _mm512_storeu_si512(fours + n, zero16());
    _mm512_storeu_si512(numbers + n, zero16());
    return n;
}
INLINE i16 add_four16(i16 total, int32_t four, const int8_t *w) {
    return _mm512_dpbusd_epi32(total, _mm512_set1_epi32(four), _mm512_load_si512(w));
}
INLINE i16 sum16(i16 a, i16 b) { return _mm512_add_epi32(a, b); }

/* `vpdpbusd` multiplies and adds four neighbours in 32 bits. With few sums, those of a group are computed separately to avoid
   waiting for each other. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    i16 apart[MAX_TILE_ROWS][4];
    UNROLL(4)
    for (int g = 0; g < GROUP / 4; g++) {
        i16 weights[4];
        UNROLL(4)
        for (int p = 0; p < P; p++) weights[p] = _mm512_load_si512(w + PANEL * (p * depth + 4 * g));
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < ROWS; r++) {
            int32_t four;
            memcpy(&four, x + r * depth + 4 * g, 4);
            const i16 a = _mm512_set1_epi32(four);
            UNROLL(4)
            for (int p = 0; p < P; p++) {
                if (ROWS * P >= 4) total[r][p] = _mm512_dpbusd_epi32(total[r][p], a, weights[p]);
                else apart[r][p] = _mm512_dpbusd_epi32(g ? apart[r][p] : zero16(), a, weights[p]);
            }
        }
    }
    if (ROWS * P >= 4) return;
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < ROWS; r++)
        UNROLL(4)
        for (int p = 0; p < P; p++) total[r][p] = _mm512_add_epi32(total[r][p], apart[r][p]);
}
