/* The Transformer (section 3) for inference: sources of any lengths without padding, and one target position of every
   hypothesis at a time. network.py fills in the structures; keep both in sync. Rows of d_model numbers are padded with zeros
   to a multiple of 8, as are the rows of all weights except the output's. After an error only `headwise_end` may be called. */

#ifndef HEADWISE_TRANSFORMER_H
#define HEADWISE_TRANSFORMER_H

#include "products.h"

typedef struct Norm {
    const float *weight; /* (d_model); NULL: no norm */
    const float *bias;   /* (d_model); NULL: RMSNorm */
    float eps;
} Norm;

/* 3.2. Queries, keys and values of all heads are one product; in cross-attention queries are one product, keys and values
   another. Head widths are multiples of 8. In a decoder several heads may share keys and values. */
typedef struct Attention {
    int heads, kv_heads, d_k, d_v;
    int window; /* positions that are visible, the last ones; 0: all */
    const Linear *in, *memory, *out;
    Norm norm;
    Norm q_norm, k_norm; /* of each head (d_k), before rotary positions: RMSNorm or none */
    int norm_width;      /* of a head without padding */
    float scale; /* factor on the scores, applied to queries */
} Attention;

/* 3.3. In a gated network `up` holds the gates first. */
typedef struct FeedForward {
    const Linear *up, *down;
    Norm norm;
    Activation activation;
} FeedForward;

typedef struct Layer {
    Attention self, cross; /* cross: in decoder layers only, and not in a decoder alone (`in` is NULL) */
    FeedForward ffn;
} Layer;

/* 3.4, 3.5: row * scale + position + type, then an optional norm and an optional projection. With `padding`, padding tokens do
   not count as positions and have the encoding before the first one. */
typedef struct Embeddings {
    const void *rows; /* in float32, or in bfloat16 */
    const float *positions; /* NULL: none */
    Norm norm;
    float scale;
    int32_t padding; /* its id; -1: all tokens count */
    int half;        /* whether `rows` are bfloat16 */
    const float *types;    /* of each token type (BERT's segments); NULL: none */
    const Linear *project; /* to d_model (ELECTRA); NULL: none */
    int width;             /* of the tables, with `project` */
} Embeddings;

/* Rotary positions (arXiv:2104.09864): components i and i + half of each head are rotated, as complex numbers. */
typedef struct Rotary {
    const float *angles; /* (position, 2 half): cosines, then sines of the angles; NULL: none */
    int half;           /* a multiple of 8 */
} Rotary;

/* A bias of each head for each distance of key and query, from 1 - longest on (T5, MPNet). One pointer, so that the table can
   be replaced by a longer one while it is in use. */
typedef struct Relative {
    const float *biases; /* (heads, 2 longest - 1) */
    int longest;
} Relative;

typedef struct Transformer {
    int d_model, norm_first, n_encoder_layers, n_decoder_layers;
    Embeddings source, target;
    Rotary rotary;
    const Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm;
    const Linear *output;
    const Relative *relative; /* added to the encoder's scores; NULL: none */
} Transformer;

/* Sources and the KV cache of their outputs. A hypothesis is a path: the slots of the keys and values of its positions. When
   beams are reordered, only paths change; keys and values never move. A decoder alone has prompts in place of sources, and with
   sources there may be prompts, too. They are the first positions of its texts and have the first slots, which are not in paths
   and are never freed. */
typedef struct Decoding {
    const Transformer *model;
    int sentences;
    int *lengths;       /* of the sources or prompts */
    int64_t *offsets;   /* start of each source, in rounded lengths */
    int *prompt_lengths;
    int64_t *prompt_offsets, n_prompt_slots; /* first slot of each prompt; their number, 0: no prompts */
    float *prompt_states; /* (sentence, d_model), after the last token of each prompt; NULL: no prompts */
    int half;           /* whether the cache is in bfloat16, as it is with sources and weights in integers; else in float32 */
    void *cross;        /* a block for the next two, which is large enough for huge pages */
    void **cross_k;     /* of each layer: (sentence, head, d_k, rounded length) */
    void **cross_v;     /* of each layer: (sentence, rounded length, head, d_v) */
    void **self_k, **self_v; /* of each layer: (slot, head, d_k or d_v) */
    int64_t n_slots, capacity; /* of the cache, and what is allocated */
    Buffer x, h, wide, context, scores, keys, live;
    Scratch scratch;    /* says whether to stop: within some 100 rows of a product all here returns */
} Decoding;

/* Encode sources (concatenated tokens with end tokens). Returns NULL if out of memory or cancelled. `stop` may be NULL. */
EXPORT Decoding *headwise_start(const Transformer *model, const int32_t *pieces, const int32_t *lengths, int sentences,
                                 const atomic_int *stop);
/* The same for sources that are vectors (rows, d_model), the input of the first layer. */
EXPORT Decoding *headwise_start_vectors(const Transformer *model, const float *vectors, const int32_t *lengths, int sentences,
                                        const atomic_int *stop);
EXPORT void headwise_end(Decoding *decoding);

/* The last hidden states (rows, d_model) of the encoder for `texts` texts without padding. `types` of the tokens may be NULL:
   all are 0. Returns 0, OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_encode(const Transformer *model, const int32_t *tokens, const int32_t *types, const int32_t *lengths,
                            int texts, const atomic_int *stop, float *hidden);

/* Make room for `rows` more slots. If necessary, slots that are in no path of length `length` are freed, and paths are
   rewritten. Returns 0, OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_reserve_slots(Decoding *decoding, int rows, int32_t *paths, int hypotheses, int64_t stride, int length);

/* The same for the decodings of an ensemble, whose paths are identical. */
int reserve_slots(Decoding *const *members, int count, int rows, int32_t *paths, int hypotheses, int64_t stride, int length);

/* The same for prompts of a decoder alone, at least one token each. `hidden` gets the states after all tokens (tokens, d_model);
   it may be NULL. */
EXPORT Decoding *headwise_read_prompts(const Transformer *model, const int32_t *tokens, const int32_t *lengths, int sentences,
                                       float *hidden, const atomic_int *stop);

/* The same for a decoding with sources: a prompt for each. All earlier positions are forgotten. Returns 0,
   OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_read_more_prompts(Decoding *decoding, const int32_t *tokens, const int32_t *lengths, float *hidden);

/* A decoding without memory for sources; NULL if out of memory. */
Decoding *new_decoding(const Transformer *model, const int32_t *lengths, int sentences, const atomic_int *stop);

/* The log-probability of a token for each row of `hidden` (rows, d_model). Returns 0, OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_log_probs(const Linear *output, const float *hidden, const int32_t *tokens, int rows, float *log_probs,
                              const atomic_int *stop);

/* One position of `rows` hypotheses. `paths` (rows, stride) hold their slots up to `positions`, or from the end of the prompt
   to there; the new slots are `n_slots` and following, one for each row. Writes hidden states (rows, d_model). Returns 0,
   OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_step(Decoding *decoding, int rows, const int32_t *tokens, const int32_t *positions,
                          const int32_t *sentences, const int32_t *paths, int64_t stride, float *hidden);

EXPORT int64_t headwise_slots(const Decoding *decoding);
EXPORT void headwise_truncate(Decoding *decoding, int64_t slots);

#endif
