/* See search.h. */

#include "search.h"

#include "attention.h"

#include <math.h>
#include <string.h>


/* Live rows, grouped by output, best first. */
typedef struct Live {
    int32_t *tokens, *paths; /* (rows, longest) */
    float *token_log_probs;  /* (rows, longest) */
    float *log_probs;        /* -inf: none */
    int32_t *outputs;        /* sample c of sentence s is output s * copies + c */
    int32_t *progress;       /* (rows, n_phrases): progress of each phrase, see pytorch/search/phrases.py */
} Live;

typedef struct Candidate {
    float log_prob, last; /* of the hypothesis, of its last token */
    int row, token;
} Candidate;

/* A token that may be sampled, and its weight exp(score). */
typedef struct Chance {
    float score, weight;
    int32_t token;
} Chance;

struct Search {
    Members members;
    const int32_t *ids;
    const float *barred;
    int32_t *allowed; /* see list_allowed; NULL without a shortlist */
    Options options;
    Limits limits;
    Found found;
    int vocab, max_candidates; /* of an output */
    int rows, length;  /* number of live rows, and of their tokens */
    Candidate *best;   /* (max_candidates), and those that phrases need */
    Candidate *needed; /* needed by phrases, by row: the next token of each phrase, and the row's best token */
    int n_needed;      /* their number */
    int32_t *progress, *met, *offered; /* progress of candidates and rows; matched tokens; sizes of banks */
    Chance *chances;   /* (vocab): for top-k and top-p */
    Live old, new;
    Buffer memory;
    float *logits, *row_scratch; /* of the rows, and one more row */
};

/* The length penalty. */
static float penalty(int length, const Options *options) {
    const double size = options->early_stopping == STOP_EXACT ? (5.0 + length) / 6.0 : length;
    return (float)pow(size, options->length_penalty);
}

static int contains(int32_t id, const Ids *list) {
    for (int i = 0; i < list->count; i++)
        if (list->ids[i] == id) return 1;
    return 0;
}

static int sentence_of(const Search *s, int row) { return s->old.outputs[row] / s->options.copies; }

/* --- Constraints: -inf in the logits --- */

static void mask_tokens(float *logits, int vocab, const Ids *list) {
    for (int i = 0; i < list->count; i++)
        if (list->ids[i] >= 0 && list->ids[i] < vocab) logits[list->ids[i]] = -INFINITY;
}

/* Token `at` of a row; -1 is the start token. */
static int32_t token_at(const Search *s, int row, int at) {
    return at < 0 ? s->options.bos_id : s->old.tokens[(int64_t)row * s->found.longest + at];
}

/* Bar tokens that would complete an n-gram of the row. */
static void mask_repeats(const Search *s, int row, float *logits) {
    const int n = s->options.no_repeat_ngram, newest = s->length - n + 1, first = s->options.bos_in_ngrams ? -1 : 0;
    for (int i = first; i + n <= s->length; i++) {
        int same = 0;
        while (same < n - 1 && token_at(s, row, i + same) == token_at(s, row, newest + same)) same++;
        if (same == n - 1) logits[token_at(s, row, i + same)] = -INFINITY;
    }
}

static void mask_range(float *logits, int from, int to) {
    for (int i = from; i < to; i++) logits[i] = -INFINITY;
}

/* Whether all timestamps together are more probable than any other token. */
static int is_time(const Search *s, const float *logits) {
    const int first = s->options.first_timestamp, count = s->vocab - first;
    const float most = maximum(logits + first, count);
    if (most == -INFINITY) return 0;
    return most + logarithm(exponential_sum(logits + first, count, most)) > maximum(logits, first);
}

/* The constraints on timestamps, see core/extensions/timestamps.py. */
static void constrain_timestamps(const Search *s, int row, float *logits) {
    const Options *o = &s->options;
    const int first = o->first_timestamp, n = s->length;
    logits[o->no_timestamps] = -INFINITY;
    if (!n) {
        mask_range(logits, 0, first);
        if (o->latest_first >= 0) mask_range(logits, MIN(s->vocab, first + o->latest_first + 1), s->vocab);
        return;
    }
    int latest = first - 1;
    for (int t = 0; t < n; t++) latest = MAX(latest, token_at(s, row, t));
    const int last = token_at(s, row, n - 1) >= first, before = n < 2 || token_at(s, row, n - 2) >= first;
    if (last && before) mask_range(logits, first, s->vocab);      /* a segment has begun */
    if (last && !before) mask_range(logits, 0, o->ends.ids[0]);   /* it has ended */
    mask_range(logits, first, last && !before ? latest : latest + 1);
    if (is_time(s, logits)) mask_range(logits, 0, first);
}

