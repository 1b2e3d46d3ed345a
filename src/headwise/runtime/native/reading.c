/* See reading.h. The sub-layers are those of encoder.c and decoder.c. What they leave in memory is copied, and what they
   overwrite is computed again by the same functions, so it has the same bits. */

#include "reading.h"

#include "layers.h"
#include "slots.h"

#include <string.h>

typedef struct Reader {
    Decoding *s, again; /* again: in `x` the input of a sub-layer, in `h` the norm of it, in `wide` its first product */
    Recording to;       /* where the next layer is recorded */
} Reader;

/* Copies `n` numbers, if they are recorded. */
static void record(float *to, int64_t at, const float *x, int n) {
    if (to) memcpy(to + at, x, 4 * (size_t)n);
}

/* Rows of `n` numbers, `stride` apart. */
static void record_rows(float *to, const float *x, int64_t stride, int rows, int n) {
    for (int r = 0; r < rows; r++) record(to, (int64_t)r * n, x + r * stride, n);
}

static void record_states(const Transformer *m, float *to, const float *x, int rows) {
    if (to) copy_rows(m, to, x, rows);
}

/* Where the next layer is recorded; `to` moves behind it. */
static float *next_layer(float **to, int64_t count) {
    float *here = *to;
    if (here) *to += count;
    return here;
}

/* What is recorded of a layer for a walk, or with -1 of its stack: nothing, except of the ones that were asked for. */
static const Walk *walk_of(const Reader *r, int decoder, int layer) {
    static const Walk nothing = {0};
    const Walk *walk = &r->to.walk;
    return walk->decoder == decoder && (layer < 0 || walk->layer == layer) ? walk : &nothing;
}

/* --- Attention weights --- */

/* Weights of all heads to `weights` (head, queries, length), and scores and weights of one head to `to`, one query at a
   time. Keys are transposed, one head after the other. */
static void record_weights(Decoding *s, const Attention *a, const float *q, int64_t stride, int queries, Cached keys,
                           int length, float *weights, int head, const AttentionSteps *to) {
    const int wide = round_up(length), walked = to->scores || to->weights;
    float *scores = s->scores.bytes;
    for (int h = 0; h < a->heads; h++, q += a->d_k, keys = cached_from(keys, (int64_t)a->d_k * wide))
        for (int r = 0; (weights || (walked && h == head)) && r < queries; r++) {
            multiply_cached(1, q + r * stride, stride, keys, wide, a->d_k, scores, wide, wide);
            if (h == head) record(to->scores, (int64_t)r * length, scores, length);
            softmax(scores, length, wide);
            if (h == head) record(to->weights, (int64_t)r * length, scores, length);
            record(weights, ((int64_t)h * queries + r) * length, scores, length);
        }
}

/* The same for the only target and its keys in the cache, without windows. */
static void record_cached_weights(Decoding *s, const Attention *a, Cached keys, const int32_t *slots_in_order, int rows,
                                  float *weights, int head, const AttentionSteps *to) {
    const float *q = s->wide.bytes;
    float *scores = s->scores.bytes;
    for (int r = 0; (weights || to->scores || to->weights) && r < rows; r++, q += a->in->d_out) {
        const int length = r + 1, wide = round_up(length);
        const Slots slots = {0, 0, slots_in_order, 0};
        score_paths(a, 1, q, 0, keys, &slots, r, scores);
        record(to->scores, (int64_t)r * rows, scores + (int64_t)head * wide, length);
        for (int h = 0; h < a->heads; h++) {
            softmax(scores + (int64_t)h * wide, length, wide);
            record(weights, ((int64_t)h * rows + r) * rows, scores + (int64_t)h * wide, length);
        }
        record(to->weights, (int64_t)r * rows, scores + (int64_t)head * wide, length);
    }
}

/* --- The walk --- */

