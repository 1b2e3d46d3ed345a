/* Self-attention over the KV cache (equation 1): to the slots of a path in steps, and in blocks of queries for prompts. Both
   compute every score and every sum in the same order, so that a prompt has the same bits in one pass as token by token.
   Several heads of queries may share one of keys and values (arXiv:2305.13245), which the cache has once. */

#ifndef HEADWISE_SLOTS_H
#define HEADWISE_SLOTS_H

#include "attention.h"
#include "transformer.h"

#define BLOCK 4 /* queries that are computed together, at most SCORE_ROWS */

/* The slots of a row's positions: `n_prompt` slots from `prompt` on, then those of `path`. The paths of the next rows are
   `stride` slots further each. */
typedef struct Slots {
    int64_t prompt;
    int n_prompt;
    const int32_t *path;
    int64_t stride;
} Slots;

/* `count` rows, at most BLOCK, of one sentence at the same position: attention of all heads to the positions up to their own,
   or to the last `window` of them. Keys and values at the beginning of all paths are read once. In `scores` every head of a
   row has the weights of `round_up` keys. */
void attend_to_paths(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, Cached values,
                     const Slots *slots, int position, float *scores, float *out);

/* The first half of it, scores before the softmax. Returns the number of positions at which all paths have the same slots. */
int score_paths(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, const Slots *slots,
                int position, float *scores);

/* `count` rows, at most BLOCK, of a prompt whose keys and values start at `keys` and `values`; the first one is at `position`.
   Rows of queries are `q_stride` numbers apart, those of `out` heads * d_v. Both functions use memory for the scores of
   SCORE_ROWS rows of each head, with 8 more than `round_up` keys. */
void attend_to_prompt(const Attention *a, int count, const float *q, int64_t q_stride, Cached keys, Cached values,
                      int position, float *scores, float *out);

#endif