/* --- Phrases: see pytorch/search/phrases.py --- */

static const int32_t *phrase_of(const Search *s, int sentence, int phrase) {
    return s->limits.phrases + ((int64_t)sentence * s->limits.n_phrases + phrase) * s->limits.phrase_length;
}

static int phrase_size(const Search *s, const int32_t *phrase) {
    int n = 0;
    while (n < s->limits.phrase_length && phrase[n] >= 0) n++;
    return n;
}

/* Number of tokens of all phrases of a sentence. */
static int phrases_size(const Search *s, int sentence) {
    int n = 0;
    for (int p = 0; p < s->limits.n_phrases; p++) n += phrase_size(s, phrase_of(s, sentence, p));
    return n;
}

static int complete(const Search *s, int sentence, const int32_t *reached) {
    for (int p = 0; p < s->limits.n_phrases; p++)
        if (reached[p] < phrase_size(s, phrase_of(s, sentence, p))) return 0;
    return 1;
}

/* The progress of a phrase after a token; `before` is the progress before it. */
static int progress_after(const int32_t *phrase, int length, int before, int32_t token) {
    if (before == length) return length;
    for (int n = before + 1; n > 0; n--)
        if (phrase[n - 1] == token && !memcmp(phrase, phrase + before - (n - 1), 4 * (size_t)(n - 1))) return n;
    return 0;
}

/* The progress of phrases in every candidate, and `met` of pytorch/search/phrases.py. */
static void update_progress(const Search *s, int sentence, int count) {
    const int n = s->limits.n_phrases;
    for (int i = 0; i < count; i++) {
        const Candidate *c = s->best + i;
        int32_t *now = s->progress + (int64_t)i * n, furthest = 0;
        s->met[i] = 0;
        for (int p = 0; p < n; p++) {
            const int32_t *phrase = phrase_of(s, sentence, p), length = phrase_size(s, phrase);
            now[p] = progress_after(phrase, length, s->old.progress[(int64_t)c->row * n + p], c->token);
            if (now[p] == length) s->met[i] += length;
            else furthest = MAX(furthest, now[p]);
        }
        s->met[i] += furthest;
    }
}

/* Collect the next token of each phrase of a row, and its best token. */
static void collect_needed(Search *s, int row, const float *logits, float largest, float rest) {
    const int n = s->limits.n_phrases, sentence = sentence_of(s, row);
    const float so_far = s->old.log_probs[row], top = maximum(logits, s->vocab);
    if (!phrases_size(s, sentence)) return;
    for (int p = 0; p <= n; p++) {
        int token = 0;
        if (p < n) {
            const int32_t *phrase = phrase_of(s, sentence, p);
            const int at = s->old.progress[(int64_t)row * n + p];
            if (at == phrase_size(s, phrase)) continue;
            token = phrase[at];
        } else while (token < s->vocab - 1 && logits[token] != top) token++;
        if (!(logits[token] > -INFINITY)) continue;
        const float last = logits[token] - largest - rest;
        s->needed[s->n_needed++] = (Candidate){so_far + last, last, row, token};
    }
}

/* Merge the tokens that phrases need into the best candidates, after ties. Returns the number of candidates. */
static int add_needed(Search *s, int count) {
    for (int i = 0; i < s->n_needed; i++) {
        const Candidate new = s->needed[i];
        int at = count, known = 0;
        for (int k = 0; k < count; k++) known |= s->best[k].row == new.row && s->best[k].token == new.token;
        if (known) continue;
        for (; at > 0 && new.log_prob > s->best[at - 1].log_prob; at--) s->best[at] = s->best[at - 1];
        s->best[at] = new;
        count++;
    }
    s->n_needed = 0;
    return count;
}

/* Whether an output of a row ends with a token. */
static int is_end(const Search *s, const Candidate *c) {
    if (contains(c->token, &s->options.ends)) return 1;
    if (!s->options.stop) return 0;
    int32_t *tokens = s->old.tokens + (int64_t)c->row * s->found.longest;
    tokens[s->length] = c->token; /* behind those of the row */
    return s->options.stop(tokens, s->length + 1);
}

static int can_continue(const Search *s, const Candidate *c, int at_limit) {
    return !at_limit && !is_end(s, c);
}