/* Before a sub-layer. */
static void keep_input(Reader *r, int rows) {
    memcpy(r->again.x.bytes, r->s->x.bytes, 4 * (size_t)rows * padded_width(r->s->model));
}

/* The first product of a sub-layer again; its input, which is normalised in pre-norm models, goes to `in`. */
static int multiply_again(Reader *r, const Norm *norm, const Linear *first, int rows, const float **in) {
    const Transformer *m = r->s->model;
    *in = sublayer_input(m, norm, r->again.x.bytes, r->again.h.bytes, rows);
    return linear_forward(first, *in, rows, padded_width(m), r->again.wide.bytes, first->d_out, NONE, &r->s->scratch);
}

static void record_ends(Reader *r, const float *in, int rows, const SublayerSteps *to) {
    const Transformer *m = r->s->model;
    const float *x = r->s->x.bytes, *out = r->s->h.bytes;
    float *sum = r->again.x.bytes;
    record_states(m, to->norm, m->norm_first ? in : x, rows);
    record_states(m, to->out, out, rows);
    for (int64_t i = 0; i < (int64_t)rows * padded_width(m); i++) sum[i] += out[i];
    record_states(m, to->add, sum, rows);
}

/* An attention after it ran; keys and values of a cross-attention are recorded elsewhere. */
static int walk_attention(Reader *r, const Attention *a, int rows, int head, const AttentionSteps *to) {
    const int width = a->in->d_out, v_width = a->heads * a->d_v, shared = head * a->kv_heads / a->heads;
    const int keys = (a->heads + shared) * a->d_k, values = (a->heads + a->kv_heads) * a->d_k + shared * a->d_v;
    const float *in, *made = r->again.wide.bytes, *turned = r->s->wide.bytes;
    TRY(multiply_again(r, &a->norm, a->in, rows, &in));
    record_rows(to->queries, made + head * a->d_k, width, rows, a->d_k);
    if (!a->memory) {
        record_rows(to->keys, made + keys, width, rows, a->d_k);
        record_rows(to->values, made + values, width, rows, a->d_v);
        record_rows(to->turned_queries, turned + head * a->d_k, width, rows, a->d_k);
        record_rows(to->turned_keys, turned + keys, width, rows, a->d_k);
    }
    record_rows(to->concat, r->s->context.bytes, v_width, rows, v_width);
    record_ends(r, in, rows, &to->ends);
    return 0;
}

static float cached_number(const Decoding *s, const void *cache, int64_t at) {
    float number;
    convert((const char *)cache + cached_size(s) * at, s->half, 1, &number, 0);
    return number;
}

/* Keys and values of the only source. */
static void walk_memory(const Decoding *s, const Attention *a, int layer, int head, const AttentionSteps *to) {
    const int length = s->lengths[0], wide = round_up(length);
    const int64_t keys = (int64_t)head * a->d_k * wide, values = head * a->d_v, v_width = a->heads * a->d_v;
    for (int t = 0; to->keys && t < length; t++)
        for (int i = 0; i < a->d_k; i++)
            to->keys[(int64_t)t * a->d_k + i] = cached_number(s, s->cross_k[layer], keys + (int64_t)i * wide + t);
    for (int t = 0; to->values && t < length; t++)
        for (int i = 0; i < a->d_v; i++)
            to->values[(int64_t)t * a->d_v + i] = cached_number(s, s->cross_v[layer], values + t * v_width + i);
}

static int walk_feed_forward(Reader *r, const FeedForward *f, int rows, const Walk *to) {
    const int width = f->up->d_out;
    const float *in;
    TRY(multiply_again(r, &f->norm, f->up, rows, &in));
    record_rows(to->up, r->again.wide.bytes, width, rows, width);
    record_rows(to->inside, r->s->wide.bytes, width, rows, f->down->d_in);
    record_ends(r, in, rows, &to->ffn);
    return 0;
}

