/* See transformer.h. */

#include "layers.h"

#include "attention.h"
#include "slots.h"

#include <string.h>

/* --- Self-attention --- */

/* The number of rows from the first one on that are consecutive positions of one prompt, at most BLOCK; 0: the first one is
   behind its prompt, or there are none. */
static int prompt_rows(const Decoding *s, int rows, const int32_t *positions, const int32_t *sentences) {
    if (!s->n_prompt_slots || positions[0] >= s->prompt_lengths[sentences[0]]) return 0;
    int n = 1;
    while (n < MIN(rows, BLOCK) && sentences[n] == sentences[0] && positions[n] == positions[0] + n) n++;
    return n;
}

/* The number of rows of one sentence at one position, at most BLOCK. */
static int hypotheses(int rows, const int32_t *positions, const int32_t *sentences) {
    int n = 1;
    while (n < MIN(rows, BLOCK) && sentences[n] == sentences[0] && positions[n] == positions[0]) n++;
    return n;
}

/* Stores `n` numbers in a cache, from number `at` on. */
static void store_cached(const Decoding *s, void *cache, int64_t at, const float *x, int n) {
    convert(x, 0, n, (char *)cache + cached_size(s) * at, s->half);
}

/* Projects `rows` rows to queries, keys and values, and adds the keys and values to the cache. */
static int project_heads(Decoding *s, int layer, int rows, const int32_t *positions) {
    const Attention *a = &s->model->decoder[layer].self;
    const int q_width = a->heads * a->d_k, k_width = a->kv_heads * a->d_k, v_width = a->kv_heads * a->d_v, width = a->in->d_out;
    float *qkv = s->wide.bytes;
    const float *in = sublayer_input(s->model, &a->norm, s->x.bytes, s->h.bytes, rows);
    TRY(linear_forward(a->in, in, rows, padded_width(s->model), qkv, width, NONE, &s->scratch));
    for (int r = 0; r < rows; r++) {
        float *row = qkv + (int64_t)r * width;
        norm_heads(&a->q_norm, row, a->heads, a->d_k, a->norm_width);
        norm_heads(&a->k_norm, row + q_width, a->kv_heads, a->d_k, a->norm_width);
        scale_queries(a, row, width, 1);
        rotate(&s->model->rotary, positions[r], row, a->heads + a->kv_heads, a->d_k);
        store_cached(s, s->self_k[layer], (s->n_slots + r) * k_width, row + q_width, k_width);
        store_cached(s, s->self_v[layer], (s->n_slots + r) * v_width, row + q_width + k_width, v_width);
    }
    return 0;
}

int decoder_attention(Decoding *s, int layer, int rows, const int32_t *positions, const int32_t *sentences,
                      const int32_t *paths, int64_t stride) {
    TRY(project_heads(s, layer, rows, positions));
    const Attention *a = &s->model->decoder[layer].self;
    const int out_width = a->heads * a->d_v, width = a->in->d_out;
    const float *q = s->wide.bytes;
    const Cached keys = cached(s, s->self_k[layer]), values = cached(s, s->self_v[layer]);
    for (int r = 0, count; r < rows; r += MAX(1, count)) {
        if (is_cancelled(&s->scratch)) return CANCELLED;
        float *scores = s->scores.bytes, *out = (float *)s->context.bytes + (int64_t)r * out_width;
        const int64_t prompt = s->n_prompt_slots ? s->prompt_offsets[sentences[r]] : 0;
        count = prompt_rows(s, rows - r, positions + r, sentences + r);
        if (count) {
            attend_to_prompt(a, count, q + (int64_t)r * width, width, cached_from(keys, prompt * a->kv_heads * a->d_k),
                             cached_from(values, prompt * a->kv_heads * a->d_v), positions[r], scores, out);
            continue;
        }
        count = hypotheses(rows - r, positions + r, sentences + r);
        const Slots slots = {prompt, s->n_prompt_slots ? s->prompt_lengths[sentences[r]] : 0, paths + r * stride, stride};
        attend_to_paths(a, count, q + (int64_t)r * width, width, keys, values, &slots, positions[r], scores, out);
    }
    return attention_output(s, a, rows);
}