/* The number of live candidates that each bank keeps; see `shares` in pytorch/search/phrases.py. */
static void share_banks(const Search *s, int banks, int count, int at_limit) {
    const int beam = s->options.beam_size;
    int left = 0;
    memset(s->offered, 0, 4 * (size_t)banks);
    for (int i = 0; i < count; i++) s->offered[s->met[i]] += can_continue(s, s->best + i, at_limit);
    int32_t *kept = s->offered + banks;
    for (int b = 0; b < banks; b++) kept[b] = beam / banks + (b == banks - 1 ? beam % banks : 0);
    for (int turn = 0; turn < 2; turn++)
        for (int b = banks - 1; b >= 0; b--) {
            const int space = kept[b] + left;
            kept[b] = MIN(space, s->offered[b]);
            left = space - kept[b];
        }
}

/* A row without allowed tokens may end, even if it is short. */
static void apply_constraints(const Search *s, int row, float *logits) {
    const Options *o = &s->options;
    const int end = o->ends.ids[0], may_end = s->length >= s->limits.min_length[sentence_of(s, row)];
    if (s->length == o->n_forced) mask_tokens(logits, s->vocab, &o->suppressed_first);
    const float ending = end >= 0 && end < s->vocab ? logits[end] : -INFINITY;
    mask_tokens(logits, s->vocab, &o->suppressed);
    if (!may_end) mask_tokens(logits, s->vocab, &o->ends);
    if (!o->no_repeat_ngram) return;
    mask_repeats(s, row, logits);
    if (ending > -INFINITY && maximum(logits, s->vocab) == -INFINITY) logits[end] = ending;
}

/* --- Sampling, as in core/extensions/sampling.py --- */

/* One step of SplitMix64 (https://prng.di.unimi.it/splitmix64.c). */
static uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The random number in [0, 1) for the next token of a row. */
static double uniform(const Search *s, int row) {
    const int copy = s->old.outputs[row] % s->options.copies;
    uint64_t state = splitmix64((uint64_t)s->limits.streams[0]);
    state = splitmix64(state ^ (uint64_t)s->limits.streams[1 + sentence_of(s, row)]);
    state = splitmix64(state ^ (uint64_t)copy);
    state = splitmix64(state ^ (uint64_t)(s->length - s->options.n_forced));
    return (double)(state >> 11) * 0x1p-53;
}

static int likelier(Chance a, Chance b) { return a.score > b.score || (a.score == b.score && a.token < b.token); }

/* Sift down in a heap. */
static void sift_down(Chance *heap, int count, int at) {
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && likelier(heap[child + 1], heap[child])) child++;
        if (!likelier(heap[child], heap[at])) return;
        const Chance above = heap[at];
        heap[at] = heap[child];
        heap[child] = above;
    }
}

/* Pop the most probable token of a heap and move it to the end. */
static Chance pop(Chance *heap, int *left) {
    const Chance top = heap[0];
    heap[0] = heap[--*left];
    sift_down(heap, *left, 0);
    return heap[*left] = top;
}

/* Move the most probable tokens to the end, the best last: the `top_k` and ties with the last of them, and of these the
   fewest with a total share of `top_p`. Returns their number. */
static int nucleus(Chance *chances, int count, int top_k, double top_p) {
    int left = count, kept = 0;
    double total = 0, weight = 0;
    for (int i = count / 2 - 1; i >= 0; i--) sift_down(chances, count, i);
    while (top_k && left && (count - left < top_k || chances[0].score == chances[left].score))
        total += pop(chances, &left).weight;
    for (int i = 0; !top_k && i < count; i++) total += chances[i].weight;
    const int offered = top_k ? count - left : count;
    if (!(top_p < 1)) return offered;
    for (; kept < offered && weight < top_p * total; kept++) {
        if (kept == count - left) pop(chances, &left);
        weight += chances[count - 1 - kept].weight;
    }
    return kept;
}

/* Converts scores to weights; those outside top-k and top-p become 0. */
static void keep_nucleus(const Search *s, float *scores) {
    int count = 0;
    for (int v = 0; v < s->vocab; v++)
        if (scores[v] > -INFINITY) s->chances[count++] = (Chance){scores[v], 0, v};
    exponentials(scores, s->vocab, maximum(scores, s->vocab));
    for (int i = 0; i < count; i++) s->chances[i].weight = scores[s->chances[i].token];
    const int kept = nucleus(s->chances, count, s->options.top_k, s->options.top_p);
    memset(scores, 0, 4 * (size_t)s->vocab);
    for (int i = count - kept; i < count; i++) scores[s->chances[i].token] = s->chances[i].weight;
}