static void walk_embeddings(Reader *r, const Embeddings *e, const int32_t *tokens, const int32_t *positions, int rows,
                            const Walk *to) {
    const Transformer *m = r->s->model;
    const int d = m->d_model;
    float *x = r->again.x.bytes;
    Embeddings part = *e;
    record_states(m, to->embedded, r->s->x.bytes, rows);
    part.norm.weight = NULL;
    embed(&part, tokens, NULL, positions, rows, d, x);
    record_states(m, to->sum, x, rows);
    part.positions = part.types = NULL;
    embed(&part, tokens, NULL, positions, rows, d, x);
    record_states(m, to->embeddings, x, rows);
    for (int t = 0; e->positions && t < rows; t++) {
        const int at = tokens[t] == e->padding ? -1 : positions[t];
        record(to->positions, (int64_t)t * d, e->positions + (int64_t)at * padded_width(m), d);
    }
}

/* The output of the last layer, which is normalised. */
static void walk_top(const Transformer *m, const Norm *norm, float *x, int rows, const Walk *to) {
    record_states(m, to->top, x, rows);
    if (norm->weight) norm_rows(norm, x, x, rows, m->d_model);
    record_states(m, to->output, x, rows);
}

/* --- Stacks --- */

/* The encoder again, for the source of the only pair. */
static int read_source(Reader *r, const int32_t *tokens, int rows) {
    Decoding *s = r->s;
    const Transformer *m = s->model;
    TRY(reserve_activations(s, rows, rows));
    TRY(reserve_activations(&r->again, rows, rows));
    TRY(embed_sources(s, tokens, NULL, 0, 1, rows));
    walk_embeddings(r, &m->source, tokens, s->live.bytes, rows, walk_of(r, 0, -1));
    for (int l = 0; l < m->n_encoder_layers; l++) {
        const Attention *a = &m->encoder[l].self;
        const Walk *walk = walk_of(r, 0, l);
        record_states(m, walk->input, s->x.bytes, rows);
        keep_input(r, rows);
        TRY(encoder_attention(s, a, s->lengths, 1, rows));
        record_weights(s, a, s->wide.bytes, a->in->d_out, rows, (Cached){s->keys.bytes, 0}, rows,
                       next_layer(&r->to.encoder, (int64_t)a->heads * rows * rows), walk->head, &walk->self);
        if (walk->memory) TRY(walk_attention(r, a, rows, walk->head, &walk->self));
        keep_input(r, rows);
        TRY(feed_forward(s, &m->encoder[l].ffn, rows));
        if (walk->memory) TRY(walk_feed_forward(r, &m->encoder[l].ffn, rows, walk));
    }
    walk_top(m, &m->encoder_norm, s->x.bytes, rows, walk_of(r, 0, -1));
    record_states(m, r->to.walk.memory, s->x.bytes, rows);
    return 0;
}

/* The cross-attention of a layer after it ran, of targets of these lengths. */
static int record_cross(Reader *r, int layer, int rows, const int32_t *lengths) {
    Decoding *s = r->s;
    const Attention *a = &s->model->decoder[layer].cross;
    const int width = a->heads * a->d_k;
    const float *q = s->wide.bytes;
    const Walk *walk = walk_of(r, 1, layer);
    for (int i = 0; i < s->sentences; q += (int64_t)lengths[i++] * width) {
        const int64_t count = (int64_t)a->heads * lengths[i] * s->lengths[i];
        record_weights(s, a, q, width, lengths[i], cached_from(cached(s, s->cross_k[layer]), s->offsets[i] * width), s->lengths[i],
                       layer < r->to.first ? NULL : next_layer(&r->to.cross, count), walk->head, &walk->cross);
    }
    if (!walk->memory) return 0;
    walk_memory(s, a, layer, walk->head, &walk->cross);
    return walk_attention(r, a, rows, walk->head, &walk->cross);
}

