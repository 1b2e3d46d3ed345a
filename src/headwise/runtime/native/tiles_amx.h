/* See products.c: 8-bit products with AMX. Tiles are 16 rows of 64 bytes, and `tdpbusd` adds the products of 16 rows of 64
   inputs and 64 inputs of 16 outputs; panels have this layout. Integer sums are exact, so results equal those of all builds.

   Not tested on a processor with AMX: tests emulate the instructions in C (tests/unit/native/amx.h). */

#define TILE_ROWS 16
#define TILE_INPUTS 64
#define AMX_MIN_ROWS (MAX_TILE_ROWS + 1) /* with fewer rows, tiles would be mostly empty */

typedef struct TileConfig {
    uint8_t palette, start_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Tile numbers are literals: 0, 1, 2 hold sums of three times 16 rows, 3 inputs, 4 weights; 5 and 6 the last inputs and
   weights, if the depth is not a multiple of 64. */
static void configure_tiles(int rest) {
    const TileConfig config = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, rest, rest ? 64 : 0},
        .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_INPUTS / 4, rest ? TILE_ROWS : 0, rest / 4},
    };
    COMPILER_BARRIER(&config); /* gcc does not know that `_tile_loadconfig` reads all of it */
    _tile_loadconfig(&config);
}

#define ADD_TILE(SUMS, INPUTS, WEIGHTS) \
    if (rows > SUMS * TILE_ROWS) { \
        _tile_loadd(INPUTS, x + SUMS * TILE_ROWS * depth + k, depth); \
        _tile_dpbusd(SUMS, INPUTS, WEIGHTS); \
    }
#define STORE_TILE(SUMS) \
    if (rows > SUMS * TILE_ROWS) _tile_stored(SUMS, sums + SUMS * TILE_ROWS, 64);

/* Sums of a panel for up to BLOCK_ROWS rows; `x` has memory for rows up to a multiple of TILE_ROWS. */
static __attribute__((noinline)) void panel_sums(const uint8_t *x, int rows, int64_t depth, const int8_t *w, i16 *sums) {
    int64_t k = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    for (; k + TILE_INPUTS <= depth; k += TILE_INPUTS) {
        _tile_loadd(4, w + k * PANEL, 64);
        ADD_TILE(0, 3, 4) ADD_TILE(1, 3, 4) ADD_TILE(2, 3, 4)
    }
    if (k < depth) {
        _tile_loadd(6, w + k * PANEL, 64);
        ADD_TILE(0, 5, 6) ADD_TILE(1, 5, 6) ADD_TILE(2, 5, 6)
    }
    STORE_TILE(0) STORE_TILE(1) STORE_TILE(2)
}

static void run_amx_tiles(const Product *product, int panel, int end) {
    const int rows = product->rows;
    const Linear *layer = product->layer;
    const int64_t depth = layer->depth;
    i16 sums[BLOCK_ROWS];
    COMPILER_BARRIER(product->x); /* nor does `_tile_loadd` */
    configure_tiles((int)(depth % TILE_INPUTS));
    for (; panel < end; panel++) {
        panel_sums(product->x, rows, depth, layer->quantised + panel * PANEL * depth, sums);
        const f16 scales = load16(layer->scales + panel * PANEL), bias = load16(layer->bias + panel * PANEL);
        for (int r = 0; r < rows; r++) int8_epilogue(product, r, panel, sums[r], scales, bias);
    }
    _tile_release();
}