/* --- Cross-attention --- */

int cross_attention(Decoding *s, int layer, int rows, const int32_t *sentences) {
    const Attention *a = &s->model->decoder[layer].cross;
    const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v;
    float *q = s->wide.bytes, *context = s->context.bytes;
    const float *in = sublayer_input(s->model, &a->norm, s->x.bytes, s->h.bytes, rows);
    TRY(linear_forward(a->in, in, rows, padded_width(s->model), q, k_width, NONE, &s->scratch));
    scale_queries(a, q, k_width, rows);
    for (int r = 0, next; r < rows; r = next) { /* rows of one sentence together */
        const int sentence = sentences[r], length = s->lengths[sentence];
        if (is_cancelled(&s->scratch)) return CANCELLED;
        for (next = r + 1; next < rows && sentences[next] == sentence; next++) {}
        const Cached keys = cached_from(cached(s, s->cross_k[layer]), s->offsets[sentence] * k_width);
        const Cached values = cached_from(cached(s, s->cross_v[layer]), s->offsets[sentence] * v_width);
        const int queries = next - r;
        attend(a->heads, queries, q + (int64_t)r * k_width, k_width, a->d_k, keys, values, v_width, a->d_v, length,
               s->scores.bytes, context + (int64_t)r * v_width, v_width);
    }
    return attention_output(s, a, rows);
}

int project_memory(Decoding *s, const float *memory, int first, int sentences, int rows) {
    const Transformer *m = s->model;
    for (int l = 0; l < m->n_decoder_layers; l++) {
        const Attention *a = &m->decoder[l].cross;
        const int k_width = a->heads * a->d_k, v_width = a->heads * a->d_v, width = a->memory->d_out;
        float *kv = s->wide.bytes;
        TRY(linear_forward(a->memory, memory, rows, padded_width(m), kv, width, NONE, &s->scratch));
        for (int i = first; i < first + sentences; i++) {
            const int length = s->lengths[i], wide = round_up(length);
            float *turned = s->keys.bytes;
            for (int h = 0; h < a->heads; h++) {
                transpose(kv + h * a->d_k, width, length, a->d_k, turned);
                store_cached(s, s->cross_k[l], s->offsets[i] * k_width + (int64_t)h * a->d_k * wide, turned, a->d_k * wide);
            }
            for (int t = 0; t < length; t++)
                store_cached(s, s->cross_v[l], (s->offsets[i] + t) * v_width, kv + t * width + k_width, v_width);
            kv += (int64_t)length * width;
        }
    }
    return 0;
}

/* --- The cache --- */

/* At least `capacity` rows of so many bytes; `least` is lowered to the rows of the new buffer. */
static int grow_buffer(void **buffer, int64_t used, int64_t capacity, int64_t size, int64_t *least) {
    void *bigger = take_block(capacity * size);
    if (!bigger) return OUT_OF_MEMORY;
    if (used) memcpy(bigger, *buffer, (size_t)(used * size));
    give_block(*buffer);
    *buffer = bigger;
    *least = MIN(*least, block_size(bigger) / size);
    return 0;
}

static void move_row(void *cache, int64_t to, int64_t from, int64_t size) {
    memcpy((char *)cache + to * size, (char *)cache + from * size, (size_t)size);
}

/* Frees slots: `to` has the new index of each, -1 for those to free. */
static void compact_cache(Decoding *s, const int32_t *to, int64_t kept) {
    const Transformer *m = s->model;
    for (int l = 0; l < m->n_decoder_layers; l++) {
        const Attention *a = &m->decoder[l].self;
        for (int64_t i = 0; i < s->n_slots; i++) {
            if (to[i] < 0 || to[i] == i) continue;
            move_row(s->self_k[l], to[i], i, (int64_t)cached_size(s) * a->kv_heads * a->d_k);
            move_row(s->self_v[l], to[i], i, (int64_t)cached_size(s) * a->kv_heads * a->d_v);
        }
    }
    s->n_slots = kept;
}

