/* See transformer.h. */

#include "transformer.h"

#include "attention.h"

#include <math.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define TOGETHER 512 /* source positions encoded at once, so that activations stay in the caches */

/* --- Small functions of rows --- */

/* The padded row length; products, sums and norms keep the padding 0. */
static int width_of(const Transformer *model) { return rounded(model->d_model); }

/* x * weight / sqrt(mean(x^2) + eps) */
static void scale_by_rms(const Norm *norm, const float *x, float *y, int d) {
    const int width = rounded(d);
    f8 squares = all8(0);
    for (int i = 0; i < width; i += 8) squares = fma8(load8(x + i), load8(x + i), squares);
    const f8 factor = all8(1 / sqrtf(lanes_sum(squares) / d + norm->eps));
    for (int i = 0; i < width; i += 8) {
        f8 unit = mul8(load8(x + i), factor);
        store8(y + i, mul8(unit, load8(norm->weight + i)));
    }
}

/* Keeps the first numbers of eight, 0 for the others. */
INLINE f8 first8(f8 x, int n) {
    static const i8 lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    return where8(lanes < n, x);
}

/* The norm of one padded row of d numbers; may be in place. */
static void normalise(const Norm *norm, const float *x, float *y, int d) {
    if (!norm->bias) {
        scale_by_rms(norm, x, y, d);
        return;
    }
    const int width = rounded(d);
    f8 total = all8(0), squares = all8(0);
    for (int i = 0; i < width; i += 8) total = add8(total, load8(x + i));
    const f8 mean = all8(lanes_sum(total) / d);
    for (int i = 0; i < width; i += 8) {
        f8 off = sub8(load8(x + i), mean);
        if (i + 8 > d) off = first8(off, d - i);
        squares = fma8(off, off, squares);
    }
    const f8 factor = all8(1 / sqrtf(lanes_sum(squares) / d + norm->eps));
    for (int i = 0; i < width; i += 8) {
        f8 unit = mul8(sub8(load8(x + i), mean), factor);
        unit = fma8(unit, load8(norm->weight + i), load8(norm->bias + i));
        store8(y + i, unit);
    }
}

static void normalise_rows(const Norm *norm, const float *x, float *y, int rows, int d) {
    const int64_t width = rounded(d);
    for (int r = 0; r < rows; r++) normalise(norm, x + r * width, y + r * width, d);
}

/* --- Recordings --- */

/* Where the next layer is recorded; `to` is one of a recording, and moves behind it. */
static float *next_layer(float **to, int64_t count) {
    float *here = *to;
    if (here) *to += count;
    return here;
}

/* `n` numbers as row r, if `to` is recorded. */
static void record_row(float *to, int r, const float *x, int n) {
    if (to) memcpy(to + (int64_t)r * n, x, 4 * (size_t)n);
}

/* Rows of `n` numbers, `stride` apart. */
static void record(float *to, const float *x, int64_t stride, int rows, int n) {
    for (int r = 0; to && r < rows; r++) record_row(to, r, x + r * stride, n);
}

/* Rows of d_model numbers, without what follows them in memory. */
static void record_rows(const Transformer *m, float *to, const float *x, int rows) {
    record(to, x, width_of(m), rows, m->d_model);
}

/* What is recorded of a stack for a walk, and of one of its layers: nothing, except of the ones that were asked for. */
static const Walk *walk_of_stack(const Decoding *s, int decoder) {
    static const Walk nothing = {0};
    return s->recording.walk.decoder == decoder ? &s->recording.walk : &nothing;
}

static const Walk *walk_of(const Decoding *s, int decoder, int layer) {
    return walk_of_stack(s, s->recording.walk.layer == layer ? decoder : -1);
}

/* --- Embeddings, residual connections --- */