/* All targets, each token a row; `positions` has memory for a path of `longest` slots for each row, and two numbers more. */
static int read_targets(Reader *r, const int32_t *tokens, const int32_t *lengths, int rows, int longest, int32_t *positions) {
    Decoding *s = r->s;
    const Transformer *m = s->model;
    const int64_t size = (int64_t)rows * m->d_model;
    int32_t *sentences = positions + rows, *paths = sentences + rows;
    for (int i = 0, first = 0; i < s->sentences; first += lengths[i++])
        for (int t = 0; t < lengths[i]; t++) {
            positions[first + t] = t;
            sentences[first + t] = i;
            for (int u = 0; u <= t; u++) paths[(int64_t)(first + t) * longest + u] = first + u;
        }
    TRY(grow_cache(s, rows));
    TRY(reserve_activations(s, rows, longest));
    TRY(reserve_activations(&r->again, rows, longest));
    float *x = s->x.bytes, *h = r->again.h.bytes;
    embed(&m->target, tokens, NULL, positions, rows, m->d_model, x);
    walk_embeddings(r, &m->target, tokens, positions, rows, walk_of(r, 1, -1));
    record_states(m, next_layer(&r->to.residual, size), x, rows);
    for (int l = 0; l < m->n_decoder_layers; l++) {
        const Attention *a = &m->decoder[l].self;
        const Walk *walk = walk_of(r, 1, l);
        record_states(m, walk->input, x, rows);
        keep_input(r, rows);
        TRY(decoder_attention(s, l, rows, positions, sentences, paths, longest));
        record_cached_weights(s, a, cached(s, s->self_k[l]), positions, rows,
                              next_layer(&r->to.decoder, (int64_t)a->heads * rows * rows), walk->head, &walk->self);
        if (walk->memory) TRY(walk_attention(r, a, rows, walk->head, &walk->self));
        if (m->decoder[l].cross.in) {
            keep_input(r, rows);
            TRY(cross_attention(s, l, rows, sentences));
            TRY(record_cross(r, l, rows, lengths));
        }
        keep_input(r, rows);
        TRY(feed_forward(s, &m->decoder[l].ffn, rows));
        if (walk->memory) TRY(walk_feed_forward(r, &m->decoder[l].ffn, rows, walk));
        record_states(m, next_layer(&r->to.residual, size), x, rows);
        if (r->to.states && m->decoder_norm.weight) norm_rows(&m->decoder_norm, x, h, rows, m->d_model);
        record_states(m, next_layer(&r->to.states, size), m->decoder_norm.weight ? h : x, rows);
    }
    walk_top(m, &m->decoder_norm, x, rows, walk_of(r, 1, -1));
    return 0;
}

int headwise_read(const Transformer *model, const int32_t *sources, const int32_t *source_lengths, const int32_t *targets,
                  const int32_t *lengths, int pairs, const Recording *recording) {
    Transformer part = *model; /* without the layers that are not computed */
    part.n_decoder_layers = recording->end;
    int rows = 0, longest = 1;
    for (int i = 0; i < pairs; i++) {
        rows += lengths[i];
        longest = MAX(longest, MAX(lengths[i], sources ? source_lengths[i] : 0));
    }
    Decoding *s = sources ? headwise_start(&part, sources, source_lengths, pairs, NULL)
                          : new_decoding(&part, lengths, pairs, NULL);
    Reader r = {s, {.model = &part}, *recording};
    int32_t *positions = malloc(4 * (size_t)rows * (longest + 2));
    int failed = r.s && positions ? 0 : OUT_OF_MEMORY;
    const int encoded = sources && (recording->encoder || recording->walk.memory);
    if (!failed && encoded) failed = read_source(&r, sources, source_lengths[0]);
    if (!failed) failed = read_targets(&r, targets, lengths, rows, longest, positions);
    headwise_end(r.s);
    free_activations(&r.again);
    free(positions);
    return failed;
}
