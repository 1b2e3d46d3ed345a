/* Greedy search and beam search over a Transformer, as decode/search.py describes and does them: the same ranking, the
   same ties, by each of the rules of decode/ending.py the same end. Nothing here is shared between sentences but the matrix products. */

#ifndef SIGHTLINE_SEARCH_H
#define SIGHTLINE_SEARCH_H

#include "transformer.h"

/* When a sentence is done, in the order of ENDINGS in settings.py: see decode/ending.py. */
typedef enum Ending { UNSURPASSED, POOL_FILLED, POOL_FILLED_EARLY, POOL_FILLED_PATIENT } Ending;

typedef struct Ids {
    const int32_t *ids;
    int count;
} Ids;

typedef struct Options {
    int beam_size, pool, bos_id; /* pool: hypotheses kept of each sentence */
    int begun;                   /* of each prefix so many are given: certain, and counted by lengths only */
    int forced_end, end_at;      /* the piece that is certain where it is number `end_at` of an output; 0: none is */
    Ids ends, suppressed, suppressed_first;
    Ending ending;
    float length_penalty;
} Options;

/* Bounds of each sentence's output, and what it has to begin with: -1 right of its own prefix. */
typedef struct Limits {
    const int32_t *min_length, *max_length, *prefix;
    int prefix_length;
} Limits;

/* The best hypotheses of each sentence, (sentences, pool) and for tokens (sentences, pool, longest). */
typedef struct Found {
    int32_t *tokens, *lengths; /* with the end mark; length 0: none */
    float *token_log_probs, *log_probs, *scores;
    int longest;
} Found;

/* Decodings of the same sources by several models of one vocabulary, and what gives the logits of each. */
typedef struct Members {
    Decoding *const *decodings;
    const Linear *const *outputs;
    int count;
} Members;

/* Search outputs for all sources of fresh decodings. Outputs give the logits: of all pieces, or of those of `ids`,
   places among which then stand for pieces everywhere; `barred` (sentences, outputs) holds 0 or -inf for each of them.
   Both may be NULL. 0, or -1 without memory or when stopped. */
EXPORT int sightline_search(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                            const Limits *limits, const Found *found);

#endif