/* 3.1: adds a sub-layer's output to x, and normalises in post-norm models. */
static void add_residual(const Transformer *model, const Norm *norm, float *x, const float *made, int rows,
                         const SublayerSteps *to) {
    const int width = width_of(model);
    record_rows(model, to->out, made, rows);
    for (int r = 0; r < rows; r++, x += width, made += width) {
        for (int i = 0; i < width; i += 8) store8(x + i, add8(load8(x + i), load8(made + i)));
        record_row(to->add, r, x, model->d_model);
        if (model->norm_first) continue;
        normalise(norm, x, x, model->d_model);
        record_row(to->norm, r, x, model->d_model);
    }
}

/* The input of a sub-layer: x, or in pre-norm models its norm in `h`. */
static const float *shown(const Transformer *model, const Norm *norm, const float *x, float *h, int rows,
                          const SublayerSteps *to) {
    if (!model->norm_first) return x;
    normalise_rows(norm, x, h, rows, model->d_model);
    record_rows(model, to->norm, h, rows);
    return h;
}

static void embed(const Embeddings *e, const int32_t *tokens, const int32_t *positions, int rows, int d, float *x,
                  const Walk *to) {
    const f8 scale = all8(e->scale);
    const int width = rounded(d);
    for (int r = 0; r < rows; r++, x += width) {
        const int at = tokens[r] == e->padding ? -1 : positions[r];
        const int64_t row = (int64_t)tokens[r] * width;
        const float *position = e->positions + (int64_t)at * width;
        for (int i = 0; i < width; i += 8) store8(x + i, mul8(read8(e->rows, row + i, e->half), scale));
        record_row(to->embeddings, r, x, d);
        record_row(to->positions, r, position, d);
        for (int i = 0; i < width; i += 8) store8(x + i, add8(load8(x + i), load8(position + i)));
        record_row(to->sum, r, x, d);
        if (e->norm.weight) normalise(&e->norm, x, x, d);
        record_row(to->embedded, r, x, d);
    }
}

/* --- Attention: equation 1 --- */

/* One row: the scores of all heads for the slots of its path. */
static void score_path(const Attention *a, const float *q, const float *keys, const int32_t *path, int length,
                       float *scores) {
    const int k_width = a->heads * a->d_k, room_for = rounded(length);
    for (int t = 0; t < length; t++) {
        const float *k = keys + (int64_t)path[t] * k_width;
        for (int h = 0; h < a->heads; h++) {
            f8 total = all8(0);
            for (int i = h * a->d_k; i < (h + 1) * a->d_k; i += 8)
                total = fma8(load8(q + i), load8(k + i), total);
            scores[h * room_for + t] = lanes_sum(total);
        }
    }
}

/* The same row: from scores to weights, and the weighted sums of the values. */
static void sum_path(const Attention *a, const float *values, const int32_t *path, int length, float *scores, float *out) {
    const int v_width = a->heads * a->d_v, room_for = rounded(length);
    for (int h = 0; h < a->heads; h++) softmax(scores + h * room_for, length, room_for);
    for (int i = 0; i < v_width; i += 8) {
        const float *weights = scores + i / a->d_v * room_for;
        f8 total = all8(0);
        for (int t = 0; t < length; t++) {
            f8 v = load8(values + (int64_t)path[t] * v_width + i);
            total = fma8(all8(weights[t]), v, total);
        }
        store8(out + i, total);
    }
}

/* --- Sub-layers --- */

