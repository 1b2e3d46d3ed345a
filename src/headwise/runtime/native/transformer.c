/* See transformer.h. */

#include "layers.h"

#include <string.h>

static void **new_layer_buffers(int layers) { return calloc(layers + 1, sizeof(void *)); }

Decoding *new_decoding(const Transformer *model, const int32_t *lengths, int sentences, const atomic_int *stop) {
    Decoding *s = calloc(1, sizeof(Decoding));
    if (!s) return NULL;
    const int layers = model->n_decoder_layers;
    s->model = model;
    s->sentences = sentences;
    s->scratch.stop = stop;
    const Layer *first = layers ? model->decoder : NULL;
    s->half = first && first->cross.in && (first->ffn.up->numbers == INT8 || first->ffn.up->numbers == INT4);
    s->lengths = malloc(sizeof(int) * (sentences + 1));
    s->offsets = malloc(sizeof(int64_t) * (sentences + 1));
    s->cross_k = new_layer_buffers(layers);
    s->cross_v = new_layer_buffers(layers);
    s->self_k = new_layer_buffers(layers);
    s->self_v = new_layer_buffers(layers);
    if (s->lengths && s->offsets && s->cross_k && s->cross_v && s->self_k && s->self_v) {
        memcpy(s->lengths, lengths, sizeof(int) * (size_t)sentences);
        return s;
    }
    headwise_end(s);
    return NULL;
}

static Decoding *start(const Transformer *model, Sources sources, const int32_t *lengths, int sentences,
                       const atomic_int *stop) {
    Decoding *s = new_decoding(model, lengths, sentences, stop);
    if (!s) return NULL;
    const int layers = model->n_decoder_layers;
    int64_t total = 0;
    for (int i = 0; i < sentences; i++) {
        s->offsets[i] = total;
        total += round_up(lengths[i]);
    }
    int64_t size = 0;
    for (int l = 0; l < layers; l++) {
        const Attention *a = &model->decoder[l].cross;
        size += total * a->heads * (a->d_k + a->d_v);
    }
    s->cross = take_block(cached_size(s) * size);
    Cached next = cached(s, s->cross);
    for (int l = 0; l < layers; l++) {
        const Attention *a = &model->decoder[l].cross;
        s->cross_k[l] = (void *)next.numbers;
        next = cached_from(next, total * a->heads * a->d_k);
        s->cross_v[l] = (void *)next.numbers;
        next = cached_from(next, total * a->heads * a->d_v);
    }
    if (s->cross && !encode(s, sources, NULL)) return s;
    headwise_end(s);
    return NULL;
}

Decoding *headwise_start(const Transformer *model, const int32_t *pieces, const int32_t *lengths, int sentences,
                         const atomic_int *stop) {
    const Sources sources = {pieces, NULL, NULL};
    return start(model, sources, lengths, sentences, stop);
}

Decoding *headwise_start_vectors(const Transformer *model, const float *vectors, const int32_t *lengths, int sentences,
                                 const atomic_int *stop) {
    const Sources sources = {NULL, NULL, vectors};
    return start(model, sources, lengths, sentences, stop);
}

void headwise_end(Decoding *s) {
    if (!s) return;
    for (int l = 0; l < s->model->n_decoder_layers; l++) {
        if (s->self_k) give_block(s->self_k[l]);
        if (s->self_v) give_block(s->self_v[l]);
    }
    give_block(s->cross);
    free(s->cross_k);
    free(s->cross_v);
    free(s->self_k);
    free(s->self_v);
    free(s->lengths);
    free(s->offsets);
    free(s->prompt_lengths);
    free(s->prompt_offsets);
    free(s->prompt_states);
    free_activations(s);
    free(s);
}
