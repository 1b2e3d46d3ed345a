/* Section 5.4: residual dropout in one pass over its operands. */

#include "products.h"

#include <immintrin.h>

/* out = residual + scale * x where a draw is at least `smallest_kept`, elsewhere the residual, 0 if that is NULL. */
EXPORT void sightline_drop(const float *x, const float *residual, const int16_t *draws, int smallest_kept, float scale,
                           int64_t n, float *out) {
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256i below = _mm256_set1_epi32(smallest_kept - 1);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i draw = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(draws + i)));
        __m256 kept = _mm256_castsi256_ps(_mm256_cmpgt_epi32(draw, below));
        __m256 value = _mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor), kept);
        if (residual) value = _mm256_add_ps(value, _mm256_loadu_ps(residual + i));
        _mm256_storeu_ps(out + i, value);
    }
    for (; i < n; i++) out[i] = (residual ? residual[i] : 0) + (draws[i] >= smallest_kept ? x[i] * scale : 0);
}
