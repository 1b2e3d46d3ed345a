/* See products.h. In int8, inputs are quantised to 7 bits: 64 + round(63 x / s), with s the largest magnitude of the row, or of a
   block, or round(127 x / s) if none is negative. `vpmaddubsw` multiplies them with 8-bit weights and adds neighbouring products in 16
   bits; GROUP / 4 such results are added before they are widened to 32 bits. The scale of each output is chosen so that no
   16-bit sum overflows: 127 times the sum of its weights of one sign stays below 2^15. So sums are exact, with half of the
   work of widening each product (Marian's intgemm adds in 16 bits, too, but saturates). */

#include "products.h"

#include "pool.h"

#define HEADER_SIZE ((sizeof(Linear) + 63) / 64 * 64)
#define MAX_INPUT 127   /* quantised input */
#define INPUT_BLOCK (2 * GROUP) /* inputs with a scale of their own */
#define MAX_GROUP_SUM 258      /* of weights of one sign in a sum: 127 * 258 < 2^15 */
/* Rows computed together, so that inputs stay in L2; with AMX the rows of three tiles. */
#ifdef __AMX_INT8__
#define BLOCK_ROWS 48
#else
#define BLOCK_ROWS 96
#endif
/* Tiles prefetch weights: those of the same rows of inputs share the work for the next panels; with few rows, each the
   weights that it will soon need itself. */
#define LINE 64   /* bytes of a cache line */
#define NEAR 8192 /* bytes: further than the processor's own prefetchers, which stop at 4,096 */

/* The checksum of the sources: `version` in build.py. */
int headwise_version(void) { return HEADWISE_VERSION; }

void *reserve(Buffer *buffer, int64_t size) {
    if (!buffer->bytes || buffer->size < size) { /* never NULL for size 0, since NULL means out of memory */
        release(buffer);
        buffer->bytes = take_block(size + size / 2 + 64);
        buffer->size = buffer->bytes ? block_size(buffer->bytes) : 0;
    }
    return buffer->bytes;
}

void release(Buffer *buffer) {
    give_block(buffer->bytes);
    *buffer = (Buffer){0};
}

/* --- Packing --- */

static int panel_count(const Linear *layer) { return (layer->d_out + PANEL - 1) / PANEL; }

/* Inputs that are quantised together with a scale of their own, or added at once. */
static int inputs_at_once(Numbers numbers) { return numbers == INT8 ? GROUP : numbers == INT4 ? 2 * GROUP : 1; }

static int64_t padded_depth(int d_in, Numbers numbers) {
    const int unit = inputs_at_once(numbers);
    return ((int64_t)d_in + unit - 1) / unit * unit;
}

/* Of weights, with the scales of int4. */
static int64_t bits_per_weight(Numbers numbers) { return numbers == FLOAT32 ? 32 : numbers == BFLOAT16 ? 16 : numbers == INT8 ? 8 : 5; }

int64_t headwise_linear_size(int d_out, int d_in, Numbers numbers) {
    const int64_t columns = (d_out + PANEL - 1) / PANEL * PANEL, depth = padded_depth(d_in, numbers);
    return HEADER_SIZE + columns * (numbers == INT8 ? 12 : 4) + columns * depth * bits_per_weight(numbers) / 8;
}

/* An empty layer in zeroed memory; all its parts are padded to registers. */
static Linear *init_linear(void *zeros, int d_out, int d_in, Numbers numbers, int zero, int in_blocks) {
    Linear *layer = zeros;
    *layer = (Linear){.d_in = d_in, .d_out = d_out, .depth = padded_depth(d_in, numbers), .zero_point = zero};
    layer->numbers = numbers;
    layer->in_blocks = in_blocks || numbers == INT4;
    const int64_t columns = (int64_t)panel_count(layer) * PANEL;
    char *parts = (char *)zeros + HEADER_SIZE;
    layer->bias = (float *)parts;
    if (numbers != INT8) {
        layer->values = parts + 4 * columns;
        return layer;
    }
    layer->compensation = (int32_t *)(parts + 4 * columns);
    layer->scales = (float *)(parts + 8 * columns);
    layer->quantised = (int8_t *)(parts + 12 * columns);
    return layer;
}

