/* Given pairs, read in one pass: attention weights, states, and every step of one layer and head. library.py fills in the
   structures; keep both in sync. */

#ifndef HEADWISE_READING_H
#define HEADWISE_READING_H

#include "transformer.h"

/* What is recorded of a sub-layer for a walk, each (rows, d_model): its norm, before it or after the sum; its output; the sum
   with its input. */
typedef struct SublayerSteps {
    float *norm, *out, *add;
} SublayerSteps;

/* Of one head of an attention; of all heads: `concat` (queries, heads d_v). Scores of masked keys are not written. */
typedef struct AttentionSteps {
    SublayerSteps ends;
    float *queries, *keys, *values;      /* (queries or keys, d_k or d_v), as projected */
    float *turned_queries, *turned_keys; /* after rotary positions; queries are scaled, too */
    float *scores, *weights, *concat;    /* (queries, keys) */
} AttentionSteps;

/* A walk along figure 1 through one layer of a stack and one of its heads; NULL for what is not recorded. Rows are the tokens
   of the stack (of the source for cross-attention's keys and values), of a single pair. */
typedef struct Walk {
    int decoder, layer, head;
    float *embeddings, *positions, *sum, *embedded; /* (rows, d_model): scaled rows, codes, sums, sums after a norm */
    float *input, *top, *output; /* (rows, d_model): input of the layer, output of the last layer, the same after a norm */
    float *memory; /* (source, d_model): output of the encoder, for either stack; NULL: no walk */
    AttentionSteps self, cross;
    SublayerSteps ffn;
    float *up, *inside; /* (rows, 2 d_ff or d_ff): before the activation, with the gates first; (rows, d_ff): after it */
} Walk;

/* What is recorded when pairs are read; NULL for what is not. All of it is 0 before. Of several pairs, only `cross`. */
typedef struct Recording {
    float *encoder, *decoder; /* attention weights of all layers: (layer, head, queries, keys) */
    float *cross;             /* of the layers from `first` to before `end`: (layer, pair, head, queries, keys) */
    float *residual; /* (layer + 1, target, d_model): embeddings of the target, then the output of each decoder layer */
    float *states;   /* (layer, target, d_model): these outputs after the decoder's final norm, if it has one */
    int first, end;  /* decoder layers from `end` on are not computed */
    Walk walk;
} Recording;

/* Read sources and targets in one pass, both concatenated and with their special tokens. A decoder alone reads targets, and
   `sources` is NULL. 0 or OUT_OF_MEMORY. */
EXPORT int headwise_read(const Transformer *model, const int32_t *sources, const int32_t *source_lengths,
                          const int32_t *targets, const int32_t *lengths, int pairs, const Recording *recording);

#endif
