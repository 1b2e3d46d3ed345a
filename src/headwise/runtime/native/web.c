/* Functions for web pages, compiled to WebAssembly together with the search (`export/web`). */

#include "products.h"

#include <stdlib.h>
#include <string.h>

/* Whether results equal those of other builds. With relaxed SIMD, the processor decides whether `fma8` rounds once, and
   integer products depend on the browser. `small` is 2^-13, passed in so that the compiler cannot fold it. */
EXPORT int headwise_exact(float small);
int headwise_exact(float small) {
    static int8_t weights[PANEL * GROUP] __attribute__((aligned(64)));
    uint8_t levels[GROUP];
    int32_t shifts[PANEL] = {0};
    float sums[PANEL]; /* (1 + e)^2 - (1 + 2 e) = e^2, lost if the product is rounded */
    store16(sums, fma16(set16(1 + small), set16(1 + small), set16(-(1 + 2 * small))));
    int exact = sums[0] == small * small;
    for (int i = 0; i < GROUP; i++) levels[i] = (uint8_t)(127 - 8 * i * (int)(small * 8192));
    for (int i = 0; i < PANEL * GROUP; i++) weights[i] = (int8_t)((i * 37) % 127 - 63);
    i16 total[1][4];
    total[0][0] = zero16();
    add_products(1, 1, total, levels, GROUP, weights);
    store16(sums, minus16(total[0][0], shifts));
    for (int o = 0; o < PANEL; o++) {
        int sum = 0;
        for (int i = 0; i < GROUP; i++) sum += levels[i] * weights[i / 4 * PANEL * 4 + o * 4 + i % 4];
        exact = exact && sums[o] == sum;
    }
    return exact;
}

/* A layer of float32 with the rounded weights of one of int8: its inputs are not rounded. NULL if out of memory. */
EXPORT Linear *headwise_dequantised(const Linear *layer);
Linear *headwise_dequantised(const Linear *layer) {
    const int64_t d_in = layer->d_in, count = layer->d_out * d_in;
    const int64_t size = (headwise_linear_size(layer->d_out, layer->d_in, FLOAT32) + 63) / 64 * 64;
    int8_t *levels = malloc(count);
    float *weight = malloc(4 * count), *scales = malloc(4 * layer->d_out);
    void *zeros = aligned_alloc(64, size);
    Linear *made = NULL;
    if (levels && weight && scales && zeros) {
        headwise_quantised_weights(layer, levels, scales);
        for (int64_t i = 0; i < count; i++) weight[i] = scales[i / d_in] * levels[i];
        made = headwise_linear(memset(zeros, 0, size), weight, layer->bias, layer->d_out, layer->d_in, FLOAT32, 0, 0);
    }
    free(levels);
    free(weight);
    free(scales);
    if (!made) free(zeros);
    return made;
}