/* Offset of a quantised weight. */
static int64_t int8_index(const Linear *layer, int output, int input) {
    int64_t panel = (int64_t)(output / PANEL) * PANEL * layer->depth;
    return panel + (int64_t)(input / 4) * PANEL * 4 + (output % PANEL) * 4 + input % 4;
}

/* Offset of the weights of an output, which are PANEL numbers apart. */
static int64_t float_index(const Linear *layer, int output) {
    return (int64_t)(output / PANEL) * PANEL * layer->depth + output % PANEL;
}

/* Sums of weights of one sign that are added in 16 bits: in a group, the first and third, or the second and fourth pair of
   each eight inputs. */
INLINE f8 group_sums(const float *weight, f8 inverse) {
    const f8 none = set8(0);
    f8 a = round8(mul8(load8(weight), inverse)), b = round8(mul8(load8(weight + 8), inverse));
    f8 above = add8(max8(a, none), max8(b, none)), below = sub8(above, add8(a, b));
    return sum_groups8(above, below);
}

/* The largest such sum. `weight` has `depth` numbers, a multiple of GROUP. */
static float largest_group_sum(const float *weight, int depth, float inverse) {
    f8 most = set8(0);
    for (int i = 0; i < depth; i += GROUP) most = max8(most, group_sums(weight + i, set8(inverse)));
    float sums[8], largest = 0;
    store8(sums, most);
    for (int i = 0; i < 8; i++) largest = MAX(largest, sums[i]);
    return largest;
}

/* Compared as integers: magnitudes keep their order, and NaN is the largest. */
static float largest_magnitude(const float *x, int n) {
    int32_t largest = 0;
    int i = 0;
#ifdef REGISTER_IS_PANEL
    i16 most[2] = {zero16(), zero16()};
    for (; i + 2 * PANEL <= n; i += 2 * PANEL)
        for (int j = 0; j < 2; j++) most[j] = larger_magnitude16(most[j], load16(x + i + j * PANEL));
    largest = MAX(largest_integer16(most[0]), largest_integer16(most[1]));
#endif
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, 4);
        largest = MAX(largest, bits & INT32_MAX);
    }
    float found;
    memcpy(&found, &largest, 4);
    return found;
}

/* The finest scale for which an output's sums stay within the bound. A coarser scale increases no quantised weight, so groups
   within the bound stay there. */
static float weight_scale(const float *weight, int depth) {
    const float largest = largest_magnitude(weight, depth);
    if (!isfinite(largest)) return NAN; /* the output will be NaN, too */
    float scale = MAX(1e-30f, largest) / 127;
    scale *= MAX(1, largest_group_sum(weight, depth, 1 / scale) / (MAX_GROUP_SUM + 4)); /* with a margin for rounding */
    f8 inverse = set8(1 / scale);
    for (int i = 0; i < depth; i += GROUP)
        while (greater_mask8(group_sums(weight + i, inverse), set8(MAX_GROUP_SUM + 1))) {
            scale *= 1.002f;
            inverse = set8(1 / scale);
        }
    return scale;
}

/* `levels` and `weight` have the padded depth of the layer. */
static void pack_int8(Linear *layer, int output, const float *weight, int8_t *levels) {
    const int depth = layer->depth;
    const float scale = weight_scale(weight, depth);
    int32_t total = 0;
    const float inverse = isfinite(scale) ? 1 / scale : 0;
    for (int i = 0; i < depth; i++) {
        levels[i] = isfinite(scale) ? (int8_t)rintf(weight[i] * inverse) : 0;
        total += levels[i];
    }
    int8_t *to = layer->quantised + int8_index(layer, output, 0);
    for (int i = 0; i < depth; i += 4) memcpy(to + (int64_t)i * PANEL, levels + i, 4);
    layer->scales[output] = scale;
    layer->compensation[output] = layer->zero_point * total;
}

