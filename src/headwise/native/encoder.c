/* See transformer.h. */

#include "layers.h"

#include "attention.h"

/* Sentences attend to themselves; `lengths` of their rows, one after the other. */
static int encoder_attention(Decoding *s, const Attention *a, const int32_t *lengths, int sentences, int rows,
                             const Walk *walk) {
    const AttentionSteps *to = &walk->self;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->in->d_out;
    float *qkv = s->wide.bytes, *keys = s->keys.bytes, *context = s->context.bytes;
    const float *in = sublayer_input(s->model, &a->norm, s->x.bytes, s->h.bytes, rows, &to->ends);
    if (linear_forward(a->in, in, rows, padded_width(s->model), qkv, width, NONE, &s->scratch)) return -1;
    record_projections(a, walk->head, to, qkv, rows);
    scale_queries(a, qkv, width, rows);
    float *weights = next_layer(&s->recording.encoder, (int64_t)a->heads * rows * rows); /* of the only pair */
    for (int i = 0; i < sentences; i++) {
        for (int t = 0; t < lengths[i]; t++) rotate(&s->model->rotary, t, qkv + (int64_t)t * width, 2 * a->heads, a->d_k);
        record_turned(a, walk->head, to, qkv, rows);
        for (int h = 0; h < a->heads; h++) {
            if (is_cancelled(&s->scratch)) return -1;
            transpose(qkv + k_width + h * a->d_k, width, lengths[i], a->d_k, keys);
            if (weights)
                record_head(s, rows, qkv + h * a->d_k, width, a->d_k, keys, rows, NULL, weights + (int64_t)h * rows * rows);
            if (h == walk->head)
                record_head(s, rows, qkv + h * a->d_k, width, a->d_k, keys, rows, to->scores, to->weights);
            attend(1, lengths[i], qkv + h * a->d_k, width, a->d_k, keys, qkv + 2 * k_width + h * a->d_v, width, a->d_v,
                   lengths[i], s->scores.bytes, context + h * a->d_v, v_width);
        }
        qkv += (int64_t)lengths[i] * width, context += (int64_t)lengths[i] * v_width;
    }
    return attention_output(s, a, rows, to);
}

int encode(Decoding *s, const int32_t *pieces, int first, int sentences, int rows, int longest) {
    const Transformer *m = s->model;
    if (reserve_activations(s, rows, longest)) return -1;
    int32_t *positions = reserve(&s->live, 4 * (int64_t)rows);
    if (!positions) return -1;
    for (int i = first, r = 0; i < first + sentences; i++)
        for (int t = 0, counted = 0; t < s->lengths[i]; t++, r++) {
            positions[r] = counted;
            counted += pieces[r] != m->source.padding;
        }
    float *x = s->x.bytes;
    embed(&m->source, pieces, positions, rows, m->d_model, x, walk_of_stack(s, 0));
    for (int l = 0; l < m->n_encoder_layers; l++) {
        const Walk *walk = walk_of(s, 0, l);
        record_rows(m, walk->input, x, rows);
        if (encoder_attention(s, &m->encoder[l].self, s->lengths + first, sentences, rows, walk)) return -1;
        if (feed_forward(s, &m->encoder[l].ffn, rows, walk)) return -1;
    }
    record_rows(m, walk_of_stack(s, 0)->top, x, rows);
    if (m->encoder_norm.weight) norm_rows(&m->encoder_norm, x, x, rows, m->d_model);
    record_rows(m, walk_of_stack(s, 0)->output, x, rows);
    record_rows(m, s->recording.walk.memory, x, rows);
    return project_memory(s, x, first, sentences, rows);
}
