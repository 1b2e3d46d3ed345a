/* Functions for web pages, compiled to WebAssembly together with the search (`export/web`). */

#include "reading.h"
#include "search.h"

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

/* The weights (length, length of the source) by which each token of an output was predicted: of a head of a decoder
   layer's attention to the source or, with -1, the mean of its heads. 0, or OUT_OF_MEMORY. */
EXPORT int headwise_look(const Transformer *model, const int32_t *source, int source_length, const int32_t *read,
                          int length, int layer, int head, float *weights);
int headwise_look(const Transformer *model, const int32_t *source, int source_length, const int32_t *read, int length,
                  int layer, int head, float *weights) {
    const int64_t size = (int64_t)length * source_length;
    const int heads = model->decoder[layer].cross.heads, first = head < 0 ? 0 : head, end = head < 0 ? heads : head + 1;
    float *recorded = calloc(heads * size, sizeof(float));
    const Recording recording = {.cross = recorded, .first = layer, .end = layer + 1};
    int failed = recorded ? headwise_read(model, source, &source_length, read, &length, 1, &recording) : OUT_OF_MEMORY;
    if (!failed) {
        memset(weights, 0, 4 * (size_t)size);
        for (int h = first; h < end; h++)
            for (int64_t i = 0; i < size; i++) weights[i] += recorded[h * size + i] / (end - first);
    }
    free(recorded);
    return failed;
}