/* Half a panel: up to eight outputs from `output` on. */
static void pack_float(Linear *layer, int output, const float *weight) {
    const int64_t d_in = layer->d_in, count = MIN(8, layer->d_out - output);
    const int64_t to = float_index(layer, output);
    const int half = layer->numbers == BFLOAT16;
    float columns[64] = {0}; /* of eight inputs, or one; missing outputs stay 0 */
    int64_t i = 0;
    for (; count == 8 && i + 8 <= d_in; i += 8) {
        f8 block[8];
        for (int o = 0; o < 8; o++) block[o] = load8(weight + o * d_in + i);
        transpose8(block, columns, 8);
        for (int k = 0; k < 8; k++) write8(layer->values, to + (i + k) * PANEL, load8(columns + 8 * k), half);
    }
    for (; i < d_in; i++) {
        for (int o = 0; o < count; o++) columns[o] = weight[o * d_in + i];
        write8(layer->values, to + i * PANEL, load8(columns), half);
    }
}

/* The quantised weights (d_out, d_in) and the scale of each output: W is about scale * level. */
void headwise_quantised_weights(const Linear *layer, int8_t *levels, float *scales) {
    for (int o = 0; o < layer->d_out; o++) {
        scales[o] = layer->scales[o];
        for (int i = 0; i < layer->d_in; i++)
            levels[(int64_t)o * layer->d_in + i] = layer->quantised[int8_index(layer, o, i)];
    }
}

void headwise_to_bfloat16(const float *x, int64_t n, uint16_t *to) { convert(x, 0, n, to, 1); }

/* --- Tiles --- */

/* Rows of inputs, quantised or not, and where their outputs go. */
typedef struct Product {
    const Linear *layer;
    const void *x;
    const float *x_scales; /* int8: of each row, or of each of its blocks */
    float *y;
    int64_t x_stride, y_stride;
    int rows;
    Activation kind;
} Product;

/* Some rows from `row` on and some panels from `panel` on. */
typedef void Tile(const Product *product, int row, int panel);

/* A function for each shape, MR rows by P panels, which stores its sums at the end. With several shapes in one function, gcc
   would store every sum in every iteration. */
#define TILE(KIND, MR, P) \
    static __attribute__((noinline)) void KIND##_##MR##_##P(const Product *product, int row, int panel) { \
        KIND##_tile(MR, P, product, row, panel); \
    }
#define TILES(KIND, P) \
    TILE(KIND, 1, P) TILE(KIND, 2, P) TILE(KIND, 3, P) TILE(KIND, 4, P) TILE(KIND, 5, P) TILE(KIND, 6, P)

#define COMPILER_BARRIER(sums) __asm__ volatile("" : : "r"(sums) : "memory")

/* Functions for P panels, with as many rows as SUMS panels of sums fit in registers. */
#define FITTING(KIND, SUMS, MR, P) MR * P <= SUMS ? KIND##_##MR##_##P : NULL
#define HEIGHTS(KIND, SUMS, P) \
    {FITTING(KIND, SUMS, 1, P), FITTING(KIND, SUMS, 2, P), FITTING(KIND, SUMS, 3, P), \
     FITTING(KIND, SUMS, 4, P), FITTING(KIND, SUMS, 5, P), FITTING(KIND, SUMS, 6, P)}