/* Memory for the activations of `rows` rows, and for the scores of `length` keys. */
static int prepare(Decoding *s, int64_t rows, int length) {
    const Transformer *m = s->model;
    int64_t wide = 0, context = 0, keys = 0;
    int heads = 1;
    for (int side = 0; side < 2; side++) {
        const int layers = side ? m->n_decoder_layers : m->n_encoder_layers;
        for (int i = 0; i < layers; i++) {
            const Layer *layer = side ? m->decoder + i : m->encoder + i;
            wide = MAX(wide, MAX(layer->self.in->d_out, layer->ffn.up->d_out));
            context = MAX(context, (int64_t)layer->self.heads * layer->self.d_v);
            keys = MAX(keys, layer->self.d_k);
            heads = MAX(heads, layer->self.heads);
            if (!side) continue;
            wide = MAX(wide, MAX(layer->cross.in->d_out, layer->cross.memory->d_out));
            context = MAX(context, (int64_t)layer->cross.heads * layer->cross.d_v);
            heads = MAX(heads, layer->cross.heads);
        }
    }
    int64_t score_rows = MAX(heads, 4);
    int complete = room(&s->x, 4 * rows * width_of(m)) && room(&s->h, 4 * rows * width_of(m)) &&
                   room(&s->wide, 4 * rows * wide) && room(&s->context, 4 * rows * context) &&
                   room(&s->scores, 4 * score_rows * rounded(length)) && room(&s->keys, 4 * keys * rounded(length));
    return complete ? 0 : -1;
}

static int feed_forward(Decoding *s, const FeedForward *f, int rows, const Walk *to) {
    const Transformer *m = s->model;
    const int d = width_of(m), width = f->up->d_out, d_ff = f->down->d_in, gated = width != d_ff;
    float *x = s->x.bytes, *h = s->h.bytes, *wide = s->wide.bytes;
    const float *in = shown(m, &f->norm, x, h, rows, &to->ffn);
    if (apply(f->up, in, rows, d, wide, width, gated || to->up ? NONE : f->activation, &s->scratch)) return -1;
    record(to->up, wide, width, rows, width);
    if (to->up && !gated) headwise_activate(f->activation, wide, rows * width);
    for (int r = 0; gated && r < rows; r++) {
        float *row = wide + (int64_t)r * width;
        gate(f->activation, row, row + d_ff, d_ff);
    }
    record(to->inside, wide, width, rows, d_ff);
    if (apply(f->down, wide, rows, width, h, d, NONE, &s->scratch)) return -1;
    add_residual(m, &f->norm, x, h, rows, &to->ffn);
    return 0;
}

static int close_attention(Decoding *s, const Attention *a, int rows, const AttentionSteps *to) {
    const int d = width_of(s->model), width = a->heads * a->d_v;
    record(to->concat, s->context.bytes, width, rows, width);
    if (apply(a->out, s->context.bytes, rows, width, s->h.bytes, d, NONE, &s->scratch)) return -1;
    add_residual(s->model, &a->norm, s->x.bytes, s->h.bytes, rows, &to->ends);
    return 0;
}

/* 3.2.1: scales queries. Scaling the weights instead would change their rounding. */
static void scale_queries(const Attention *a, float *q, int64_t stride, int rows) {
    const f8 scale = all8(a->scale);
    for (int r = 0; r < rows; r++, q += stride)
        for (int i = 0; i < a->heads * a->d_k; i += 8) store8(q + i, mul8(load8(q + i), scale));
}

/* Applies rotary positions to the queries and keys of a row. */
static void turn(const Rotary *rotary, int position, float *row, int heads, int d_k) {
    const int half = rotary->half;
    if (!rotary->turns) return;
    const float *cosines = rotary->turns + (int64_t)position * 2 * half, *sines = cosines + half;
    for (float *head = row; head < row + heads * d_k; head += d_k)
        for (int i = 0; i < half; i += 8) {
            f8 first = load8(head + i), second = load8(head + half + i), c = load8(cosines + i), s = load8(sines + i);
            store8(head + i, sub8(mul8(first, c), mul8(second, s)));
            store8(head + half + i, add8(mul8(second, c), mul8(first, s)));
        }
}

