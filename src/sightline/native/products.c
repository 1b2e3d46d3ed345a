/* See products.h. In int8, inputs have 7 bits: 64 + round(63 x / s), s the largest magnitude of the row, or
   round(127 x / s) where none is negative. `vpmaddubsw` multiplies them with weights of 8 bits and adds neighbouring
   products in 16 bits; GROUP / 4 such results are added before they are widened to 32. No sum can leave 16 bits,
   because the levels of each output are chosen so: 127 times those of one sign that meet there stays below 2^15. So
   all sums are exact, and there is half as much to do as where each product is widened (Marian's intgemm adds in 16
   bits as well, but lets them saturate). */

#include "products.h"

#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE (2 << 20)
#define GROUP 16      /* inputs whose products meet in 16 bits, eight in each of two sums */
#define LARGEST 127   /* level of an input */
#define MOST 258      /* of the levels of one sign in a sum: 127 * 258 < 2^15 */
#define ROWS 48       /* computed together: their levels stay in the processor's second cache */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Of which sources the library was made: `version` in build.py. */
int sightline_version(void) { return SIGHTLINE_VERSION; }

void *room(Buffer *buffer, int64_t size) {
    if (buffer->size < size) {
        free(buffer->bytes);
        size = (size + size / 2 + 63) / 64 * 64;
        buffer->bytes = aligned_alloc(64, size);
        buffer->size = buffer->bytes ? size : 0;
    }
    return buffer->bytes;
}

/* --- Packing --- */

static int panels(const Linear *layer) { return (layer->d_out + PANEL - 1) / PANEL; }

/* Large blocks lie in large pages where the system has them: a single sentence waits for little but weights. */
static void *zeros(int64_t size) {
    const int64_t unit = size < LARGE_PAGE / 2 ? 64 : LARGE_PAGE;
    size = (size + 64 + unit - 1) / unit * unit;
    void *bytes = aligned_alloc(unit, size);
#ifdef MADV_HUGEPAGE
    if (bytes && unit == LARGE_PAGE) madvise(bytes, size, MADV_HUGEPAGE);
#endif
    if (bytes) memset(bytes, 0, size);
    return bytes;
}

static Linear *blank(int d_out, int d_in, int int8, int zero) {
    Linear *layer = calloc(1, sizeof(Linear));
    if (!layer) return NULL;
    layer->d_in = d_in, layer->d_out = d_out, layer->zero = zero;
    layer->depth = int8 ? (d_in + GROUP - 1) / GROUP * GROUP : d_in;
    int64_t columns = (int64_t)panels(layer) * PANEL;
    layer->bias = zeros(4 * columns);
    int complete = layer->bias != NULL;
    if (int8) {
        layer->levels = zeros(columns * layer->depth);
        layer->shifts = zeros(4 * columns);
        layer->scales = zeros(4 * columns);
        complete = complete && layer->levels && layer->shifts && layer->scales;
    } else {
        layer->values = zeros(4 * columns * layer->depth);
        complete = complete && layer->values;
    }
    if (complete) return layer;
    sightline_linear_free(layer);
    return NULL;
}

/* Where the level of an output and an input stands. */
static int64_t place(const Linear *layer, int output, int input) {
    int64_t panel = (int64_t)(output / PANEL) * PANEL * layer->depth;
    return panel + (int64_t)(input / 4) * PANEL * 4 + (output % PANEL) * 4 + input % 4;
}