/* All rows and the panels from `panel` to before `end`, up to `wide` panels at a time, in tiles of similar height. */
static void run_tiles(const Product *product, int panel, int end, Tile *const (*shapes)[MAX_TILE_ROWS], int sums, int wide) {
    const int rows = product->rows;
    for (int width; panel < end; panel += width) {
        width = wide >= 4 && panel + 4 <= end ? 4 : wide >= 2 && panel + 2 <= end ? 2 : 1;
        const int tallest = MIN(MAX_TILE_ROWS, sums / width);
        int left = (rows + tallest - 1) / tallest;
        for (int row = 0, height; row < rows; row += height, left--) {
            height = (rows - row + left - 1) / left;
            shapes[width / 2][height - 1](product, row, panel);
        }
    }
}

/* The rest of an activation after the tiles of some panels. */
static void activation_epilogue(const Product *product, int panel, int end) {
    const int first = panel * PANEL, outputs = MIN(end * PANEL, product->layer->d_out) - first;
    if (product->kind <= RELU) return;
    for (int r = 0; r < product->rows; r++) headwise_activate(product->kind, product->y + r * product->y_stride + first, outputs);
}

/* A product of some panels. */
typedef void Panels(const Product *product, int panel, int end);

typedef struct SharedProduct {
    const Product *product;
    Panels *panels;
} SharedProduct;

/* A part of the panels: whole groups of four, which a tile computes together. */
static void run_part(void *data, int part, int parts) {
    const SharedProduct *shared = data;
    const int all = panel_count(shared->product->layer), fours = (all + 3) / 4;
    const int panel = 4 * (int)((int64_t)fours * part / parts), end = MIN(all, 4 * (int)((int64_t)fours * (part + 1) / parts));
    shared->panels(shared->product, panel, end);
    activation_epilogue(shared->product, panel, end);
}

/* All panels, on several threads if there is enough work. */
static void run_panels(const Product *product, Panels *panels) {
    SharedProduct shared = {product, panels};
    const int fours = (panel_count(product->layer) + 3) / 4;
    const int parts = parts_for((int64_t)product->rows * product->layer->depth * product->layer->d_out);
    run_parts(MIN(parts, fours), run_part, &shared);
}

/* --- Products in 8-bit integers --- */

/* The scales of a row of inputs. */
static int scales_of_row(const Linear *layer) { return layer->in_blocks ? (layer->depth + INPUT_BLOCK - 1) / INPUT_BLOCK : 1; }

/* Quantises `n` inputs to `padded` levels; returns the scale. */
static float quantise(const float *restrict x, int n, int padded, int zero, uint8_t *restrict levels) {
    const int steps = MAX_INPUT - zero;
    const float largest = largest_magnitude(x, n), quotient = steps / largest;
    const float inverse = isfinite(quotient) ? quotient : 0; /* for zeros and NaN */
    int i = 0;
#ifdef REGISTER_IS_PANEL
    for (; i + PANEL <= n; i += PANEL) store_levels16(levels + i, mul16(load16(x + i), set16(inverse)), zero);
#endif
    for (; i < n; i++) levels[i] = (uint8_t)((int)rintf(x[i] * inverse) + zero);
    for (; i < padded; i++) levels[i] = 0;
    return largest / steps;
}

/* Quantises a row of inputs, padded to the layer's depth. */
static void quantise_row(const Linear *layer, const float *x, uint8_t *levels, float *scales) {
    const int width = layer->in_blocks ? INPUT_BLOCK : layer->depth;
    for (int k = 0; k < layer->depth; k += width, scales++)
        *scales = quantise(x + MIN(k, layer->d_in), MAX(0, MIN(width, layer->d_in - k)), MIN(width, layer->depth - k),
                           layer->zero_point, levels + k);
}

/* Stores the outputs of a row in a panel, as far as they exist, after a ReLU if it follows. */
INLINE void store_panel(const Product *product, int row, int panel, f16 values) {
    const Linear *layer = product->layer;
    const int n = panel * PANEL;
    float out[PANEL], *y = product->y + row * product->y_stride;
    if (product->kind == RELU) values = max16(set16(0), values);
    if (n + PANEL <= layer->d_out) {
        store16(y + n, values);
    } else {
        store16(out, values);
        memcpy(y + n, out, 4 * (size_t)(layer->d_out - n));
    }
}

