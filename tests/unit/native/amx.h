/* The tiles of AMX in plain C, for a library that is compiled with `-include` of this: each instruction does what Intel's manual
   says (Volume 2, LDTILECFG to TILEZERO) or ends the program where a processor would raise an exception. How many products
   were made is there to be read, so that a test knows they were. */

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbusd
#define _tile_loadconfig emulated_config
#define _tile_release emulated_release
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_zero(tile) memset(emulated_tile(tile)->bytes, 0, sizeof(emulated_tiles->bytes))
#define _tile_dpbusd(sums, inputs, weights) emulated_dpbusd(sums, inputs, weights)

typedef struct EmulatedTile {
    int rows, row_bytes;
    uint8_t bytes[16][64];
} EmulatedTile;

static _Thread_local EmulatedTile emulated_tiles[8];
static _Thread_local int emulated_ready;
__attribute__((visibility("default"), weak)) int64_t tile_products;

static inline void emulated_check(int holds, const char *what) {
    if (!holds) fprintf(stderr, "tiles: %s\n", what), abort();
}

static inline EmulatedTile *emulated_tile(int tile) {
    emulated_check(emulated_ready && tile >= 0 && tile < 8 && emulated_tiles[tile].rows, "one that is not configured");
    return &emulated_tiles[tile];
}

static inline void emulated_config(const void *config) {
    const uint8_t *bytes = config;
    emulated_check(bytes[0] == 1 && !bytes[1], "palette 1, from the first row");
    for (int i = 2; i < 64; i++) /* reserved: also all that there would be of tiles 8 to 15 */
        emulated_check(!bytes[i] || (i >= 16 && i < 32) || (i >= 48 && i < 56), "what is reserved is 0");
    for (int i = 0; i < 8; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * i, 2);
        emulated_check(row_bytes <= 64 && bytes[48 + i] <= 16 && !row_bytes == !bytes[48 + i], "16 rows of 64 bytes");
        emulated_tiles[i] = (EmulatedTile){.rows = bytes[48 + i], .row_bytes = row_bytes};
    }
    emulated_ready = 1;
}

static inline void emulated_release(void) { emulated_ready = 0; }

static inline void emulated_load(int tile, const void *from, int64_t stride) {
    EmulatedTile *t = emulated_tile(tile);
    memset(t->bytes, 0, sizeof(t->bytes));
    for (int r = 0; r < t->rows; r++) memcpy(t->bytes[r], (const uint8_t *)from + r * stride, (size_t)t->row_bytes);
}

static inline void emulated_store(int tile, void *to, int64_t stride) {
    const EmulatedTile *t = emulated_tile(tile);
    for (int r = 0; r < t->rows; r++) memcpy((uint8_t *)to + r * stride, t->bytes[r], (size_t)t->row_bytes);
}

/* Without the sanitizers, for whom this is most of the work: it stays within three tiles. */
#define QUICK __attribute__((unused, noinline, optimize("O3"), no_sanitize("address"), no_sanitize("undefined")))

static QUICK void emulated_dpbusd(int sums, int inputs, int weights) {
    EmulatedTile *c = emulated_tile(sums), *a = emulated_tile(inputs), *b = emulated_tile(weights);
    emulated_check(c != a && a != b && b != c, "three tiles");
    emulated_check(c->rows == a->rows && c->row_bytes == b->row_bytes && a->row_bytes == 4 * b->rows, "shapes that agree");
    emulated_check(!(b->row_bytes % 4), "whole fours");
    for (int m = 0; m < c->rows; m++) {
        int32_t row[16];
        memcpy(row, c->bytes[m], 64);
        for (int k = 0; k < a->row_bytes; k++)
            for (int n = 0; n < c->row_bytes / 4; n++) row[n] += a->bytes[m][k] * (int8_t)b->bytes[k / 4][4 * n + k % 4];
        memcpy(c->bytes[m], row, 64);
    }
    __atomic_fetch_add(&tile_products, 1, __ATOMIC_RELAXED);
}