/* Samples a token from log-probabilities, which are overwritten; -1 if there is none. */
static int sample_token(const Search *s, int row, float *log_probs) {
    double total = 0, below = 0;
    for (int v = 0; v < s->vocab; v++) log_probs[v] /= s->options.temperature;
    if (s->chances) keep_nucleus(s, log_probs);
    else exponentials(log_probs, s->vocab, maximum(log_probs, s->vocab));
    for (int v = 0; v < s->vocab; v++) total += log_probs[v];
    const double target = fmin(uniform(s, row) * total, nextafter(total, 0)); /* guards against rounding */
    for (int v = 0; v < s->vocab; v++)
        if ((below += log_probs[v]) > target) return v;
    return -1;
}

/* --- Candidates --- */

/* Insert a candidate into the best ones, after ties, which came earlier. */
static int push_candidate(const Search *s, int count, Candidate new) {
    Candidate *best = s->best;
    if (count == s->max_candidates && !(new.log_prob > best[count - 1].log_prob)) return count;
    int at = count < s->max_candidates ? count : count - 1;
    for (; at > 0 && new.log_prob > best[at - 1].log_prob; at--) best[at] = best[at - 1];
    best[at] = new;
    return count < s->max_candidates ? count + 1 : count;
}

/* Offer the best continuations of a row; log-probability = logit - largest - rest. */
static int push_best(const Search *s, int row, const float *logits, float largest, float rest, int count) {
    const float so_far = s->old.log_probs[row];
    for (int v = 0; v < s->vocab; v += 8) {
        /* lower logits cannot be among the best; with a margin for rounding */
        const float bound = count < s->max_candidates ? -INFINITY : s->best[count - 1].log_prob - so_far + rest + largest;
        const float low = bound - 1e-5f * (1 + fabsf(bound));
        int hits = 0xff;
        if (v + 8 <= s->vocab && count == s->max_candidates) hits = greater_mask8(load8(logits + v), set8(low));
        for (; hits; hits &= hits - 1) {
            const int token = v + __builtin_ctz(hits);
            if (token >= s->vocab) break;
            if (logits[token] == -INFINITY) continue;
            const float last = logits[token] - largest - rest;
            count = push_candidate(s, count, (Candidate){so_far + last, last, row, token});
        }
    }
    return count;
}

/* The sum of exp(logit - largest) of a row; with a shortlist only of the tokens of its own sentence: gaps of other sentences
   would change the order of additions and so the last bits. */
static float sum_row(const Search *s, int row, const float *logits, float largest) {
    if (!s->allowed) return exponential_sum(logits, s->vocab, largest);
    const int32_t *allowed = s->allowed + (int64_t)sentence_of(s, row) * (s->vocab + 1), n = *allowed++;
    for (int i = 0; i < n; i++) s->row_scratch[i] = logits[allowed[i]];
    return exponential_sum(s->row_scratch, n, largest);
}

/* For each sentence (1 + vocab): the number of allowed tokens, and their indices. */
static void list_allowed(Search *s) {
    for (int i = 0; i < s->members.decodings[0]->sentences; i++) {
        const float *barred = s->barred + (int64_t)i * s->vocab;
        int32_t *own = s->allowed + (int64_t)i * (s->vocab + 1), n = 0;
        for (int v = 0; v < s->vocab; v++)
            if (barred[v] == 0) own[++n] = v;
        own[0] = n;
    }
}

/* The largest logit of a row, and the logarithm of the sum of exp(logit - largest). */
static float log_sum(const Search *s, int row, const float *logits, float *largest) {
    *largest = maximum(logits, s->vocab);
    return logarithm(sum_row(s, row, logits, *largest));
}

/* The constraints that probabilities may depend on. */
static void constrain_speech(const Search *s, int row, float *logits) {
    const Options *o = &s->options;
    if (s->length == o->n_forced) mask_tokens(logits, s->vocab, &o->suppressed_first);
    mask_tokens(logits, s->vocab, &o->suppressed);
    if (o->first_timestamp) constrain_timestamps(s, row, logits);
}

/* Token `at` of a row, or of what is before it; -1: none. */
static int32_t counted_token(const Search *s, int row, int at) {
    const int n = s->limits.context_length;
    if (at >= 0 || (!n && at == -1)) return token_at(s, row, at);
    return at < -n ? -1 : s->limits.context[((int64_t)sentence_of(s, row) + 1) * n + at];
}

/* Whether a row ends with all tokens of a biased sequence but the last. */
static int is_begun(const Search *s, int row, const int32_t *sequence) {
    const int before = s->options.biased_length - 1;
    for (int i = 0; i < before; i++)
        if (sequence[i] >= 0 && counted_token(s, row, s->length - before + i) != sequence[i]) return 0;
    return 1;
}

