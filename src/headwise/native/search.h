/* Greedy search, beam search and sampling over a Transformer, as decode/search.py and decode/sampling.py describe and do
   them: the same ranking, the same ties, the same random streams, by each of the rules of decode/ending.py the same end.
   With phrases it is decode/phrases.py.
   Nothing here is shared between sentences but the matrix products. */

#ifndef HEADWISE_SEARCH_H
#define HEADWISE_SEARCH_H

#include "transformer.h"

/* When a sentence is done, in the order of ENDINGS in settings.py: see decode/ending.py. */
typedef enum Ending { UNSURPASSED, POOL_FILLED, POOL_FILLED_EARLY, POOL_FILLED_PATIENT } Ending;

typedef struct Ids {
    const int32_t *ids;
    int count;
} Ids;

typedef struct Options {
    int beam_size, pool, bos_id; /* pool: hypotheses kept of each output */
    int copies;                  /* outputs of each sentence: samples; 1 where nothing is drawn */
    int begun;                   /* of each prefix so many are given: certain, and counted by lengths only */
    int forced_end, end_at;      /* the piece that is certain where it is number `end_at` of an output; 0: none is */
    Ids ends, suppressed, suppressed_first;
    Ending ending;
    float length_penalty;
    int no_repeat_ngram, start_counts; /* no n-gram occurs twice, 0: any may; whether the start mark is part of one */
    int top_k;                         /* of draws, as temperature and top_p */
    float temperature, top_p;
} Options;

/* Bounds of each sentence's output, and what it has to begin with: -1 right of its own prefix. */
typedef struct Limits {
    const int32_t *min_length, *max_length, *prefix;
    const int64_t *streams; /* the seed, and the numbers of their random streams; NULL: nothing is drawn */
    int prefix_length;
    const int32_t *phrases; /* (sentences, n_phrases, phrase_length) that outputs contain: -1 right of each, and below */
    int n_phrases, phrase_length; /* 0: none; then a beam of one, samples and a step's ranks are for others */
} Limits;

/* The best hypotheses of each output, (outputs, pool) and for tokens (outputs, pool, longest). */
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

/* What a step ranked, best first, of a search for a single source: (steps, (1 + ends) * beam_size), for a beam of one
   (steps, 1), and how many there are in each. */
typedef struct Ranked {
    int32_t *counts, *tokens, *parents, *ended; /* parents: which of the rows that lived; ended: lives no more */
    float *log_probs, *token_log_probs;
} Ranked;

/* A search between two steps. Whatever fails leaves it good for nothing but its end. */
typedef struct Search Search;

/* Search outputs for all sources of fresh decodings. Outputs give the logits: of all pieces, or of those of `ids`,
   places among which then stand for pieces everywhere; `barred` (sentences, outputs) holds 0 or -inf for each of them.
   Both may be NULL. What arguments point to is the caller's, and is read and written until the end. NULL without memory. */
EXPORT Search *headwise_search_start(const Members *members, const int32_t *ids, const float *barred,
                                      const Options *options, const Limits *limits, const Found *found);

/* A token more for every output; or, for a single hypothesis alone, as many as `guesses` of what follows are right, and
   one. How many steps that were: 0 where all is found, -1 without memory or when stopped. `ranked` may be NULL. */
EXPORT int headwise_search_step(Search *search, const int32_t *guesses, int count, const Ranked *ranked);
EXPORT void headwise_search_end(Search *search);

/* All of it: 0, or -1 without memory or when stopped. */
EXPORT int headwise_search(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                            const Limits *limits, const Found *found);

#endif
