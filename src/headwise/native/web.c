/* Functions for web pages, compiled to WebAssembly together with the search (`export/web`). */

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
    store16(sums, fma16(all16(1 + small), all16(1 + small), all16(-(1 + 2 * small))));
    int exact = sums[0] == small * small;
    for (int i = 0; i < GROUP; i++) levels[i] = (uint8_t)(127 - 8 * i * (int)(small * 8192));
    for (int i = 0; i < PANEL * GROUP; i++) weights[i] = (int8_t)((i * 37) % 127 - 63);
    i16 total[1][4];
    total[0][0] = none16();
    add_products(1, 1, total, levels, GROUP, weights);
    store16(sums, less16(total[0][0], shifts));
    for (int o = 0; o < PANEL; o++) {
        int sum = 0;
        for (int i = 0; i < GROUP; i++) sum += levels[i] * weights[i / 4 * PANEL * 4 + o * 4 + i % 4];
        exact = exact && sums[o] == sum;
    }
    return exact;
}

/* Cross-attention: the weights (length, source length) with which each token of an output was predicted, of one head of a
   decoder layer, or with -1 the mean of all. Returns 0, or -1 if out of memory. */
EXPORT int headwise_look(const Transformer *model, const int32_t *source, int source_length, const int32_t *read,
                          int length, int layer, int head, float *weights);
int headwise_look(const Transformer *model, const int32_t *source, int source_length, const int32_t *read, int length,
                   int layer, int head, float *weights) {
    const int32_t sizes[] = {source_length};
    Decoding *s = headwise_start(model, source, sizes, 1, NULL);
    int32_t *positions = malloc(4 * (size_t)length * (length + 2)), *sentences = positions + length;
    float *hidden = malloc(4 * (size_t)length * model->d_model);
    int failed = !s || !positions || !hidden || headwise_make_room(s, length, positions, 0, length, 0);
    if (!failed) {
        int32_t *paths = sentences + length;
        for (int r = 0; r < length; r++) {
            positions[r] = r, sentences[r] = 0;
            for (int t = 0; t < length; t++) paths[r * length + t] = t;
        }
        memset(weights, 0, 4 * (size_t)length * source_length);
        s->watched = (Watched){layer, head, weights};
        failed = headwise_step(s, length, read, positions, sentences, paths, length, hidden);
    }
    headwise_end(s), free(positions), free(hidden);
    return failed ? -1 : 0;
}