/* Scores and attention weights of one head, (queries, length), again and one query at a time, for a recording. */
static void record_head(Decoding *s, int queries, const float *q, int64_t q_stride, int d_k, const float *keys, int length,
                        float *raw, float *weights) {
    const int wide = rounded(length);
    float *scores = s->scores.bytes;
    for (int r = 0; (raw || weights) && r < queries; r++) {
        multiply(1, q + r * q_stride, q_stride, keys, wide, d_k, scores, wide, wide);
        record_row(raw, r, scores, length);
        softmax(scores, length, wide);
        record_row(weights, r, scores, length);
    }
}

/* The projections of one head, before its queries are scaled and turned. */
static void record_projections(const Attention *a, int head, const AttentionSteps *to, const float *qkv, int rows) {
    const int k_width = a->heads * a->d_k, width = a->in->d_out;
    record(to->queries, qkv + head * a->d_k, width, rows, a->d_k);
    record(to->keys, qkv + k_width + head * a->d_k, width, rows, a->d_k);
    record(to->values, qkv + 2 * k_width + head * a->d_v, width, rows, a->d_v);
}

/* Queries and keys of one head after rotary positions. */
static void record_turned(const Attention *a, int head, const AttentionSteps *to, const float *qkv, int rows) {
    record(to->turned_queries, qkv + head * a->d_k, a->in->d_out, rows, a->d_k);
    record(to->turned_keys, qkv + (a->heads + head) * a->d_k, a->in->d_out, rows, a->d_k);
}

/* Sentences attend to themselves; `lengths` of their rows, one after the other. */
static int encoder_attention(Decoding *s, const Attention *a, const int32_t *lengths, int sentences, int rows,
                             const Walk *walk) {
    const AttentionSteps *to = &walk->self;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->in->d_out;
    float *qkv = s->wide.bytes, *keys = s->keys.bytes, *context = s->context.bytes;
    const float *in = shown(s->model, &a->norm, s->x.bytes, s->h.bytes, rows, &to->ends);
    if (apply(a->in, in, rows, width_of(s->model), qkv, width, NONE, &s->scratch)) return -1;
    record_projections(a, walk->head, to, qkv, rows);
    scale_queries(a, qkv, width, rows);
    float *weights = next_layer(&s->recording.encoder, (int64_t)a->heads * rows * rows); /* of the only pair */
    for (int i = 0; i < sentences; i++) {
        for (int t = 0; t < lengths[i]; t++) turn(&s->model->rotary, t, qkv + (int64_t)t * width, 2 * a->heads, a->d_k);
        record_turned(a, walk->head, to, qkv, rows);
        for (int h = 0; h < a->heads; h++) {
            if (stopped(&s->scratch)) return -1;
            transpose(qkv + k_width + h * a->d_k, width, lengths[i], a->d_k, keys);
            if (weights)
                record_head(s, rows, qkv + h * a->d_k, width, a->d_k, keys, rows, NULL, weights + (int64_t)h * rows * rows);
            if (h == walk->head)
                record_head(s, rows, qkv + h * a->d_k, width, a->d_k, keys, rows, to->scores, to->weights);
            attend(lengths[i], qkv + h * a->d_k, width, a->d_k, keys, qkv + 2 * k_width + h * a->d_v, width, a->d_v,
                   lengths[i], s->scores.bytes, context + h * a->d_v, v_width);
        }
        qkv += (int64_t)lengths[i] * width, context += (int64_t)lengths[i] * v_width;
    }
    return close_attention(s, a, rows, to);
}