/* The sums are stored before they become outputs: kept in registers, gcc would move them in every iteration. */
INLINE void int8_tile(const int MR, const int P, const Product *product, int row, int panel) {
    const Linear *layer = product->layer;
    const int64_t depth = layer->depth, size = P * PANEL * depth;
    const int8_t *w = layer->quantised + panel * PANEL * depth, *end = w + PANEL * depth;
    const uint8_t *x = (const uint8_t *)product->x + row * depth;
    i16 total[MAX_TILE_ROWS][4], sums[MAX_TILE_ROWS][4];
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++)
        UNROLL(4)
        for (int p = 0; p < P; p++) total[r][p] = zero16();
    const int8_t *next = w + (P == 1 ? NEAR : size + row * size / product->rows);
    const int64_t step = LINE * (P == 1 ? 4 : (4 * P * MR + product->rows - 1) / product->rows);
    for (; w < end; x += GROUP, w += GROUP * PANEL, next += step) {
        for (int64_t i = 0; i < step; i += LINE) __builtin_prefetch(next + i, 0, 2); /* to L2 */
        add_products(MR, P, total, x, depth, w);
    }
    sums_by_row(MR, P, total);
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++)
        UNROLL(4)
        for (int p = 0; p < P; p++) sums[r][p] = total[r][p];
    COMPILER_BARRIER(sums);
    const int n = panel * PANEL, count = MIN(P * PANEL, layer->d_out - n);
    float room[MAX_TILE_ROWS * 4 * PANEL], *to = product->y + row * product->y_stride + n;
    float *y = count == P * PANEL ? to : room; /* the last panel may be padded */
    const int64_t stride = y == to ? product->y_stride : P * PANEL;
    const f16 least = set16(product->kind == RELU ? 0 : -INFINITY);
    UNROLL(4)
    for (int p = 0; p < P; p++) {
        const int from = n + p * PANEL;
        const f16 scales = load16(layer->scales + from), bias = load16(layer->bias + from);
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++) {
            const f16 scale = mul16(set16(product->x_scales[row + r]), scales);
            const f16 value = fma16(minus16(sums[r][p], layer->compensation + from), scale, bias);
            store16(y + r * stride + p * PANEL, max16(least, value));
        }
    }
    for (int r = 0; y == room && r < MR; r++) memcpy(to + r * product->y_stride, room + r * stride, 4 * (size_t)count);
}

TILES(int8, 1) TILES(int8, 2) TILES(int8, 4)
static Tile *const INT8_TILES[3][MAX_TILE_ROWS] = {
    HEIGHTS(int8, INT8_TILE, 1), HEIGHTS(int8, INT8_TILE, 2), HEIGHTS(int8, INT8_TILE, 4)};

/* The same for inputs that are quantised in blocks. Their sums are exact, and added one after another in float32. `zero_point` is
   multiplied with the weights like a row of inputs. */
INLINE void int8_block_tile(const int MR, const int P, const Product *product, int row, int panel) {
    const Linear *layer = product->layer;
    const int64_t depth = layer->depth, blocks = scales_of_row(layer);
    const int8_t *w = layer->quantised + panel * PANEL * depth;
    const uint8_t *x = (const uint8_t *)product->x + row * depth;
    const float *x_scales = product->x_scales + row * blocks;
    static const int32_t nothing[PANEL];
    uint8_t zero[GROUP];
    f16 sums[MAX_TILE_ROWS];
    (void)P; /* 1 */
    memset(zero, layer->zero_point, GROUP);
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++) sums[r] = set16(0);
    for (int64_t k = 0, b = 0; k < depth; k += INPUT_BLOCK, b++) {
        i16 total[MAX_TILE_ROWS][4], none[MAX_TILE_ROWS][4];
        none[0][0] = zero16();
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++) total[r][0] = zero16();
        for (int64_t g = k; g < MIN(depth, k + INPUT_BLOCK); g += GROUP) {
            add_products(MR, 1, total, x + g, depth, w + g * PANEL);
            add_products(1, 1, none, zero, 0, w + g * PANEL);
        }
        sums_by_row(MR, 1, total);
        sums_by_row(1, 1, none);
        const f16 compensation = minus16(none[0][0], nothing); /* less than 2^24, so exact, like the difference */
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++)
            sums[r] = fma16(sub16(minus16(total[r][0], nothing), compensation), set16(x_scales[r * blocks + b]), sums[r]);
    }
    const f16 scales = load16(layer->scales + panel * PANEL), bias = load16(layer->bias + panel * PANEL);
    for (int r = 0; r < MR; r++) store_panel(product, row + r, panel, fma16(sums[r], scales, bias));
}

