/* See transformer.h. */

#include "layers.h"

#include "attention.h"

#include <string.h>

#define QUERIES 64        /* of a long source, before looking whether the search was cancelled */
#define ENCODER_BATCH 512 /* positions encoded at once, so that activations stay in the caches */

/* `attend` with relative positions: `bias` is that of the first query and the first key. */
static void attend_with_bias(Decoding *s, const Attention *a, int length, const float *q, int64_t stride, const float *keys,
                             const float *values, const float *bias, float *out, int64_t out_stride) {
    const int width = round_up(length);
    float *scores = s->scores.bytes;
    for (int first = 0; first < length; first += SCORE_ROWS) {
        const int count = MIN(SCORE_ROWS, length - first);
        multiply(count, q + first * stride, stride, keys, width, a->d_k, scores, width, width);
        for (int i = 0; i < count; i++, bias--) {
            for (int t = 0; t < length; t++) scores[i * width + t] += bias[t];
            softmax(scores + i * width, length, width);
        }
        multiply(count, scores, width, values, stride, length, out + first * out_stride, out_stride, a->d_v);
    }
}

int encoder_attention(Decoding *s, const Attention *a, const int32_t *lengths, int sentences, int rows) {
    const Relative *relative = s->model->relative;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->in->d_out;
    float *qkv = s->wide.bytes, *keys = s->keys.bytes, *context = s->context.bytes;
    const float *in = sublayer_input(s->model, &a->norm, s->x.bytes, s->h.bytes, rows);
    TRY(linear_forward(a->in, in, rows, padded_width(s->model), qkv, width, NONE, &s->scratch));
    scale_queries(a, qkv, width, rows);
    for (int i = 0; i < sentences; i++) {
        const int length = lengths[i];
        const int64_t side = (int64_t)a->d_k * round_up(length); /* of the keys of a head */
        for (int t = 0; t < length; t++) rotate(&s->model->rotary, t, qkv + (int64_t)t * width, 2 * a->heads, a->d_k);
        for (int h = 0; h < a->heads; h++) {
            float *of_head = keys + h * side;
            transpose(qkv + k_width + h * a->d_k, width, length, a->d_k, of_head);
            if (is_cancelled(&s->scratch)) return CANCELLED;
            if (relative)
                attend_with_bias(s, a, length, qkv + h * a->d_k, width, of_head, qkv + 2 * k_width + h * a->d_v,
                                 relative->biases + h * (2 * relative->longest - 1) + relative->longest - 1,
                                 context + h * a->d_v, v_width);
        }
        for (int first = 0; !relative && first < length; first += QUERIES) {
            if (is_cancelled(&s->scratch)) return CANCELLED;
            attend(a->heads, MIN(QUERIES, length - first), qkv + (int64_t)first * width, width, a->d_k, (Cached){keys, 0},
                   (Cached){qkv + 2 * k_width, 0}, width, a->d_v, length, s->scores.bytes, context + (int64_t)first * v_width, v_width);
        }
        qkv += (int64_t)length * width;
        context += (int64_t)length * v_width;
    }
    return attention_output(s, a, rows);
}

int embed_sources(Decoding *s, const int32_t *tokens, const int32_t *types, int first, int sentences, int rows) {
    const Transformer *m = s->model;
    const Embeddings *e = &m->source;
    int32_t *positions = reserve(&s->live, 4 * (int64_t)rows);
    if (!positions) return OUT_OF_MEMORY;
    for (int i = first, r = 0; i < first + sentences; i++)
        for (int t = 0, counted = 0; t < s->lengths[i]; t++, r++) {
            positions[r] = counted;
            counted += tokens[r] != e->padding;
        }
    float *x = s->x.bytes, *narrow = e->project ? s->wide.bytes : x;
    embed(e, tokens, types, positions, rows, e->project ? e->width : m->d_model, narrow);
    if (!e->project) return 0;
    return linear_forward(e->project, narrow, rows, round_up(e->width), x, padded_width(m), NONE, &s->scratch);
}

/* The same for vectors, which are padded with zeros. */
static void copy_vectors(Decoding *s, const float *vectors, int rows) {
    const int d = s->model->d_model, width = padded_width(s->model);
    float *x = s->x.bytes;
    for (int r = 0; r < rows; r++, x += width, vectors += d) {
        memcpy(x, vectors, 4 * (size_t)d);
        memset(x + d, 0, 4 * (size_t)(width - d));
    }
}

/* Encodes some sources from `first` on, of `rows` positions, the longest of `longest`. */
static int encode_batch(Decoding *s, Sources sources, int first, int sentences, int rows, int longest) {
    const Transformer *m = s->model;
    TRY(reserve_activations(s, rows, longest));
    float *x = s->x.bytes;
    if (sources.vectors) copy_vectors(s, sources.vectors, rows);
    else TRY(embed_sources(s, sources.tokens, sources.types, first, sentences, rows));
    for (int l = 0; l < m->n_encoder_layers; l++) {
        TRY(encoder_attention(s, &m->encoder[l].self, s->lengths + first, sentences, rows));
        TRY(feed_forward(s, &m->encoder[l].ffn, rows));
    }
    if (m->encoder_norm.weight) norm_rows(&m->encoder_norm, x, x, rows, m->d_model);
    return 0;
}

int encode(Decoding *s, Sources sources, float *hidden) {
    for (int first = 0, next; first < s->sentences; first = next) {
        int rows = 0, longest = 0;
        for (next = first; next < s->sentences && (next == first || rows + s->lengths[next] <= ENCODER_BATCH); next++) {
            rows += s->lengths[next];
            longest = MAX(longest, s->lengths[next]);
        }
        TRY(encode_batch(s, sources, first, next - first, rows, longest));
        if (!hidden) TRY(project_memory(s, s->x.bytes, first, next - first, rows));
        else copy_rows(s->model, hidden, s->x.bytes, rows);
        if (hidden) hidden += (int64_t)rows * s->model->d_model;
        if (sources.tokens) sources.tokens += rows;
        if (sources.types) sources.types += rows;
        if (sources.vectors) sources.vectors += (int64_t)rows * s->model->d_model;
    }
    return 0;
}

int headwise_encode(const Transformer *model, const int32_t *tokens, const int32_t *types, const int32_t *lengths, int texts,
                     const atomic_int *stop, float *hidden) {
    Decoding s = {.model = model, .sentences = texts, .lengths = (int *)lengths, .scratch = {.stop = stop}};
    const int failed = encode(&s, (Sources){tokens, types, NULL}, hidden);
    free_activations(&s);
    return failed;
}