/* `adjust` of core/search.py. */
static void adjust(const Search *s, int row, float *scores) {
    const Options *o = &s->options;
    for (int i = 0; i < o->n_biases; i++) {
        const int32_t *sequence = o->biased + (int64_t)i * o->biased_length;
        if (is_begun(s, row, sequence)) scores[sequence[o->biased_length - 1]] += o->biases[i];
    }
    if (o->repetition_penalty == 1) return;
    memcpy(s->row_scratch, scores, 4 * (size_t)s->vocab); /* a token that occurs twice is penalised once */
    for (int i = -MAX(1, s->limits.context_length); i < s->length; i++) {
        const int32_t token = counted_token(s, row, i);
        if (token < 0 || token >= s->vocab) continue;
        const float score = s->row_scratch[token];
        scores[token] = score < 0 ? score * o->repetition_penalty : score / o->repetition_penalty;
    }
}

/* Logits of a row as adjusted logits or log-probabilities, for which `largest` and `rest` become 0. */
static void adjust_row(const Search *s, int row, float *logits, float *largest, float *rest) {
    if (!s->options.of_logits) {
        for (int v = 0; v < s->vocab; v++) logits[v] = logits[v] - *largest - *rest;
        *largest = *rest = 0;
    }
    adjust(s, row, logits);
    if (s->options.of_logits) *rest = log_sum(s, row, logits, largest);
}

/* Offer the continuations of a row of `length` tokens. */
static int extend_row(Search *s, int row, float *logits, int count) {
    const Options *o = &s->options;
    const Limits *limits = &s->limits;
    const float so_far = s->old.log_probs[row];
    const int64_t begins = (int64_t)sentence_of(s, row) * limits->prefix_length;
    const int forced = s->length < limits->prefix_length ? limits->prefix[begins + s->length] : -1;
    if (s->length < o->n_forced) return push_candidate(s, count, (Candidate){so_far, 0, row, forced});
    if (s->length + 1 == o->end_at) return push_candidate(s, count, (Candidate){so_far, 0, row, o->forced_end});
    float largest, rest = log_sum(s, row, logits, &largest);
    if (o->n_biases || o->repetition_penalty != 1) adjust_row(s, row, logits, &largest, &rest);
    int token = forced;
    if (forced < 0 && (o->first_timestamp || o->among_allowed)) constrain_speech(s, row, logits);
    if (forced < 0 && o->among_allowed) rest = log_sum(s, row, logits, &largest);
    if (forced < 0) apply_constraints(s, row, logits);
    if (forced < 0 && limits->n_phrases) {
        if (!complete(s, sentence_of(s, row), s->old.progress + (int64_t)row * limits->n_phrases))
            mask_tokens(logits, s->vocab, &o->ends);
        collect_needed(s, row, logits, largest, rest);
    }
    if (forced < 0 && !limits->streams) return push_best(s, row, logits, largest, rest, count);
    if (forced < 0) {
        for (int v = 0; v < s->vocab; v++) s->row_scratch[v] = logits[v] - largest - rest;
        token = sample_token(s, row, s->row_scratch);
    }
    const float last = token < 0 ? -INFINITY : logits[token] - largest - rest;
    return token < 0 ? count : push_candidate(s, count, (Candidate){so_far + last, last, row, token});
}

/* --- Finished hypotheses --- */

/* Insert a row with one more token into the pool, after ties, if it is good enough. */
static void add_finished(const Search *s, int output, const Candidate *c, int length, float score) {
    const Found *found = &s->found;
    const int pool = s->options.pool;
    const int64_t first = (int64_t)output * pool, stride = found->longest;
    if (!(score > found->scores[first + pool - 1])) return;
    int at = pool - 1;
    for (; at > 0 && score > found->scores[first + at - 1]; at--) {
        const int64_t to = first + at, from = to - 1;
        memcpy(found->tokens + to * stride, found->tokens + from * stride, 4 * (size_t)stride);
        memcpy(found->token_log_probs + to * stride, found->token_log_probs + from * stride, 4 * (size_t)stride);
        found->lengths[to] = found->lengths[from];
        found->log_probs[to] = found->log_probs[from];
        found->scores[to] = found->scores[from];
    }
    const int64_t to = first + at, from = (int64_t)c->row * stride;
    memcpy(found->tokens + to * stride, s->old.tokens + from, 4 * (size_t)(length - 1));
    memcpy(found->token_log_probs + to * stride, s->old.token_log_probs + from, 4 * (size_t)(length - 1));
    found->tokens[to * stride + length - 1] = c->token;
    found->token_log_probs[to * stride + length - 1] = c->last;
    found->lengths[to] = length;
    found->log_probs[to] = c->log_prob;
    found->scores[to] = score;
}