static int decoder_attention(Decoding *s, int layer, int rows, const int32_t *positions, const int32_t *paths, int64_t stride) {
    const Attention *a = &s->model->decoder[layer].self;
    const Walk *walk = walk_of(s, 1, layer);
    const AttentionSteps *to = &walk->self;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->in->d_out;
    float *qkv = s->wide.bytes, *context = s->context.bytes;
    float *keys = s->self_k[layer], *values = s->self_v[layer];
    const float *in = shown(s->model, &a->norm, s->x.bytes, s->h.bytes, rows, &to->ends);
    if (apply(a->in, in, rows, width_of(s->model), qkv, width, NONE, &s->scratch)) return -1;
    record_projections(a, walk->head, to, qkv, rows);
    scale_queries(a, qkv, width, rows);
    for (int r = 0; r < rows; r++) {
        float *row = qkv + (int64_t)r * width;
        turn(&s->model->rotary, positions[r], row, 2 * a->heads, a->d_k);
        memcpy(keys + (s->used + r) * k_width, row + k_width, 4 * (size_t)k_width);
        memcpy(values + (s->used + r) * v_width, row + 2 * k_width, 4 * (size_t)v_width);
    }
    record_turned(a, walk->head, to, qkv, rows);
    float *weights = next_layer(&s->recording.decoder, (int64_t)a->heads * rows * rows);
    for (int r = 0; r < rows; r++) {
        if (stopped(&s->scratch)) return -1;
        const int length = positions[r] + 1;
        float *scores = s->scores.bytes, *of_head = scores + walk->head * rounded(length);
        score_path(a, qkv + (int64_t)r * width, keys, paths + r * stride, length, scores);
        if (to->scores) memcpy(to->scores + (int64_t)r * rows, of_head, 4 * (size_t)length);
        sum_path(a, values, paths + r * stride, length, scores, context + (int64_t)r * v_width);
        if (to->weights) memcpy(to->weights + (int64_t)r * rows, of_head, 4 * (size_t)length);
        for (int h = 0; weights && h < a->heads; h++)
            memcpy(weights + ((int64_t)h * rows + r) * rows, scores + h * rounded(length), 4 * (size_t)length);
    }
    return close_attention(s, a, rows, to);
}

static int cross_attention(Decoding *s, int layer, int rows, const int32_t *sentences) {
    const Attention *a = &s->model->decoder[layer].cross;
    const Walk *walk = walk_of(s, 1, layer);
    const AttentionSteps *to = &walk->cross;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v;
    float *q = s->wide.bytes, *context = s->context.bytes;
    const float *in = shown(s->model, &a->norm, s->x.bytes, s->h.bytes, rows, &to->ends);
    if (apply(a->in, in, rows, width_of(s->model), q, k_width, NONE, &s->scratch)) return -1;
    record(to->queries, q + walk->head * a->d_k, k_width, rows, a->d_k);
    scale_queries(a, q, k_width, rows);
    for (int r = 0, next; r < rows; r = next) { /* rows of one sentence together */
        const int sentence = sentences[r], length = s->lengths[sentence], wide = rounded(length);
        if (stopped(&s->scratch)) return -1;
        for (next = r + 1; next < rows && sentences[next] == sentence; next++) {}
        const float *keys = s->cross_k[layer] + s->offsets[sentence] * k_width;
        const float *values = s->cross_v[layer] + s->offsets[sentence] * v_width;
        const int queries = next - r;
        float *weights = layer < s->recording.first ? NULL : next_layer(&s->recording.cross, (int64_t)a->heads * queries * length);
        for (int h = 0; weights && h < a->heads; h++)
            record_head(s, queries, q + (int64_t)r * k_width + h * a->d_k, k_width, a->d_k, keys + (int64_t)h * a->d_k * wide,
                        length, NULL, weights + (int64_t)h * queries * length);
        record_head(s, queries, q + (int64_t)r * k_width + walk->head * a->d_k, k_width, a->d_k,
                    keys + (int64_t)walk->head * a->d_k * wide, length, to->scores, to->weights);
        for (int h = 0; h < a->heads; h++)
            attend(queries, q + (int64_t)r * k_width + h * a->d_k, k_width, a->d_k, keys + (int64_t)h * a->d_k * wide,
                   values + h * a->d_v, v_width, a->d_v, length, s->scores.bytes,
                   context + (int64_t)r * v_width + h * a->d_v, v_width);
    }
    return close_attention(s, a, rows, to);
}

/* --- Sources --- */