/* The level of each of eight weights. */
INLINE __m256 rounded_levels(__m256 weights, float inverse) {
    __m256 scaled = _mm256_mul_ps(weights, _mm256_set1_ps(inverse));
    return _mm256_round_ps(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* The largest sum of levels of one sign that meet in 16 bits: of the first and third, or the second and fourth pair of
   each eight inputs of a group. `weight` has `depth` numbers, a multiple of GROUP. */
static float heaviest(const float *weight, int depth, float inverse) {
    __m256 most = _mm256_setzero_ps();
    for (int i = 0; i < depth; i += GROUP) {
        __m256 a = rounded_levels(_mm256_loadu_ps(weight + i), inverse);
        __m256 b = rounded_levels(_mm256_loadu_ps(weight + i + 8), inverse), none = _mm256_setzero_ps();
        __m256 above = _mm256_add_ps(_mm256_max_ps(a, none), _mm256_max_ps(b, none));
        __m256 below = _mm256_add_ps(_mm256_min_ps(a, none), _mm256_min_ps(b, none));
        __m256 pairs = _mm256_hadd_ps(above, _mm256_sub_ps(none, below));
        most = _mm256_max_ps(most, _mm256_add_ps(pairs, _mm256_permute2f128_ps(pairs, pairs, 1)));
    }
    float sums[8], largest = 0;
    _mm256_storeu_ps(sums, most);
    for (int i = 0; i < 8; i++) largest = MAX(largest, sums[i]);
    return largest;
}

/* The finest scale with which an output's levels keep within their bounds. */
static float finest_scale(const float *weight, int depth) {
    float largest = 1e-30f;
    for (int i = 0; i < depth; i++) {
        if (!isfinite(weight[i])) return NAN; /* and so will the output be */
        largest = MAX(largest, fabsf(weight[i]));
    }
    float scale = largest / 127;
    scale *= MAX(1, heaviest(weight, depth, 1 / scale) / (MOST + 4)); /* with half a level for each of eight to spare */
    while (heaviest(weight, depth, 1 / scale) > MOST) scale *= 1.002f;
    return scale;
}

/* `padded` has room for the depth of the layer, `levels` too. */
static void pack_levels(Linear *layer, int output, const float *weight, float *padded, int8_t *levels) {
    const int depth = layer->depth;
    memcpy(padded, weight, 4 * (size_t)layer->d_in);
    for (int i = layer->d_in; i < depth; i++) padded[i] = 0;
    const float scale = finest_scale(padded, depth);
    int32_t total = 0;
    for (int i = 0; i < depth; i += 8) {
        float eight[8];
        _mm256_storeu_ps(eight, rounded_levels(_mm256_loadu_ps(padded + i), 1 / scale));
        for (int j = 0; j < 8; j++) levels[i + j] = isfinite(scale) ? (int8_t)eight[j] : 0, total += levels[i + j];
    }
    int8_t *to = layer->levels + place(layer, output, 0);
    for (int i = 0; i < depth; i += 4) memcpy(to + (int64_t)i * PANEL, levels + i, 4);
    layer->scales[output] = scale;
    layer->shifts[output] = layer->zero * total;
}

static void pack_values(Linear *layer, int output, const float *weight) {
    float *panel = layer->values + (int64_t)(output / PANEL) * PANEL * layer->depth;
    for (int i = 0; i < layer->d_in; i++) panel[(int64_t)i * PANEL + output % PANEL] = weight[i];
}

/* A layer from its weight (d_out, d_in) and its bias (d_out) or NULL; NULL without memory. `after_relu`: its inputs are
   never negative. */
Linear *sightline_linear(const float *weight, const float *bias, int d_out, int d_in, int int8, int after_relu) {
    Linear *layer = blank(d_out, d_in, int8, after_relu ? 0 : 64);
    float *padded = layer ? malloc(5 * (size_t)layer->depth + 64) : NULL;
    if (!padded) {
        sightline_linear_free(layer);
        return NULL;
    }
    for (int o = 0; o < d_out; o++) {
        const float *row = weight + (int64_t)o * d_in;
        if (int8) pack_levels(layer, o, row, padded, (int8_t *)(padded + layer->depth));
        else pack_values(layer, o, row);
    }
    if (bias) memcpy(layer->bias, bias, 4 * (size_t)d_out);
    free(padded);
    return layer;
}

/* The layer of some outputs of another, in this order; each yields what it does there. */
Linear *sightline_linear_rows(const Linear *layer, const int32_t *rows, int count) {
    Linear *few = blank(count, layer->d_in, layer->levels != NULL, layer->zero);
    if (!few) return NULL;
    for (int o = 0; o < count; o++) {
        few->bias[o] = layer->bias[rows[o]];
        if (layer->levels) {
            few->scales[o] = layer->scales[rows[o]];
            few->shifts[o] = layer->shifts[rows[o]];
            int8_t *to = few->levels + place(few, o, 0);
            const int8_t *from = layer->levels + place(layer, rows[o], 0);
            for (int i = 0; i < layer->depth / 4; i++) memcpy(to + i * 4 * PANEL, from + i * 4 * PANEL, 4);
        } else {
            float *to = few->values + (int64_t)(o / PANEL) * PANEL * few->depth + o % PANEL;
            const float *from = layer->values + (int64_t)(rows[o] / PANEL) * PANEL * layer->depth + rows[o] % PANEL;
            for (int i = 0; i < layer->depth; i++) to[i * PANEL] = from[i * PANEL];
        }
    }
    return few;
}

void sightline_linear_free(Linear *layer) {
    if (!layer) return;
    free(layer->levels), free(layer->shifts), free(layer->scales), free(layer->values), free(layer->bias);
    free(layer);
}

/* The levels (d_out, d_in) and the scale of each output: W is about scale * level. */
void sightline_levels(const Linear *layer, int8_t *levels, float *scales) {
    for (int o = 0; o < layer->d_out; o++) {
        scales[o] = layer->scales[o];
        for (int i = 0; i < layer->d_in; i++)
            levels[(int64_t)o * layer->d_in + i] = layer->levels[place(layer, o, i)];
    }
}

/* What tiles have not done: of their outputs they know but whether they are below 0. */
static void finish(const Linear *layer, float *y, int rows, int64_t stride, Activation kind) {
    if (kind <= RELU) return;
    for (int r = 0; r < rows; r++) sightline_activate(kind, y + r * stride, layer->d_out);
}

/* --- Products in 8-bit integers --- */

/* Compared as integers, which sort magnitudes as they are and put above them all what is no number. */
INLINE float largest_magnitude(const float *x, int n) {
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    __m256i most = _mm256_setzero_si256();
    int i = 0;
    for (; i + 8 <= n; i += 8)
        most = _mm256_max_epi32(most, _mm256_and_si256(magnitude, _mm256_loadu_si256((const __m256i *)(x + i))));
    int32_t parts[8], bits, largest = 0;
    _mm256_storeu_si256((__m256i *)parts, most);
    for (int j = 0; j < 8; j++) largest = MAX(largest, parts[j]);
    for (; i < n; i++) {
        memcpy(&bits, x + i, 4);
        largest = MAX(largest, bits & INT32_MAX);
    }
    float found;
    memcpy(&found, &largest, 4);
    return found;
}

/* The levels of a row of inputs, padded to the layer's depth; their scale. */
static float round_row(const Linear *layer, const float *x, uint8_t *levels) {
    const int n = layer->d_in, zero = layer->zero, steps = LARGEST - zero;
    const float largest = largest_magnitude(x, n);
    const float inverse = largest > 0 ? steps / largest : 0;
    const __m256 factor = _mm256_set1_ps(inverse);
    const __m256i offset = _mm256_set1_epi32(zero), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i q[4];
        for (int j = 0; j < 4; j++) {
            __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), factor);
            q[j] = _mm256_add_epi32(_mm256_cvtps_epi32(scaled), offset);
        }
        __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        _mm256_storeu_si256((__m256i *)(levels + i), bytes);
    }
    for (; i < n; i++) levels[i] = (uint8_t)(lrintf(x[i] * inverse) + zero);
    for (; i < layer->depth; i++) levels[i] = 0;
    return largest / steps;
}