static void keep_live(const Search *s, int to, const Candidate *c, int length, int alive) {
    const Live *old = &s->old, *new = &s->new;
    const int64_t phrases = s->limits.n_phrases;
    if (phrases) memcpy(new->progress + to * phrases, s->progress + (c - s->best) * phrases, 4 * (size_t)phrases);
    const int64_t stride = s->found.longest, from = (int64_t)c->row * stride, at = (int64_t)to * stride;
    memcpy(new->tokens + at, old->tokens + from, 4 * (size_t)(length - 1));
    memcpy(new->paths + at, old->paths + from, 4 * (size_t)length);
    memcpy(new->token_log_probs + at, old->token_log_probs + from, 4 * (size_t)(length - 1));
    new->tokens[at + length - 1] = c->token;
    new->token_log_probs[at + length - 1] = c->last;
    new->log_probs[to] = alive ? c->log_prob : -INFINITY;
    new->outputs[to] = old->outputs[c->row];
}

/* Whether the stopping rule is met; `most` is the best live log-probability. */
static int is_done(float most, float worst, int length, int max_length, const Options *options) {
    int reached = length;
    if (options->early_stopping == STOP_EXACT) return most / penalty(max_length, options) <= worst;
    if (worst == -INFINITY) return 0;
    if (options->early_stopping == STOP_YES) return 1;
    if (options->early_stopping == STOP_NEVER && options->length_penalty > 0) reached = max_length;
    return most / penalty(reached, options) <= worst;
}

/* A step of one output: candidates end or stay live. Returns the number of live rows; 0: done. */
static int advance_output(const Search *s, int to, int count) {
    if (!count) return 0; /* only NaN */
    const Options *o = &s->options;
    const int length = s->length + 1, output = s->old.outputs[s->best[0].row];
    const int max_length = s->limits.max_length[output / o->copies], at_limit = length >= max_length;
    const int sentence = output / o->copies, n = s->limits.n_phrases, banks = n ? phrases_size(s, sentence) + 1 : 0;
    if (n) {
        update_progress(s, sentence, count);
        share_banks(s, banks, count, at_limit);
    }
    const int counted = o->early_stopping == STOP_EXACT ? count : MIN(count, o->beam_size);
    const float divisor = penalty(length, o);
    float most = -INFINITY;
    int rows = 0;
    for (int i = 0; i < count; i++) {
        const Candidate *c = s->best + i;
        if (!can_continue(s, c, at_limit)) {
            if (n && !complete(s, sentence, s->progress + (int64_t)i * n)) continue;
            if (i < counted) add_finished(s, output, c, length, c->log_prob / divisor);
        } else if (n ? s->offered[banks + s->met[i]]-- > 0 : rows < o->beam_size) {
            keep_live(s, to + rows++, c, length, 1);
            most = MAX(most, c->log_prob);
        }
    }
    const float worst = s->found.scores[(int64_t)output * o->pool + o->pool - 1];
    if (!rows || at_limit || is_done(most, worst, length, max_length, o)) return 0;
    for (; rows < o->beam_size; rows++) keep_live(s, to + rows, s->best, length, 0);
    return rows;
}

/* --- Steps --- */

static int widest_state(const Members *members) {
    int d = 0;
    for (int m = 0; m < members->count; m++) d = MAX(d, members->decodings[m]->model->d_model);
    return d;
}

static void add(float *sums, const float *terms, int64_t n) {
    for (int64_t i = 0; i < n; i++) sums[i] += terms[i];
}

static void divide(float *sums, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) sums[i] /= by;
}

static int has_prompts(const Search *s) { return s->members.decodings[0]->n_prompt_slots > 0; }

static int prompt_length(const Search *s, int sentence) {
    return has_prompts(s) ? s->members.decodings[0]->prompt_lengths[sentence] : 0;
}

/* The position of the newest token among the inputs; a start token comes before the first one, unless there are prompts. */
static int input_position(const Search *s) { return has_prompts(s) ? s->length - 1 : s->length; }

/* States after the prompts, which have been read. */
static void copy_prompt_states(const Search *s, const Decoding *of, float *hidden) {
    const int d = of->model->d_model;
    for (int r = 0; r < s->rows; r++)
        memcpy(hidden + (int64_t)r * d, of->prompt_states + (int64_t)sentence_of(s, r) * d, 4 * (size_t)d);
}