/* Cross-attention keys and values of the encoded rows `x` for every decoder layer. */
static int remember(Decoding *s, const float *memory, int first, int sentences, int rows) {
    const Transformer *m = s->model;
    for (int l = 0; l < s->recording.end; l++) {
        const Attention *a = &m->decoder[l].cross;
        const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->memory->d_out;
        float *kv = s->wide.bytes;
        if (apply(a->memory, memory, rows, width_of(m), kv, width, NONE, &s->scratch)) return -1;
        const Walk *walk = walk_of(s, 1, l);
        record(walk->cross.keys, kv + walk->head * a->d_k, width, rows, a->d_k);
        record(walk->cross.values, kv + k_width + walk->head * a->d_v, width, rows, a->d_v);
        for (int i = first; i < first + sentences; i++) {
            const int length = s->lengths[i], wide = rounded(length);
            float *keys = s->cross_k[l] + s->offsets[i] * k_width, *values = s->cross_v[l] + s->offsets[i] * v_width;
            for (int h = 0; h < a->heads; h++)
                transpose(kv + h * a->d_k, width, length, a->d_k, keys + (int64_t)h * a->d_k * wide);
            for (int t = 0; t < length; t++) memcpy(values + (int64_t)t * v_width, kv + t * width + k_width, 4 * (size_t)v_width);
            kv += (int64_t)length * width;
        }
    }
    return 0;
}

static int encode(Decoding *s, const int32_t *pieces, int first, int sentences, int rows, int longest) {
    const Transformer *m = s->model;
    if (prepare(s, rows, longest)) return -1;
    int32_t *positions = room(&s->alive, 4 * (int64_t)rows);
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
    if (m->encoder_norm.weight) normalise_rows(&m->encoder_norm, x, x, rows, m->d_model);
    record_rows(m, walk_of_stack(s, 0)->output, x, rows);
    record_rows(m, s->recording.walk.memory, x, rows);
    return remember(s, x, first, sentences, rows);
}

static float **layer_buffers(int layers) { return calloc(layers + 1, sizeof(float *)); }

static float *aligned_floats(int64_t count) { return aligned_alloc(64, (4 * count + 127) / 64 * 64); }

static Decoding *start(const Transformer *model, const int32_t *pieces, const int32_t *lengths, int sentences,
                       const atomic_int *stop, Recording recording) {
    Decoding *s = calloc(1, sizeof(Decoding));
    if (!s) return NULL;
    s->recording = recording;
    const int layers = model->n_decoder_layers;
    s->model = model, s->sentences = sentences, s->scratch.stop = stop;
    s->lengths = malloc(sizeof(int) * (sentences + 1)), s->offsets = malloc(sizeof(int64_t) * (sentences + 1));
    s->cross_k = layer_buffers(layers), s->cross_v = layer_buffers(layers);
    s->self_k = layer_buffers(layers), s->self_v = layer_buffers(layers);
    int complete = s->lengths && s->offsets && s->cross_k && s->cross_v && s->self_k && s->self_v;
    int64_t total = 0;
    for (int i = 0; complete && i < sentences; i++) {
        s->lengths[i] = lengths[i], s->offsets[i] = total;
        total += rounded(lengths[i]);
    }
    for (int l = 0; complete && l < layers; l++) {
        const Attention *a = &model->decoder[l].cross;
        s->cross_k[l] = aligned_floats(total * a->heads * a->d_k);
        s->cross_v[l] = aligned_floats(total * a->heads * a->d_v);
        complete = s->cross_k[l] && s->cross_v[l];
    }
    for (int first = 0, next; complete && first < sentences; first = next) {
        int rows = 0, longest = 0;
        for (next = first; next < sentences && (next == first || rows + lengths[next] <= TOGETHER); next++) {
            rows += lengths[next];
            longest = MAX(longest, lengths[next]);
        }
        complete = !encode(s, pieces, first, next - first, rows, longest);
        pieces += rows;
    }
    if (complete) return s;
    headwise_end(s);
    return NULL;
}

