/* See layers.h. */

#include "layers.h"

#include "attention.h"

#include <math.h>
#include <string.h>

/* --- Norms --- */

/* x * weight / sqrt(mean(x^2) + eps), of d numbers among `width` with zeros */
static void scale_by_rms(const Norm *norm, const float *x, float *y, int width, int d) {
    f8 squares = set8(0);
    for (int i = 0; i < width; i += 8) squares = fma8(load8(x + i), load8(x + i), squares);
    const f8 factor = set8(1 / sqrtf(reduce_add8(squares) / d + norm->eps));
    for (int i = 0; i < width; i += 8) {
        f8 unit = mul8(load8(x + i), factor);
        store8(y + i, mul8(unit, load8(norm->weight + i)));
    }
}

/* The sum of (x - mean)^`power` over d numbers; the last eight may be padded. */
INLINE float sum_of_powers(const int power, const float *x, int d, float mean) {
    f16 total[2] = {set16(0), set16(0)};
    f8 rest = set8(0);
    int i = 0;
    for (; i + 32 <= d; i += 32)
        UNROLL(2)
        for (int j = 0; j < 2; j++) {
            const f16 off = sub16(load16(x + i + 16 * j), set16(mean));
            total[j] = power == 2 ? fma16(off, off, total[j]) : add16(total[j], off);
        }
    for (; i < d; i += 8) {
        f8 off = sub8(load8(x + i), set8(mean));
        if (i + 8 > d) off = select8(FIRST8(d - i), off);
        rest = power == 2 ? fma8(off, off, rest) : add8(rest, off);
    }
    return reduce_add8(add8(add_halves16(add16(total[0], total[1])), rest));
}

void norm_row(const Norm *norm, const float *x, float *y, int d) {
    if (!norm->bias) {
        scale_by_rms(norm, x, y, round_up(d), d);
        return;
    }
    const float mean = sum_of_powers(1, x, d, 0) / d, factor = 1 / sqrtf(sum_of_powers(2, x, d, mean) / d + norm->eps);
    int i = 0;
    for (; i + 16 <= d; i += 16) {
        const f16 unit = mul16(sub16(load16(x + i), set16(mean)), set16(factor));
        store16(y + i, fma16(unit, load16(norm->weight + i), load16(norm->bias + i)));
    }
    for (; i < d; i += 8) {
        const f8 unit = mul8(sub8(load8(x + i), set8(mean)), set8(factor));
        store8(y + i, fma8(unit, load8(norm->weight + i), load8(norm->bias + i)));
    }
}

void norm_rows(const Norm *norm, const float *x, float *y, int rows, int d) {
    const int64_t width = round_up(d);
    for (int r = 0; r < rows; r++) norm_row(norm, x + r * width, y + r * width, d);
}

void copy_rows(const Transformer *m, float *to, const float *x, int rows) {
    for (int r = 0; r < rows; r++, to += m->d_model, x += padded_width(m)) memcpy(to, x, 4 * (size_t)m->d_model);
}

/* --- Embeddings, residual connections --- */

/* 3.1: adds a sub-layer's output to x, and normalises in post-norm models. */
static void add_residual(const Transformer *model, const Norm *norm, float *x, const float *made, int rows) {
    const int width = padded_width(model);
    for (int r = 0; r < rows; r++, x += width, made += width) {
        for (int i = 0; i < width; i += 8) store8(x + i, add8(load8(x + i), load8(made + i)));
        if (!model->norm_first) norm_row(norm, x, x, model->d_model);
    }
}

const float *sublayer_input(const Transformer *model, const Norm *norm, const float *x, float *h, int rows) {
    if (!model->norm_first) return x;
    norm_rows(norm, x, h, rows, model->d_model);
    return h;
}

void embed(const Embeddings *e, const int32_t *tokens, const int32_t *types, const int32_t *positions, int rows, int d,
           float *x) {
    const f8 scale = set8(e->scale);
    const int width = round_up(d);
    for (int r = 0; r < rows; r++, x += width) {
        const int at = tokens[r] == e->padding ? -1 : positions[r];
        const int64_t row = (int64_t)tokens[r] * width;
        const float *position = e->positions ? e->positions + (int64_t)at * width : NULL;
        const float *type = e->types ? e->types + (types ? (int64_t)types[r] * width : 0) : NULL;
        for (int i = 0; i < width; i += 8) store8(x + i, mul8(read8(e->rows, row + i, e->half), scale));
        for (int i = 0; position && i < width; i += 8) store8(x + i, add8(load8(x + i), load8(position + i)));
        for (int i = 0; type && i < width; i += 8) store8(x + i, add8(load8(x + i), load8(type + i)));
        if (e->norm.weight) norm_row(&e->norm, x, x, d);
    }
}

