/* See simd.h: AVX2 with AVX-VNNI. Compiled for AVX-512's VL and VNNI it is the same instruction in another encoding, so that
   a processor with one of them can test both. */

#ifdef __AVXVNNI__
#define DOT8 _mm256_dpbusd_avx_epi32
#else
#define DOT8 _mm256_dpbusd_epi32
#endif

#define INT8_TILE 6

INLINE __m256i eight_levels(const int8_t *w) { return _mm256_load_si256((const __m256i *)w); }

INLINE i16 dot16(i16 sum, __m256i inputs, const int8_t *w) {
    return (i16){DOT8(sum.low, inputs, eight_levels(w)), DOT8(sum.high, inputs, eight_levels(w + 32))};
}

/* `vpdpbusd` multiplies and adds four neighbours in 32 bits. With few sums, those of a group are computed separately to avoid
   waiting for each other. */
INLINE void add_products(const int ROWS, const int P, i16 total[][4], const uint8_t *x, int64_t depth, const int8_t *w) {
    const int apart = ROWS * P < 4;
    UNROLL(4)
    for (int p = 0; p < P; p++, w += PANEL * depth) {
        i16 sums[MAX_TILE_ROWS];
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            UNROLL(MAX_TILE_ROWS)
            for (int r = 0; r < ROWS; r++) {
                int32_t four;
                memcpy(&four, x + r * depth + 4 * g, 4);
                i16 *sum = apart ? &sums[r] : &total[r][p];
                *sum = dot16(apart && !g ? zero16() : *sum, _mm256_set1_epi32(four), w + 64 * g);
            }
        }
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; apart && r < ROWS; r++) {
            total[r][p].low = _mm256_add_epi32(total[r][p].low, sums[r].low);
            total[r][p].high = _mm256_add_epi32(total[r][p].high, sums[r].high);
        }
    }
}
