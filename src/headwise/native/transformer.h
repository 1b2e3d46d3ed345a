/* The Transformer of section 3 for inference: sources of any lengths side by side without padding, one target position
   of every hypothesis at a time. Structures are filled in by network.py; keep both in step. In memory a row of d_model
   numbers is followed by zeros up to a multiple of 8, and so are those of all weights but the output's.
   Whatever fails leaves a decoding that is good for nothing but `headwise_end`. */

#ifndef HEADWISE_TRANSFORMER_H
#define HEADWISE_TRANSFORMER_H

#include "products.h"

typedef struct Norm {
    const float *weight; /* (d_model); NULL: no norm here */
    const float *bias;   /* (d_model); NULL: an RMSNorm, which takes no mean off either */
    float eps;
} Norm;

/* 3.2. Queries, keys and values of all heads are one product; of the cross-attention, queries are one and keys and
   values of the sources another. Widths of a head are multiples of 8. */
typedef struct Attention {
    int heads, d_k, d_v;
    const Linear *in, *memory, *out;
    Norm norm;
    float scale; /* of the scores: a factor on the queries */
} Attention;

/* 3.3. A gated network has the gates' outputs before its others in `up`. */
typedef struct FeedForward {
    const Linear *up, *down;
    Norm norm;
    Activation activation;
} FeedForward;

typedef struct Layer {
    Attention self, cross; /* cross: of decoder layers */
    FeedForward ffn;
} Layer;

/* 3.4, 3.5: row * scale + position, and the norm of that where there is one. Padding within a text, as some families
   have it, is not counted and stands before the first position. */
typedef struct Embeddings {
    const void *rows; /* in float32, or in bfloat16 */
    const float *positions;
    Norm norm;
    float scale;
    int32_t padding; /* its id; -1: all pieces are counted */
    int half;        /* whether `rows` are bfloat16 */
} Embeddings;

/* Positions that turn the queries and keys of self-attention (arXiv:2104.09864): components i and i + half of each head,
   as complex numbers, by an angle of their own. */
typedef struct Rotary {
    const float *turns; /* (position, 2 half): the angles' cosines, then their sines; NULL: nothing turns */
    int half;           /* a multiple of 8 */
} Rotary;

typedef struct Transformer {
    int d_model, norm_first, n_encoder_layers, n_decoder_layers;
    Embeddings source, target;
    Rotary rotary;
    const Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm;
    const Linear *output;
} Transformer;

/* Attention to a single source that is kept: of a head or, with -1, the mean of a layer's heads. */
typedef struct Watched {
    int layer, head;
    float *weights; /* (rows of a step, length of the source), 0 before; NULL: none is kept */
} Watched;

/* Sources and what has been written for them. A hypothesis is known by its path: the places of its positions' keys and
   values. Beams change places by their paths alone; nothing else ever moves. */
typedef struct Decoding {
    const Transformer *model;
    int sentences;
    int *lengths;       /* of the sources */
    int64_t *places;    /* where each source begins, in rounded lengths */
    float **cross_k;    /* of each layer: (sentence, head, d_k, rounded length) */
    float **cross_v;    /* of each layer: (sentence, rounded length, head, d_v) */
    float **self_k, **self_v; /* of each layer: (place, head, d_k or d_v) */
    int64_t used, held; /* places */
    Buffer x, h, wide, context, scores, keys, alive;
    Watched watched;
    Scratch scratch;    /* says whether to stop: within some 50 rows of a product all here returns */
} Decoding;

/* Encode sources (concatenated pieces, with their end marks); NULL without memory or when stopped. `stop` may be NULL. */
EXPORT Decoding *headwise_start(const Transformer *model, const int32_t *pieces, const int32_t *lengths, int sentences,
                                 const atomic_int *stop);
EXPORT void headwise_end(Decoding *decoding);

/* Room for `rows` more places. Where it has to be found, places that no path of length `length` leads over are given up
   and the paths are changed; 0, or -1 without memory or when stopped. */
EXPORT int headwise_make_room(Decoding *decoding, int rows, int32_t *paths, int hypotheses, int64_t stride, int length);

/* The same for decodings that take every step together from the first on: a path leads over the same places in all. */
int make_room(Decoding *const *members, int count, int rows, int32_t *paths, int hypotheses, int64_t stride, int length);

/* One position of `rows` hypotheses: `paths` (rows, stride) lead over their places up to `positions`, the new ones being
   `used` and those after it, row by row. Writes hidden states (rows, d_model); 0, or -1 without memory or
   when stopped. */
EXPORT int headwise_step(Decoding *decoding, int rows, const int32_t *tokens, const int32_t *positions,
                          const int32_t *sentences, const int32_t *paths, int64_t stride, float *hidden);
EXPORT int64_t headwise_places(const Decoding *decoding);
EXPORT void headwise_forget(Decoding *decoding, int64_t places);

#endif