/* MR rows by one panel, columns `n` of y. The empty asm keeps the compiler from moving all products ahead of the sums,
   for which there are no registers. */
INLINE void int8_tile(const int MR, const Linear *layer, const uint8_t *x, const float *x_scales, int panel, float *y,
                      int64_t stride, int relu) {
    const int depth = layer->depth;
    const int8_t *w = layer->levels + (int64_t)panel * PANEL * depth;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i total[4][2];
    UNROLL(4)
    for (int r = 0; r < MR; r++) total[r][0] = total[r][1] = _mm256_setzero_si256();
    for (int k = 0; k < depth; k += GROUP, w += GROUP * PANEL) {
        __m256i sum[4][2];
        UNROLL(4)
        for (int g = 0; g < GROUP / 4; g++) {
            __m256i w0 = _mm256_load_si256((const __m256i *)(w + 64 * g));
            __m256i w1 = _mm256_load_si256((const __m256i *)(w + 64 * g + 32));
            UNROLL(4)
            for (int r = 0; r < MR; r++) {
                int32_t four;
                memcpy(&four, x + (int64_t)r * depth + k + 4 * g, 4);
                __m256i a = _mm256_set1_epi32(four);
                __m256i p0 = _mm256_maddubs_epi16(a, w0), p1 = _mm256_maddubs_epi16(a, w1);
                sum[r][0] = g ? _mm256_add_epi16(sum[r][0], p0) : p0;
                sum[r][1] = g ? _mm256_add_epi16(sum[r][1], p1) : p1;
                __asm__ volatile("" : "+x"(sum[r][0]), "+x"(sum[r][1])::"memory");
            }
        }
        UNROLL(4)
        for (int r = 0; r < MR; r++) {
            UNROLL(2)
            for (int c = 0; c < 2; c++) {
                total[r][c] = _mm256_add_epi32(total[r][c], _mm256_madd_epi16(sum[r][c], ones));
                __asm__ volatile("" : "+x"(total[r][c]));
            }
        }
    }
    const int n = panel * PANEL;
    UNROLL(4)
    for (int r = 0; r < MR; r++) {
        float out[PANEL];
        const __m256 x_scale = _mm256_set1_ps(x_scales[r]);
        UNROLL(2)
        for (int c = 0; c < 2; c++) {
            __m256i shift = _mm256_load_si256((const __m256i *)(layer->shifts + n + 8 * c));
            __m256 exact = _mm256_cvtepi32_ps(_mm256_sub_epi32(total[r][c], shift));
            __m256 scale = _mm256_mul_ps(x_scale, _mm256_load_ps(layer->scales + n + 8 * c));
            __m256 value = _mm256_fmadd_ps(exact, scale, _mm256_load_ps(layer->bias + n + 8 * c));
            if (relu) value = _mm256_max_ps(_mm256_setzero_ps(), value); /* of two, the latter if one is NaN */
            if (n + PANEL <= layer->d_out) _mm256_storeu_ps(y + r * stride + n + 8 * c, value);
            else _mm256_storeu_ps(out + 8 * c, value);
        }
        if (n + PANEL > layer->d_out) memcpy(y + r * stride + n, out, 4 * (size_t)(layer->d_out - n));
    }
}