int grow_cache(Decoding *s, int64_t capacity) {
    int64_t least = 2 * capacity; /* a kept block may be larger than needed, which saves growing it later */
    for (int l = 0; l < s->model->n_decoder_layers; l++) {
        const Attention *a = &s->model->decoder[l].self;
        const int64_t rows = (int64_t)cached_size(s) * a->kv_heads;
        if (is_cancelled(&s->scratch)) return CANCELLED;
        TRY(grow_buffer(&s->self_k[l], s->n_slots, capacity, rows * a->d_k, &least));
        TRY(grow_buffer(&s->self_v[l], s->n_slots, capacity, rows * a->d_v, &least));
    }
    s->capacity = least;
    return 0;
}

int reserve_slots(Decoding *const *members, int count, int rows, int32_t *paths, int hypotheses, int64_t stride, int length) {
    Decoding *s = members[0];
    int64_t held = s->capacity; /* of every member */
    for (int m = 1; m < count; m++) held = MIN(held, members[m]->capacity);
    if (s->n_slots + rows <= held) return 0;
    int32_t *alive = reserve(&s->live, 4 * (s->n_slots + 1));
    if (!alive) return OUT_OF_MEMORY;
    memset(alive, 0, 4 * (size_t)s->n_slots);
    int64_t living = s->n_prompt_slots;
    for (int64_t i = 0; i < s->n_prompt_slots; i++) alive[i] = 1;
    for (int h = 0; h < hypotheses; h++)
        for (int t = 0; t < length; t++)
            if (!alive[paths[h * stride + t]]) {
                alive[paths[h * stride + t]] = 1;
                living++;
            }
    if (2 * living < s->n_slots) {
        int32_t kept = 0;
        for (int64_t i = 0; i < s->n_slots; i++) alive[i] = alive[i] ? kept++ : -1;
        for (int m = 0; m < count; m++) compact_cache(members[m], alive, kept);
        for (int h = 0; h < hypotheses; h++)
            for (int t = 0; t < length; t++) paths[h * stride + t] = alive[paths[h * stride + t]];
    }
    const int64_t most = s->n_slots + rows * MAX(stride - length, 1); /* enough if all of these rows stay live */
    if (most <= held || 2 * (s->n_slots + rows) <= held) return 0;
    const int64_t capacity = MIN(most, MAX(held + held / 2, s->n_slots + 8 * (int64_t)rows));
    for (int m = 0; m < count; m++)
        TRY(grow_cache(members[m], capacity));
    return 0;
}

int headwise_reserve_slots(Decoding *s, int rows, int32_t *paths, int hypotheses, int64_t stride, int length) {
    return reserve_slots(&s, 1, rows, paths, hypotheses, stride, length);
}

int64_t headwise_slots(const Decoding *s) { return s->n_slots; }

/* Removes the latest steps: all slots from `slots` on. */
void headwise_truncate(Decoding *s, int64_t slots) { s->n_slots = MIN(s->n_slots, slots); }

/* --- Steps --- */

int headwise_step(Decoding *s, int rows, const int32_t *tokens, const int32_t *positions, const int32_t *sentences,
                  const int32_t *paths, int64_t stride, float *hidden) {
    const Transformer *m = s->model;
    int longest = 1;
    for (int i = 0; i < s->sentences; i++) longest = MAX(longest, s->lengths[i]);
    for (int r = 0; r < rows; r++) longest = MAX(longest, positions[r] + 1);
    TRY(reserve_activations(s, rows, longest));
    float *x = s->x.bytes;
    embed(&m->target, tokens, NULL, positions, rows, m->d_model, x);
    for (int l = 0; l < m->n_decoder_layers; l++) {
        TRY(decoder_attention(s, l, rows, positions, sentences, paths, stride));
        if (m->decoder[l].cross.in) TRY(cross_attention(s, l, rows, sentences));
        TRY(feed_forward(s, &m->decoder[l].ffn, rows));
    }
    s->n_slots += rows;
    if (m->decoder_norm.weight) norm_rows(&m->decoder_norm, x, x, rows, m->d_model);
    copy_rows(m, hidden, x, rows);
    return 0;
}