TILES(int8_block, 1)
static Tile *const INT8_BLOCK_TILES[3][MAX_TILE_ROWS] = {HEIGHTS(int8_block, INT8_TILE, 1)};

#ifdef REGISTER_IS_PANEL
/* Converts the sums of a row and a panel to outputs. */
INLINE void int8_epilogue(const Product *product, int row, int panel, i16 sums, f16 scales, f16 bias) {
    const f16 scale = mul16(set16(product->x_scales[row]), scales);
    store_panel(product, row, panel, fma16(minus16(sums, product->layer->compensation + panel * PANEL), scale, bias));
}
#endif

#ifdef __AMX_INT8__
#include "tiles_amx.h"
#else
#define TILE_ROWS 1
#define AMX_MIN_ROWS (BLOCK_ROWS + 1)
static void run_amx_tiles(const Product *product, int panel, int end) { (void)product, (void)panel, (void)end; } /* never called */
#endif

#ifdef REGISTER_IS_PANEL
#define MOST_FOURS 1024 /* d_ff / 4 of the largest networks with ReLU */

/* A row that is mostly zero, as after ReLU: multiplies only the groups of four inputs that are not. Returns 0 where these are
   more than half. */
static int sparse_row(const Product *product, int panel, int end) {
    const Linear *layer = product->layer;
    const int64_t size = PANEL * (int64_t)layer->depth;
    int32_t fours[MOST_FOURS + PANEL], numbers[MOST_FOURS + PANEL];
    if (layer->depth > 4 * MOST_FOURS) return 0;
    const int n = nonzero_fours(product->x, layer->depth / 4, fours, numbers);
    if (8 * n > layer->depth) return 0;
    for (; panel < end; panel++) {
        const int8_t *w = layer->quantised + panel * size;
        i16 sums[4] = {zero16(), zero16(), zero16(), zero16()};
        for (int i = 0; i < n; i += 4)
            UNROLL(4)
            for (int j = 0; j < 4; j++) {
                const int8_t *four = w + 4 * PANEL * numbers[i + j]; /* 0 after the last one */
                sums[j] = add_four16(sums[j], fours[i + j], four);
            }
        const i16 total = sum16(sum16(sums[0], sums[1]), sum16(sums[2], sums[3]));
        int8_epilogue(product, 0, panel, total, load16(layer->scales + panel * PANEL), load16(layer->bias + panel * PANEL));
    }
    return 1;
}
#else
static int sparse_row(const Product *product, int panel, int end) { return (void)product, (void)panel, (void)end, 0; }
#endif

static void int8_panels(const Product *product, int panel, int end) {
    const int wide = product->rows > MAX_TILE_ROWS ? INT8_TILE / MAX_TILE_ROWS : 1;
    const int may_be_sparse = product->rows == 1 && !product->layer->zero_point && !product->layer->in_blocks;
    if (may_be_sparse && sparse_row(product, panel, end)) return;
    if (product->layer->in_blocks) run_tiles(product, panel, end, INT8_BLOCK_TILES, INT8_TILE, 1);
    else if (product->rows >= AMX_MIN_ROWS) run_amx_tiles(product, panel, end);
    else run_tiles(product, panel, end, INT8_TILES, INT8_TILE, wide);
}