Decoding *headwise_start(const Transformer *model, const int32_t *pieces, const int32_t *lengths, int sentences,
                          const atomic_int *stop) {
    return start(model, pieces, lengths, sentences, stop, (Recording){.end = model->n_decoder_layers});
}

void headwise_end(Decoding *s) {
    if (!s) return;
    for (int l = 0; l < s->model->n_decoder_layers; l++) {
        if (s->cross_k) free(s->cross_k[l]);
        if (s->cross_v) free(s->cross_v[l]);
        if (s->self_k) free(s->self_k[l]);
        if (s->self_v) free(s->self_v[l]);
    }
    free(s->cross_k), free(s->cross_v), free(s->self_k), free(s->self_v), free(s->lengths), free(s->offsets);
    Buffer *buffers[] = {&s->x, &s->h, &s->wide, &s->context, &s->scores, &s->keys, &s->scratch.levels, &s->alive};
    for (int i = 0; i < 8; i++) free(buffers[i]->bytes);
    free(s);
}

/* --- Steps --- */

static int widened(float **buffer, int64_t used, int64_t held, int64_t width) {
    float *bigger = aligned_floats(held * width);
    if (!bigger) return -1;
    if (used) memcpy(bigger, *buffer, 4 * (size_t)(used * width));
    free(*buffer);
    *buffer = bigger;
    return 0;
}

/* Frees slots: `to` has the new index of each, -1 for those to free. */
static void close_gaps(Decoding *s, const int32_t *to, int64_t kept) {
    const Transformer *m = s->model;
    for (int l = 0; l < m->n_decoder_layers; l++) {
        const Attention *a = &m->decoder[l].self;
        const int64_t k_width = (int64_t)a->heads * a->d_k, v_width = (int64_t)a->heads * a->d_v;
        for (int64_t i = 0; i < s->used; i++) {
            if (to[i] < 0 || to[i] == i) continue;
            memcpy(s->self_k[l] + to[i] * k_width, s->self_k[l] + i * k_width, 4 * (size_t)k_width);
            memcpy(s->self_v[l] + to[i] * v_width, s->self_v[l] + i * v_width, 4 * (size_t)v_width);
        }
    }
    s->used = kept;
}

static int widen(Decoding *s, int64_t held) {
    for (int l = 0; l < s->model->n_decoder_layers; l++) {
        const Attention *a = &s->model->decoder[l].self;
        if (stopped(&s->scratch)) return -1;
        if (widened(&s->self_k[l], s->used, held, (int64_t)a->heads * a->d_k)) return -1;
        if (widened(&s->self_v[l], s->used, held, (int64_t)a->heads * a->d_v)) return -1;
    }
    s->held = held;
    return 0;
}

int make_room(Decoding *const *members, int count, int rows, int32_t *paths, int hypotheses, int64_t stride, int length) {
    Decoding *s = members[0];
    if (s->used + rows <= s->held) return 0;
    int32_t *alive = room(&s->alive, 4 * (s->used + 1));
    if (!alive) return -1;
    memset(alive, 0, 4 * (size_t)s->used);
    int64_t living = 0;
    for (int h = 0; h < hypotheses; h++)
        for (int t = 0; t < length; t++)
            if (!alive[paths[h * stride + t]]) alive[paths[h * stride + t]] = 1, living++;
    if (2 * living < s->used) {
        int32_t kept = 0;
        for (int64_t i = 0; i < s->used; i++) alive[i] = alive[i] ? kept++ : -1;
        for (int m = 0; m < count; m++) close_gaps(members[m], alive, kept);
        for (int h = 0; h < hypotheses; h++)
            for (int t = 0; t < length; t++) paths[h * stride + t] = alive[paths[h * stride + t]];
    }
    const int64_t most = s->used + rows * MAX(stride - length, 1); /* enough if all of these rows stay live */
    if (most <= s->held || 2 * (s->used + rows) <= s->held) return 0;
    const int64_t held = MIN(most, MAX(s->held + s->held / 2, s->used + 8 * (int64_t)rows));
    for (int m = 0; m < count; m++)
        if (widen(members[m], held)) return -1;
    return 0;
}

