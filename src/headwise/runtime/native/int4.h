/* See products.c: weights of 4 bits, from -8 to 7, with a scale for each output and INT4_GROUP inputs, rounded to bfloat16: 5 bits
   a weight. Inputs are quantised as for 8-bit weights, each group with a scale of its own. The integers of a group are added exactly, and the groups one after
   another in float32. Weights are unpacked to a block that `add_products` reads: half of the memory traffic, which limits
   single sentences. */

#define INT4_GROUP INPUT_BLOCK

/* INT4_GROUP inputs of a panel. A byte has a weight of the first GROUP inputs in its lower half, plus 8, and the one at the same
   place of the next GROUP in its upper half. */
typedef struct Int4Block {
    uint8_t weights[PANEL * GROUP];
    uint16_t scales[PANEL];       /* bfloat16 */
    int16_t compensation[PANEL]; /* contribution of `zero_point` */
} Int4Block;

static Int4Block *int4_blocks(const Linear *layer, int output) {
    return (Int4Block *)layer->values + (int64_t)(output / PANEL) * (layer->depth / INT4_GROUP);
}

/* The scale of a group, for which the weight of the largest magnitude becomes -8. */
static float int4_scale(const float *weight, uint16_t *rounded) {
    float largest = 0, scale;
    for (int i = 0; i < INT4_GROUP; i++) {
        if (!isfinite(weight[i])) largest = NAN; /* the output will be NaN, too */
        if (fabsf(weight[i]) > fabsf(largest)) largest = weight[i];
    }
    const float exact = largest / -8;
    convert(&exact, 0, 1, rounded, 1);
    convert(rounded, 1, 1, &scale, 0);
    return scale;
}

/* `weight` has the padded depth of the layer. */
static void pack_int4(Linear *layer, int output, const float *weight) {
    const int column = output % PANEL;
    Int4Block *block = int4_blocks(layer, output);
    for (int first = 0; first < layer->depth; first += INT4_GROUP, block++) {
        const float scale = int4_scale(weight + first, block->scales + column);
        const float quotient = 1 / scale, inverse = isfinite(quotient) ? quotient : 0;
        int total = 0;
        for (int i = 0; i < INT4_GROUP; i++) {
            const int level = (int)fmaxf(-8, fminf(7, rintf(weight[first + i] * inverse)));
            const int at = i % GROUP / 4 * 4 * PANEL + 4 * column + i % 4;
            total += level;
            block->weights[at] |= (uint8_t)((level + 8) << (i < GROUP ? 0 : 4));
        }
        block->compensation[column] = (int16_t)(layer->zero_point * total);
    }
}

/* Copies an output. */
static void copy_int4(Linear *to, int output, const Linear *from, int row) {
    Int4Block *a = int4_blocks(to, output);
    const Int4Block *b = int4_blocks(from, row);
    const int column = output % PANEL, other = row % PANEL;
    for (int g = 0; g < from->depth / INT4_GROUP; g++, a++, b++) {
        for (int i = 0; i < GROUP; i += 4)
            memcpy(a->weights + i * PANEL + 4 * column, b->weights + i * PANEL + 4 * other, 4);
        a->scales[column] = b->scales[other];
        a->compensation[column] = b->compensation[other];
    }
}

INLINE void int4_tile(const int MR, const int P, const Product *product, int row, int panel) {
    const Linear *layer = product->layer;
    const int64_t depth = layer->depth;
    const uint8_t *x = (const uint8_t *)product->x + row * depth;
    const Int4Block *block = int4_blocks(layer, panel * PANEL);
    const int64_t groups = depth / INT4_GROUP;
    const float *x_scales = product->x_scales + row * groups;
    f16 sums[MAX_TILE_ROWS];
    (void)P; /* 1 */
    UNROLL(MAX_TILE_ROWS)
    for (int r = 0; r < MR; r++) sums[r] = set16(0);
    for (int64_t k = 0; k < depth; k += INT4_GROUP, block++, x_scales++) {
        int8_t weights[PANEL * INT4_GROUP] __attribute__((aligned(64)));
        int32_t compensation[PANEL];
        i16 total[MAX_TILE_ROWS][4];
        for (int i = 0; i < PANEL * GROUP; i++) weights[i] = (int8_t)((block->weights[i] & 15) - 8);
        for (int i = 0; i < PANEL * GROUP; i++) weights[PANEL * GROUP + i] = (int8_t)((block->weights[i] >> 4) - 8);
        for (int o = 0; o < PANEL; o++) compensation[o] = block->compensation[o];
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++) total[r][0] = zero16();
        add_products(MR, 1, total, x + k, depth, weights);
        add_products(MR, 1, total, x + k + GROUP, depth, weights + PANEL * GROUP);
        sums_by_row(MR, 1, total);
        const f16 scales = read16(block->scales, 0, 1);
        UNROLL(MAX_TILE_ROWS)
        for (int r = 0; r < MR; r++)
            sums[r] = fma16(minus16(total[r][0], compensation), mul16(scales, set16(x_scales[r * groups])), sums[r]);
    }
    const f16 bias = load16(layer->bias + panel * PANEL);
    for (int r = 0; r < MR; r++) store_panel(product, row + r, panel, add16(sums[r], bias));
}

TILES(int4, 1)
static Tile *const INT4_TILES[3][MAX_TILE_ROWS] = {HEIGHTS(int4, INT8_TILE, 1)};

static void int4_panels(const Product *product, int panel, int end) {
    run_tiles(product, panel, end, INT4_TILES, INT8_TILE, 1);
}