/* The input of the models: the newest token of every row, or of the only row followed by guesses. */
static void prepare_inputs(Search *s, const int32_t *guesses, int count, int32_t *tokens, int32_t *positions,
                           int32_t *sentences) {
    const int64_t slot = headwise_slots(s->members.decodings[0]), stride = s->found.longest;
    for (int r = 0; r < s->rows + count; r++) {
        const int row = MIN(r, s->rows - 1), ahead = r - row;
        tokens[r] = ahead ? guesses[ahead - 1] : token_at(s, row, s->length - 1);
        if (s->ids) tokens[r] = s->ids[tokens[r]];
        sentences[r] = sentence_of(s, row);
        const int at = input_position(s) + ahead;
        positions[r] = prompt_length(s, sentences[r]) + at;
        s->old.paths[row * stride + at] = (int32_t)(slot + r);
    }
}

/* The logits after every input token; for an ensemble their mean, which the search normalises like the mean of
   log-probabilities. Returns 0, or how it failed. */
static int compute_logits(Search *s, const int32_t *guesses, int count) {
    const Members *members = &s->members;
    const int rows = s->rows + count, d = widest_state(members);
    const int64_t cells = (int64_t)rows * s->vocab, more = members->count > 1 ? cells : 0, stride = s->found.longest;
    const int at_prompt = has_prompts(s) && !s->length, before = MAX(0, input_position(s));
    if (!at_prompt) TRY(reserve_slots(members->decodings, members->count, rows, s->old.paths, s->rows, stride, before));
    float *hidden = reserve(&s->memory, 4 * ((int64_t)rows * (d + 3) + cells + more + s->vocab + 64));
    if (!hidden) return OUT_OF_MEMORY;
    s->logits = hidden + (int64_t)rows * d;
    s->row_scratch = s->logits + cells;
    float *others = s->row_scratch + s->vocab;
    int32_t *tokens = (int32_t *)(others + more), *positions = tokens + rows, *sentences = positions + rows;
    if (!at_prompt) prepare_inputs(s, guesses, count, tokens, positions, sentences);
    for (int m = 0; m < members->count; m++) {
        Decoding *of = members->decodings[m];
        float *own = m ? others : s->logits;
        if (at_prompt) copy_prompt_states(s, of, hidden);
        else TRY(headwise_step(of, rows, tokens, positions, sentences, s->old.paths, count ? 0 : stride, hidden));
        TRY(linear_forward(members->outputs[m], hidden, rows, of->model->d_model, own, s->vocab, NONE, &of->scratch));
        if (m) add(s->logits, others, cells);
    }
    if (members->count > 1) divide(s->logits, (float)members->count, cells);
    return 0;
}

/* Reports the ranked continuations of a step of the only sentence. */
static void report_ranked(const Search *s, const Ranked *ranked, int step, int count) {
    const int at_limit = s->length + 1 >= s->limits.max_length[0];
    ranked->counts[step] = count;
    for (int i = 0; i < count; i++) {
        const Candidate *c = s->best + i;
        const int64_t to = (int64_t)step * s->max_candidates + i;
        ranked->tokens[to] = c->token;
        ranked->parents[to] = c->row;
        ranked->ended[to] = at_limit || is_end(s, c);
        ranked->log_probs[to] = c->log_prob;
        ranked->token_log_probs[to] = c->last;
    }
}

#ifdef __wasm__ /* for a page: the best live hypothesis after each step */
__attribute__((import_module("page"), import_name("written"))) void written(const int32_t *tokens, int length);
#else
static void written(const int32_t *tokens, int length) { (void)tokens, (void)length; }
#endif

/* Extends every output by one token. Returns 0, or CANCELLED. */
static int select_tokens(Search *s, float *logits, const Ranked *ranked, int step) {
    int next_rows = 0;
    for (int r = 0; r < s->rows;) {
        const int output = s->old.outputs[r], sentence = output / s->options.copies;
        const float *barred = s->barred ? s->barred + (int64_t)sentence * s->vocab : NULL;
        int count = 0;
        for (; r < s->rows && s->old.outputs[r] == output; r++) {
            float *row = logits + (int64_t)r * s->vocab;
            if (s->old.log_probs[r] == -INFINITY) continue;
            if (barred) add(row, barred, s->vocab);
            count = extend_row(s, r, row, count);
        }
        if (s->limits.n_phrases) count = add_needed(s, count);
        if (ranked) report_ranked(s, ranked, step, count);
        next_rows += advance_output(s, next_rows, count);
        if (is_cancelled(&s->members.decodings[0]->scratch)) return CANCELLED;
    }
    const Live former = s->old;
    s->old = s->new;
    s->new = former;
    s->rows = next_rows;
    s->length++;
    if (s->rows) written(s->old.tokens, s->length);
    return 0;
}