#include "int4.h"

static int forward_integers(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride,
                            Activation kind, Scratch *scratch) {
    const int64_t depth = layer->depth;
    const int tall = (MIN(rows, BLOCK_ROWS) + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, row_scales = scales_of_row(layer);
    uint8_t *levels = reserve(&scratch->quantised, tall * (depth + 4 * (int64_t)row_scales));
    if (!levels) return OUT_OF_MEMORY;
    float *scales = (float *)(levels + tall * depth); /* the depth is a multiple of 16 */
    for (; rows > 0; rows -= BLOCK_ROWS, x += BLOCK_ROWS * x_stride, y += BLOCK_ROWS * y_stride) {
        if (is_cancelled(scratch)) return CANCELLED;
        const int count = MIN(BLOCK_ROWS, rows);
        const Product product = {layer, levels, scales, y, depth, y_stride, count, kind};
        for (int r = 0; r < count; r++) quantise_row(layer, x + r * x_stride, levels + r * depth, scales + r * row_scales);
        run_panels(&product, layer->numbers == INT4 ? int4_panels : int8_panels);
    }
    return 0;
}

/* --- Products in float32, with weights in float32 or bfloat16 --- */

/* Every output is one chain of additions, independent of MR and P, and the same for float32 and bfloat16 weights. */
INLINE void fma_tile(const int HALF, const int MR, const int P, const Product *product, int row, int panel) {
    const Linear *layer = product->layer;
    const int64_t depth = layer->depth, x_stride = product->x_stride;
    const float *x = (const float *)product->x + row * x_stride;
    f16 total[MAX_TILE_ROWS][4], sums[MAX_TILE_ROWS][4];
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++)
        UNROLL(4)
        for (int p = 0; p < P; p++) total[r][p] = set16(0);
    for (int64_t k = 0; k < depth; k++) {
        f16 w[4];
        UNROLL(4)
        for (int p = 0; p < P; p++) w[p] = read16(layer->values, ((panel + p) * depth + k) * PANEL, HALF);
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++) {
            f16 a = set16(x[r * x_stride + k]);
            UNROLL(4)
            for (int p = 0; p < P; p++) total[r][p] = fma16(a, w[p], total[r][p]);
        }
    }
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++)
        UNROLL(4)
        for (int p = 0; p < P; p++) sums[r][p] = total[r][p];
    COMPILER_BARRIER(sums);
    for (int p = 0; p < P; p++) {
        const f16 bias = load16(layer->bias + (panel + p) * PANEL);
        for (int r = 0; r < MR; r++) store_panel(product, row + r, panel + p, add16(sums[r][p], bias));
    }
}

#define float_tile(...) fma_tile(0, __VA_ARGS__)
#define half_tile(...) fma_tile(1, __VA_ARGS__)
TILES(float, 1) TILES(float, 2) TILES(float, 4)
TILES(half, 1) TILES(half, 2) TILES(half, 4)
static Tile *const FLOAT_TILES[2][3][MAX_TILE_ROWS] = {
    {HEIGHTS(float, FLOAT_TILE, 1), HEIGHTS(float, FLOAT_TILE, 2), HEIGHTS(float, FLOAT_TILE, 4)},
    {HEIGHTS(half, FLOAT_TILE, 1), HEIGHTS(half, FLOAT_TILE, 2), HEIGHTS(half, FLOAT_TILE, 4)}};

static void float_panels(const Product *product, int panel, int end) {
    const int wide = FLOAT_TILE / MIN(product->rows, MAX_TILE_ROWS);
    run_tiles(product, panel, end, FLOAT_TILES[product->layer->numbers == BFLOAT16], FLOAT_TILE, wide);
}

