/* Parts of a layer that encoders and decoders share, for packed rows of any sequences. */

#ifndef HEADWISE_LAYERS_H
#define HEADWISE_LAYERS_H

#include "attention.h"
#include "transformer.h"

/* The padded row length; products, sums and norms keep the padding 0. */
static inline int padded_width(const Transformer *model) { return round_up(model->d_model); }

/* The norm of one padded row of d numbers; may be in place. */
void norm_row(const Norm *norm, const float *x, float *y, int d);

void norm_rows(const Norm *norm, const float *x, float *y, int rows, int d);

/* Copies rows of d_model numbers without their padding. */
void copy_rows(const Transformer *m, float *to, const float *x, int rows);

/* Embeddings of width d before a projection; `types` may be NULL. */
void embed(const Embeddings *e, const int32_t *tokens, const int32_t *types, const int32_t *positions, int rows, int d,
           float *x);

/* The input of a sub-layer: x, or in pre-norm models its norm in `h`. */
const float *sublayer_input(const Transformer *model, const Norm *norm, const float *x, float *h, int rows);

/* Memory for the activations of `rows` rows, and for the scores of `length` keys. */
int reserve_activations(Decoding *s, int64_t rows, int length);

int feed_forward(Decoding *s, const FeedForward *f, int rows);

int attention_output(Decoding *s, const Attention *a, int rows);

/* 3.2.1: scales queries. Scaling the weights instead would change their rounding. */
void scale_queries(const Attention *a, float *q, int64_t stride, int rows);

/* Normalises heads, `d_k` numbers apart and of `width` numbers without padding, if there is a norm. */
void norm_heads(const Norm *norm, float *heads, int count, int d_k, int width);

/* Applies rotary positions to the queries and keys of a row. */
void rotate(const Rotary *rotary, int position, float *row, int heads, int d_k);

/* What an encoder reads: tokens with their types, or vectors of d_model numbers, the input of the first layer. */
typedef struct Sources {
    const int32_t *tokens, *types; /* types may be NULL: all are 0 */
    const float *vectors;          /* NULL: tokens */
} Sources;

/* The input of the first encoder layer for tokens of sentences from `first` on. */
int embed_sources(Decoding *s, const int32_t *tokens, const int32_t *types, int first, int sentences, int rows);

/* Sentences attend to themselves; `lengths` of their rows, one after the other. */
int encoder_attention(Decoding *s, const Attention *a, const int32_t *lengths, int sentences, int rows);

/* Encodes all sources: their states go to `hidden`, or if that is NULL to the cross-attention. Returns 0,
   OUT_OF_MEMORY or CANCELLED; see encoder.c. */
int encode(Decoding *s, Sources sources, float *hidden);

/* Frees the memory of activations. */
void free_activations(Decoding *s);

/* Masked self-attention; adds the keys and values of the rows to the cache. `paths` (rows, stride) hold slots of positions
   behind the prompt; they may be NULL if all rows are in prompts. */
int decoder_attention(Decoding *s, int layer, int rows, const int32_t *positions, const int32_t *sentences,
                      const int32_t *paths, int64_t stride);

int cross_attention(Decoding *s, int layer, int rows, const int32_t *sentences);

/* Cross-attention keys and values of the encoded rows `memory` for every decoder layer; see decoder.c. */
int project_memory(Decoding *s, const float *memory, int first, int sentences, int rows);

/* Memory for `held` slots of the cache. Returns 0, OUT_OF_MEMORY or CANCELLED. */
int grow_cache(Decoding *s, int64_t held);

/* The bytes of a number in the cache. */
static inline int cached_size(const Decoding *s) { return s->half ? 2 : 4; }

/* Numbers of a cache. */
static inline Cached cached(const Decoding *s, const void *numbers) { return (Cached){numbers, s->half}; }

#endif