int headwise_make_room(Decoding *s, int rows, int32_t *paths, int hypotheses, int64_t stride, int length) {
    return make_room(&s, 1, rows, paths, hypotheses, stride, length);
}

int headwise_step(Decoding *s, int rows, const int32_t *tokens, const int32_t *positions, const int32_t *sentences,
                   const int32_t *paths, int64_t stride, float *hidden) {
    const Transformer *m = s->model;
    int longest = 1;
    for (int i = 0; i < s->sentences; i++) longest = MAX(longest, s->lengths[i]);
    for (int r = 0; r < rows; r++) longest = MAX(longest, positions[r] + 1);
    if (prepare(s, rows, longest)) return -1;
    float *x = s->x.bytes;
    const int64_t size = (int64_t)rows * m->d_model;
    embed(&m->target, tokens, positions, rows, m->d_model, x, walk_of_stack(s, 1));
    record_rows(m, next_layer(&s->recording.residual, size), x, rows);
    for (int l = 0; l < s->recording.end; l++) {
        record_rows(m, walk_of(s, 1, l)->input, x, rows);
        if (decoder_attention(s, l, rows, positions, paths, stride)) return -1;
        if (cross_attention(s, l, rows, sentences)) return -1;
        if (feed_forward(s, &m->decoder[l].ffn, rows, walk_of(s, 1, l))) return -1;
        record_rows(m, next_layer(&s->recording.residual, size), x, rows);
        if (s->recording.states) {
            float *h = s->h.bytes;
            if (m->decoder_norm.weight) normalise_rows(&m->decoder_norm, x, h, rows, m->d_model);
            record_rows(m, next_layer(&s->recording.states, size), m->decoder_norm.weight ? h : x, rows);
        }
    }
    s->used += rows;
    record_rows(m, walk_of_stack(s, 1)->top, x, rows);
    if (m->decoder_norm.weight) normalise_rows(&m->decoder_norm, x, x, rows, m->d_model);
    record_rows(m, walk_of_stack(s, 1)->output, x, rows);
    record_rows(m, hidden, x, rows);
    return 0;
}

int headwise_read(const Transformer *model, const int32_t *sources, const int32_t *source_lengths, const int32_t *targets,
                   const int32_t *lengths, int pairs, const Recording *recording) {
    int rows = 0, longest = 0;
    for (int i = 0; i < pairs; i++) rows += lengths[i], longest = MAX(longest, lengths[i]);
    Decoding *s = start(model, sources, source_lengths, pairs, NULL, *recording);
    int32_t *positions = malloc(4 * (size_t)rows * (longest + 2)), *sentences = positions + rows;
    float *hidden = malloc(4 * (size_t)rows * model->d_model);
    int failed = !s || !positions || !hidden || headwise_make_room(s, rows, positions, 0, longest, 0);
    if (!failed) {
        int32_t *paths = sentences + rows;
        for (int i = 0, first = 0; i < pairs; first += lengths[i++])
            for (int r = 0; r < lengths[i]; r++) {
                positions[first + r] = r, sentences[first + r] = i;
                for (int t = 0; t <= r; t++) paths[(int64_t)(first + r) * longest + t] = first + t;
            }
        failed = headwise_step(s, rows, targets, positions, sentences, paths, longest, hidden);
    }
    headwise_end(s), free(positions), free(hidden);
    return failed ? -1 : 0;
}

int64_t headwise_slots(const Decoding *s) { return s->used; }

/* Removes the latest steps: all slots from `slots` on. */
void headwise_truncate(Decoding *s, int64_t slots) { s->used = MIN(s->used, slots); }