static int forward_float(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride,
                         Activation kind, const Scratch *scratch) {
    for (; rows > 0; rows -= BLOCK_ROWS, x += BLOCK_ROWS * x_stride, y += BLOCK_ROWS * y_stride) {
        if (is_cancelled(scratch)) return CANCELLED;
        const int count = MIN(BLOCK_ROWS, rows);
        const Product product = {layer, x, NULL, y, x_stride, y_stride, count, kind};
        run_panels(&product, float_panels);
    }
    return 0;
}

int linear_forward(const Linear *layer, const float *x, int rows, int64_t x_stride, float *y, int64_t y_stride, Activation kind,
          Scratch *scratch) {
    if (layer->numbers == INT8 || layer->numbers == INT4)
        return forward_integers(layer, x, rows, x_stride, y, y_stride, kind, scratch);
    return forward_float(layer, x, rows, x_stride, y, y_stride, kind, scratch);
}

/* --- Whole layers --- */

Linear *headwise_linear(void *zeros, const float *weight, const float *bias, int d_out, int d_in, Numbers numbers,
                        int after_relu, int in_blocks) {
    const int is_integer = numbers == INT8 || numbers == INT4;
    Linear *layer = init_linear(zeros, d_out, d_in, numbers, after_relu ? 0 : 64, in_blocks);
    if (!weight) return layer;
    float *padded = calloc(5 * (size_t)layer->depth + 64, 1); /* a row and its quantised weights */
    if (!padded) return NULL;
    for (int o = 0; o < d_out; o += is_integer ? 1 : 8) {
        const float *row = weight + (int64_t)o * d_in;
        if (layer->depth > d_in) row = memcpy(padded, row, 4 * (size_t)d_in);
        if (numbers == INT8) pack_int8(layer, o, row, (int8_t *)(padded + layer->depth));
        else if (numbers == INT4) pack_int4(layer, o, row);
        else pack_float(layer, o, row);
    }
    if (bias) memcpy(layer->bias, bias, 4 * (size_t)d_out);
    free(padded);
    return layer;
}

/* Copies an output of a layer of floats. */
static void copy_float(Linear *to, int output, const Linear *from, int row) {
    const size_t size = from->numbers == BFLOAT16 ? 2 : 4;
    char *a = (char *)to->values + size * float_index(to, output);
    const char *b = (const char *)from->values + size * float_index(from, row);
    for (int i = 0; i < from->depth; i++) memcpy(a + size * PANEL * i, b + size * PANEL * i, size);
}

static void copy_int8(Linear *to, int output, const Linear *from, int row) {
    to->scales[output] = from->scales[row];
    to->compensation[output] = from->compensation[row];
    int8_t *a = to->quantised + int8_index(to, output, 0);
    const int8_t *b = from->quantised + int8_index(from, row, 0);
    for (int i = 0; i < from->depth / 4; i++) memcpy(a + i * 4 * PANEL, b + i * 4 * PANEL, 4);
}

Linear *headwise_linear_rows(void *zeros, const Linear *layer, const int32_t *rows, int count) {
    Linear *few = init_linear(zeros, count, layer->d_in, layer->numbers, layer->zero_point, layer->in_blocks);
    for (int o = 0; o < count; o++) {
        few->bias[o] = layer->bias[rows[o]];
        if (layer->numbers == INT8) copy_int8(few, o, layer, rows[o]);
        else if (layer->numbers == INT4) copy_int4(few, o, layer, rows[o]);
        else copy_float(few, o, layer, rows[o]);
    }
    return few;
}

/* `linear_forward` to contiguous rows. Returns 0 or OUT_OF_MEMORY. */
int headwise_linear_forward(const Linear *layer, const float *x, int rows, float *y) {
    Scratch scratch = {0};
    int failed = linear_forward(layer, x, rows, layer->d_in, y, layer->d_out, NONE, &scratch);
    release(&scratch.quantised);
    return failed;
}
