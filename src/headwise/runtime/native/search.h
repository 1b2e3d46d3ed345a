/* Greedy search, beam search and sampling, equivalent to core/search.py, core/extensions/sampling.py and pytorch/search/phrases.py: the same
   ranking, ties, random streams and stopping rules (core/search.py). Sentences share only matrix products. */

#ifndef HEADWISE_SEARCH_H
#define HEADWISE_SEARCH_H

#include "transformer.h"

/* Stopping rules, in the order of EARLY_STOPPING in settings.py; see core/search.py. */
typedef enum EarlyStopping { STOP_EXACT, STOP_NO, STOP_YES, STOP_NEVER } EarlyStopping;

typedef struct Ids {
    const int32_t *ids;
    int count;
} Ids;

typedef struct Options {
    int beam_size, pool, bos_id; /* pool: number of finished hypotheses to keep */
    int copies;                  /* samples of each sentence; 1 without sampling */
    int n_forced;                   /* tokens of each prefix that count as length only */
    int forced_end, end_at;      /* the token forced at position `end_at`; end_at 0: none */
    Ids ends, suppressed, suppressed_first;
    EarlyStopping early_stopping;
    float length_penalty;
    int no_repeat_ngram, bos_in_ngrams; /* 0: no constraint; whether the start token counts */
    int top_k;                         /* for sampling, like temperature and top_p */
    float temperature, top_p;
    int (*stop)(const int32_t *tokens, int length); /* whether an output ends after its last token; NULL: by the others alone */
    /* Constraints of core/extensions/timestamps.py: ids of the first timestamp (0: no constraints) and of the one that is never generated;
       the largest first timestamp, counted from the first one (-1: no limit). */
    int first_timestamp, no_timestamps, latest_first;
    int among_allowed; /* probabilities are among the tokens that these and `suppressed` allow */
    /* `adjust` of core/search.py: sequences (n_biases, biased_length), padded with -1 on the left, and their biases. */
    const int32_t *biased;
    const float *biases;
    int n_biases, biased_length;
    float repetition_penalty; /* 1: none */
    int of_logits;            /* logits are adjusted, not log-probabilities */
} Options;

/* Length limits and forced prefix of each sentence, padded with -1. */
typedef struct Limits {
    const int32_t *min_length, *max_length, *prefix;
    const int64_t *streams; /* the seed, and the random stream of each sentence; NULL: no sampling */
    int prefix_length;
    const int32_t *phrases; /* required phrases (sentences, n_phrases, phrase_length), padded with -1 */
    int n_phrases, phrase_length; /* 0: none; phrases need a beam of 2 or more, and `run` */
    const int32_t *context; /* (sentences, context_length), padded with -1 on the left: tokens before outputs for `adjust` */
    int context_length;     /* 0: the start token alone */
} Limits;

/* Finished hypotheses (outputs, pool), best first; tokens are (outputs, pool, longest). */
typedef struct Found {
    int32_t *tokens, *lengths; /* including the end token; length 0: none */
    float *token_log_probs, *log_probs, *scores;
    int longest;
} Found;

/* Decodings of the same sources by the models of an ensemble, and their output layers. */
typedef struct Members {
    Decoding *const *decodings;
    const Linear *const *outputs;
    int count;
} Members;

/* The ranked continuations of steps of a search for a single source, best first: (steps, (1 + ends) * beam_size), or
   (steps, 1) for a beam of one; `counts` is their number in each step. */
typedef struct Ranked {
    int32_t *counts, *tokens, *parents, *ended; /* parents: row of the extended hypothesis */
    float *log_probs, *token_log_probs;
} Ranked;

/* A step-by-step search. After an error only `headwise_search_end` may be called. */
typedef struct Search Search;

/* Start a search for all sources of new decodings. Output layers give the logits of all tokens, or of those in `ids`: then all
   other arguments and results are indices into `ids`, and `barred` (sentences, outputs) holds 0 or -inf for each. Both may be
   NULL. The caller owns all arguments, which are used until the end. Returns NULL if out of memory. */
EXPORT Search *headwise_search_start(const Members *members, const int32_t *ids, const float *barred,
                                      const Options *options, const Limits *limits, const Found *found);

/* One more token for every output. For a single hypothesis: one for each correct token of `guesses`, and one more. Returns the
   number of steps; 0 at the end, negative if out of memory or cancelled. `ranked` may be NULL. */
EXPORT int headwise_search_step(Search *search, const int32_t *guesses, int count, const Ranked *ranked);
EXPORT void headwise_search_end(Search *search);

/* The whole search. Returns 0, OUT_OF_MEMORY or CANCELLED. */
EXPORT int headwise_search(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                            const Limits *limits, const Found *found);

#endif