static int apply_int8(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride,
                      Activation kind, Scratch *scratch) {
    uint8_t *levels = room(&scratch->levels, (int64_t)MIN(rows, ROWS) * layer->depth);
    if (!levels) return -1;
    float scales[ROWS];
    for (int first = 0; first < rows; first += ROWS) {
        if (stopped(scratch)) return -1;
        const int count = MIN(ROWS, rows - first), depth = layer->depth;
        for (int r = 0; r < count; r++)
            scales[r] = round_row(layer, x + (first + r) * x_stride, levels + (int64_t)r * depth);
        const int relu = kind == RELU;
        for (int p = 0; p < panels(layer); p++) {
            int r = 0;
            float *out = y + first * y_stride;
#define TILE(MR) int8_tile(MR, layer, levels + (int64_t)r * depth, scales + r, p, out + r * y_stride, y_stride, relu)
            for (; r + 3 <= count; r += 3) TILE(3);
            if (r + 2 == count) TILE(2);
            else if (r + 1 == count) TILE(1);
#undef TILE
        }
        finish(layer, y + first * y_stride, count, y_stride, kind);
    }
    return 0;
}

/* --- Products in float32 --- */

/* MR rows by P panels; every output is one chain of additions, whatever MR and P. */
INLINE void float_tile(const int MR, const int P, const Linear *layer, const float *x, int64_t x_stride, int panel,
                       float *y, int64_t stride, int relu) {
    const int depth = layer->depth;
    const float *w = layer->values + (int64_t)panel * PANEL * depth;
    __m256 total[6][8];
    UNROLL(6)
    for (int r = 0; r < MR; r++)
        UNROLL(8)
        for (int c = 0; c < 2 * P; c++) total[r][c] = _mm256_setzero_ps();
    for (int k = 0; k < depth; k++) {
        UNROLL(6)
        for (int r = 0; r < MR; r++) {
            __m256 a = _mm256_broadcast_ss(x + r * x_stride + k);
            UNROLL(8)
            for (int c = 0; c < 2 * P; c++) {
                const float *at = w + ((int64_t)(c / 2) * depth + k) * PANEL + 8 * (c % 2);
                total[r][c] = _mm256_fmadd_ps(a, _mm256_load_ps(at), total[r][c]);
            }
        }
    }
    UNROLL(6)
    for (int r = 0; r < MR; r++) {
        UNROLL(8)
        for (int c = 0; c < 2 * P; c++) {
            const int n = (panel + c / 2) * PANEL + 8 * (c % 2);
            __m256 value = _mm256_add_ps(total[r][c], _mm256_load_ps(layer->bias + n));
            if (relu) value = _mm256_max_ps(_mm256_setzero_ps(), value); /* of two, the latter if one is NaN */
            if (n + 8 <= layer->d_out) {
                _mm256_storeu_ps(y + r * stride + n, value);
            } else if (n < layer->d_out) {
                float out[8];
                _mm256_storeu_ps(out, value);
                memcpy(y + r * stride + n, out, 4 * (size_t)(layer->d_out - n));
            }
        }
    }
}