/* --- Sub-layers --- */

int reserve_activations(Decoding *s, int64_t rows, int length) {
    const Transformer *m = s->model;
    int64_t wide = round_up(m->source.width), context = 0, keys = 0;
    int heads = 1;
    for (int side = 0; side < 2; side++) {
        const int layers = side ? m->n_decoder_layers : m->n_encoder_layers;
        for (int i = 0; i < layers; i++) {
            const Layer *layer = side ? m->decoder + i : m->encoder + i;
            wide = MAX(wide, MAX(layer->self.in->d_out, layer->ffn.up->d_out));
            context = MAX(context, (int64_t)layer->self.heads * layer->self.d_v);
            keys = MAX(keys, (int64_t)layer->self.heads * layer->self.d_k);
            heads = MAX(heads, layer->self.heads);
            if (!side || !layer->cross.in) continue;
            wide = MAX(wide, MAX(layer->cross.in->d_out, layer->cross.memory->d_out));
            context = MAX(context, (int64_t)layer->cross.heads * layer->cross.d_v);
            keys = MAX(keys, (int64_t)layer->cross.d_k);
            heads = MAX(heads, layer->cross.heads);
        }
    }
    const int64_t scores = (int64_t)heads * SCORE_ROWS * (round_up(length) + 8);
    int complete = reserve(&s->x, 4 * rows * padded_width(m)) && reserve(&s->h, 4 * rows * padded_width(m)) &&
                   reserve(&s->wide, 4 * rows * wide) && reserve(&s->context, 4 * rows * context) &&
                   reserve(&s->scores, 4 * scores) && reserve(&s->keys, 4 * keys * round_up(length));
    return complete ? 0 : -1;
}

void free_activations(Decoding *s) {
    Buffer *buffers[] = {&s->x, &s->h, &s->wide, &s->context, &s->scores, &s->keys, &s->scratch.quantised, &s->live};
    for (int i = 0; i < 8; i++) release(buffers[i]);
}

int feed_forward(Decoding *s, const FeedForward *f, int rows) {
    const Transformer *m = s->model;
    const int d = padded_width(m), width = f->up->d_out, d_ff = f->down->d_in, gated = width != d_ff;
    float *x = s->x.bytes, *h = s->h.bytes, *wide = s->wide.bytes;
    const float *in = sublayer_input(m, &f->norm, x, h, rows);
    TRY(linear_forward(f->up, in, rows, d, wide, width, gated ? NONE : f->activation, &s->scratch));
    for (int r = 0; gated && r < rows; r++) {
        float *row = wide + (int64_t)r * width;
        gate(f->activation, row, row + d_ff, d_ff);
    }
    TRY(linear_forward(f->down, wide, rows, width, h, d, NONE, &s->scratch));
    add_residual(m, &f->norm, x, h, rows);
    return 0;
}

int attention_output(Decoding *s, const Attention *a, int rows) {
    const int d = padded_width(s->model), width = a->heads * a->d_v;
    TRY(linear_forward(a->out, s->context.bytes, rows, width, s->h.bytes, d, NONE, &s->scratch));
    add_residual(s->model, &a->norm, s->x.bytes, s->h.bytes, rows);
    return 0;
}

void scale_queries(const Attention *a, float *q, int64_t stride, int rows) {
    const f8 scale = set8(a->scale);
    for (int r = 0; r < rows; r++, q += stride)
        for (int i = 0; i < a->heads * a->d_k; i += 8) store8(q + i, mul8(load8(q + i), scale));
}

void norm_heads(const Norm *norm, float *heads, int count, int d_k, int width) {
    for (int h = 0; h < count && norm->weight; h++) scale_by_rms(norm, heads + h * d_k, heads + h * d_k, d_k, width);
}

void rotate(const Rotary *rotary, int position, float *row, int heads, int d_k) {
    const int half = rotary->half;
    if (!rotary->angles) return;
    const float *cosines = rotary->angles + (int64_t)position * 2 * half, *sines = cosines + half;
    for (float *head = row; head < row + heads * d_k; head += d_k)
        for (int i = 0; i < half; i += 8) {
            f8 first = load8(head + i), second = load8(head + half + i), c = load8(cosines + i), s = load8(sines + i);
            store8(head + i, sub8(mul8(first, c), mul8(second, s)));
            store8(head + half + i, add8(mul8(second, c), mul8(first, s)));
        }
}