int headwise_search_step(Search *s, const int32_t *guesses, int count, const Ranked *ranked) {
    if (!s->rows) return 0;
    count = has_prompts(s) ? 0 : MIN(count, s->found.longest - s->length - 1); /* guesses are for sources */
    TRY(compute_logits(s, guesses, count));
    const int64_t slot = headwise_slots(s->members.decodings[0]) - s->rows - count;
    int made = 0, right;
    do {
        if (count) s->old.paths[s->length] = (int32_t)(slot + made);
        TRY(select_tokens(s, s->logits + (int64_t)made * s->vocab, ranked, made));
        right = made < count && s->rows && s->old.tokens[s->length - 1] == guesses[made];
        made++;
    } while (right);
    for (int m = 0; count && m < s->members.count; m++) headwise_truncate(s->members.decodings[m], slot + made);
    return made;
}

/* --- The search --- */

static int allocate_live(Live *live, int rows, int longest, int phrases) {
    const int64_t cells = (int64_t)rows * longest + 1;
    live->tokens = malloc(4 * cells);
    live->paths = malloc(4 * cells);
    live->token_log_probs = malloc(4 * cells);
    live->log_probs = malloc(4 * ((size_t)rows + 1));
    live->outputs = malloc(4 * ((size_t)rows + 1));
    live->progress = calloc((size_t)rows * phrases + 1, 4);
    const int done = live->tokens && live->paths && live->token_log_probs && live->log_probs && live->outputs && live->progress;
    return done ? 0 : OUT_OF_MEMORY;
}

static void free_live(Live *live) {
    free(live->tokens);
    free(live->paths);
    free(live->token_log_probs);
    free(live->log_probs);
    free(live->outputs);
    free(live->progress);
}

Search *headwise_search_start(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                              const Limits *limits, const Found *found) {
    Search *s = calloc(1, sizeof(Search));
    if (!s) return NULL;
    s->members = *members;
    s->ids = ids;
    s->barred = barred;
    s->options = *options;
    s->limits = *limits;
    s->found = *found;
    s->vocab = members->outputs[0]->d_out;
    s->rows = members->decodings[0]->sentences * options->copies;
    /* at least beam_size candidates stay live */
    s->max_candidates = options->beam_size == 1 ? 1 : (1 + options->ends.count) * options->beam_size;
    const int64_t n = limits->n_phrases, asked = n ? (n + 1) * options->beam_size : 0;
    s->best = malloc(sizeof(Candidate) * (s->max_candidates + asked));
    s->needed = malloc(sizeof(Candidate) * (asked + 1));
    s->progress = malloc(4 * (size_t)((s->max_candidates + asked) * n + 1));
    s->met = malloc(4 * (size_t)(s->max_candidates + asked));
    s->offered = malloc(8 * (size_t)(n * limits->phrase_length + 1));
    const int few = limits->streams && (options->top_k || options->top_p < 1);
    if (few) s->chances = malloc(sizeof(Chance) * s->vocab);
    const int rows = s->rows * options->beam_size;
    if (barred) s->allowed = malloc(4 * (size_t)members->decodings[0]->sentences * (s->vocab + 1));
    const int missing = !s->best || !s->needed || !s->progress || !s->met || !s->offered;
    if (missing || (barred && !s->allowed) || (few && !s->chances) || allocate_live(&s->old, rows, found->longest, (int)n) ||
        allocate_live(&s->new, rows, found->longest, (int)n)) {
        headwise_search_end(s);
        return NULL;
    }
    for (int64_t i = 0; i < (int64_t)s->rows * options->pool; i++) {
        found->scores[i] = -INFINITY;
        found->lengths[i] = 0;
    }
    for (int r = 0; r < s->rows; r++) {
        s->old.outputs[r] = r;
        s->old.log_probs[r] = 0;
    }
    if (barred) list_allowed(s);
    return s;
}

void headwise_search_end(Search *s) {
    if (!s) return;
    free_live(&s->old);
    free_live(&s->new);
    free(s->best);
    free(s->needed);
    free(s->progress);
    free(s->met);
    free(s->offered);
    free(s->allowed);
    free(s->chances);
    release(&s->memory);
    free(s);
}

int headwise_search(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                    const Limits *limits, const Found *found) {
    Search *s = headwise_search_start(members, ids, barred, options, limits, found);
    int made = s ? 1 : OUT_OF_MEMORY;
    while (made > 0) made = headwise_search_step(s, NULL, 0, NULL);
    headwise_search_end(s);
    return made;
}