static int apply_float(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride,
                       Activation kind, const Scratch *scratch) {
    const int all = panels(layer), relu = kind == RELU;
    for (int first = 0; first < rows; first += ROWS) {
        if (stopped(scratch)) return -1;
        const int end = MIN(rows, first + ROWS);
        int p = 0;
#define TILE(MR, P) float_tile(MR, P, layer, x + r * x_stride, x_stride, p, y + r * y_stride, y_stride, relu)
        if (end - first == 1) { /* one chain alone would wait for each of its additions */
            int r = first;
            for (; p + 4 <= all; p += 4) TILE(1, 4);
        }
        if (end - first == 2) {
            int r = first;
            for (; p + 2 <= all; p += 2) TILE(2, 2);
        }
        for (; p < all; p++) {
            int r = first;
            for (; r + 6 <= end; r += 6) TILE(6, 1);
            if (r + 4 <= end) { TILE(4, 1); r += 4; }
            if (r + 3 == end) TILE(3, 1);
            else if (r + 2 == end) TILE(2, 1);
            else if (r + 1 == end) TILE(1, 1);
        }
#undef TILE
        finish(layer, y + first * y_stride, end - first, y_stride, kind);
    }
    return 0;
}

int apply(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride, Activation kind,
          Scratch *scratch) {
    if (layer->levels) return apply_int8(layer, x, rows, x_stride, y, y_stride, kind, scratch);
    return apply_float(layer, x, rows, x_stride, y, y_stride, kind, scratch);
}

/* `apply` to rows without gaps; 0, or -1 without memory. */
int sightline_apply(const Linear *layer, const float *x, int rows, float *y) {
    Scratch scratch = {0};
    int failed = apply(layer, x, rows, layer->d_in, y, layer->d_out, NONE, &scratch);
    free(scratch.levels.bytes);
    return failed;
}
