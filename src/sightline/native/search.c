/* See search.h. */

#include "search.h"

#include "attention.h"

#include <math.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Rows that live, those of one sentence side by side, best first. */
typedef struct Live {
    int32_t *tokens, *paths; /* (rows, longest) */
    float *token_log_probs;  /* (rows, longest) */
    float *log_probs;        /* -inf: nothing lives here */
    int32_t *sentences;
} Live;

typedef struct Candidate {
    float log_prob, last; /* of the hypothesis, of its last token */
    int row, token;
} Candidate;

/* What a log-probability is divided by. */
static float penalty(int length, const Options *options) {
    const double size = options->ending == UNSURPASSED ? (5.0 + length) / 6.0 : length;
    return (float)pow(size, options->length_penalty);
}

static int among(int32_t id, const Ids *list) {
    for (int i = 0; i < list->count; i++)
        if (list->ids[i] == id) return 1;
    return 0;
}

/* --- Candidates --- */

/* Put a candidate among the best ones, behind those that are as good: they came earlier. */
static int offer(Candidate *best, int count, int most, Candidate new) {
    if (count == most && !(new.log_prob > best[most - 1].log_prob)) return count;
    int at = count < most ? count : most - 1;
    for (; at > 0 && new.log_prob > best[at - 1].log_prob; at--) best[at] = best[at - 1];
    best[at] = new;
    return count < most ? count + 1 : count;
}

/* Offer every continuation of a row of `length` tokens by one. `spare` is overwritten, a row of the same width. */
static int continue_row(const float *logits, float *spare, int vocab, int row, float so_far, int length, int forced,
                        int may_end, const Options *options, Candidate *best, int count, int most) {
    if (length < options->begun) return offer(best, count, most, (Candidate){so_far, 0, row, forced});
    if (length + 1 == options->end_at) return offer(best, count, most, (Candidate){so_far, 0, row, options->forced_end});
    const float largest = maximum(logits, vocab);
    memcpy(spare, logits, 4 * (size_t)vocab);
    const float rest = logf(exponentials(spare, vocab, largest));
    if (forced >= 0) {
        const float last = logits[forced] - largest - rest;
        return offer(best, count, most, (Candidate){so_far + last, last, row, forced});
    }
    for (int v = 0; v < vocab; v += 8) {
        /* what is lower than this logit is lower than the worst of the best; a little less, for rounding */
        const float bound = count < most ? -INFINITY : best[most - 1].log_prob - so_far + rest + largest;
        const float low = bound - 1e-5f * (1 + fabsf(bound));
        int hits = 0xff;
        if (v + 8 <= vocab && count == most) hits = hits8(load8(logits + v), all8(low));
        for (; hits; hits &= hits - 1) {
            const int token = v + __builtin_ctz(hits);
            if (token >= vocab) break;
            if (among(token, &options->suppressed) || (!may_end && among(token, &options->ends))) continue;
            if (length == options->begun && among(token, &options->suppressed_first)) continue;
            const float last = logits[token] - largest - rest;
            count = offer(best, count, most, (Candidate){so_far + last, last, row, token});
        }
    }
    return count;
}

/* --- Hypotheses that have ended --- */

/* Behind those that are as good, if it is one of the pool; what a row says and one more token. */
static void finish(const Found *found, int pool, int sentence, const Live *live, const Candidate *c, int length, float score) {
    const int64_t first = (int64_t)sentence * pool, stride = found->longest;
    if (!(score > found->scores[first + pool - 1])) return;
    int at = pool - 1;
    for (; at > 0 && score > found->scores[first + at - 1]; at--) {
        const int64_t to = first + at, from = to - 1;
        memcpy(found->tokens + to * stride, found->tokens + from * stride, 4 * (size_t)stride);
        memcpy(found->token_log_probs + to * stride, found->token_log_probs + from * stride, 4 * (size_t)stride);
        found->lengths[to] = found->lengths[from];
        found->log_probs[to] = found->log_probs[from], found->scores[to] = found->scores[from];
    }
    const int64_t to = first + at, from = (int64_t)c->row * stride;
    memcpy(found->tokens + to * stride, live->tokens + from, 4 * (size_t)(length - 1));
    memcpy(found->token_log_probs + to * stride, live->token_log_probs + from, 4 * (size_t)(length - 1));
    found->tokens[to * stride + length - 1] = c->token;
    found->token_log_probs[to * stride + length - 1] = c->last;
    found->lengths[to] = length, found->log_probs[to] = c->log_prob, found->scores[to] = score;
}

static void live_on(const Live *old, const Live *new, int to, const Candidate *c, int length, int64_t stride, int alive) {
    const int64_t from = (int64_t)c->row * stride, at = (int64_t)to * stride;
    memcpy(new->tokens + at, old->tokens + from, 4 * (size_t)(length - 1));
    memcpy(new->paths + at, old->paths + from, 4 * (size_t)length);
    memcpy(new->token_log_probs + at, old->token_log_probs + from, 4 * (size_t)(length - 1));
    new->tokens[at + length - 1] = c->token;
    new->token_log_probs[at + length - 1] = c->last;
    new->log_probs[to] = alive ? c->log_prob : -INFINITY;
    new->sentences[to] = old->sentences[c->row];
}

/* Whether nothing alive, of log-probabilities up to `most`, is waited for any more. */
static int settled(float most, float worst, int length, int max_length, const Options *options) {
    int reached = length;
    if (options->ending == UNSURPASSED) return most / penalty(max_length, options) <= worst;
    if (worst == -INFINITY) return 0;
    if (options->ending == POOL_FILLED_EARLY) return 1;
    if (options->ending == POOL_FILLED_PATIENT && options->length_penalty > 0) reached = max_length;
    return most / penalty(reached, options) <= worst;
}

/* One sentence's step: its candidates end or live on. How many rows it has next; 0: it is done. */
static int advance(const Live *old, const Live *new, int to, const Candidate *best, int count, int length,
                   const Limits *limits, const Options *options, const Found *found) {
    if (!count) return 0; /* nothing but numbers that are none */
    const int sentence = old->sentences[best[0].row], at_limit = length >= limits->max_length[sentence];
    const int counted = options->ending == UNSURPASSED ? count : MIN(count, options->beam_size);
    const float divisor = penalty(length, options);
    float most = -INFINITY;
    int rows = 0;
    for (int i = 0; i < count; i++) {
        const Candidate *c = best + i;
        if (at_limit || among(c->token, &options->ends)) {
            if (i < counted) finish(found, options->pool, sentence, old, c, length, c->log_prob / divisor);
        } else if (rows < options->beam_size) {
            live_on(old, new, to + rows++, c, length, found->longest, 1);
            most = MAX(most, c->log_prob);
        }
    }
    const float worst = found->scores[(int64_t)sentence * options->pool + options->pool - 1];
    if (!rows || at_limit || settled(most, worst, length, limits->max_length[sentence], options)) return 0;
    for (; rows < options->beam_size; rows++) live_on(old, new, to + rows, best, length, found->longest, 0);
    return rows;
}

#ifdef __wasm__ /* a page shows what is being written: the best that lives, after each step */
__attribute__((import_module("page"), import_name("written"))) void written(const int32_t *tokens, int length);
#else
static void written(const int32_t *tokens, int length) { (void)tokens, (void)length; }
#endif

/* --- The search --- */

static int allocate(Live *live, int rows, int longest) {
    const int64_t cells = (int64_t)rows * longest + 1;
    live->tokens = malloc(4 * cells), live->paths = malloc(4 * cells), live->token_log_probs = malloc(4 * cells);
    live->log_probs = malloc(4 * ((size_t)rows + 1)), live->sentences = malloc(4 * ((size_t)rows + 1));
    return live->tokens && live->paths && live->token_log_probs && live->log_probs && live->sentences ? 0 : -1;
}

static void release(Live *live) {
    free(live->tokens), free(live->paths), free(live->token_log_probs), free(live->log_probs), free(live->sentences);
}

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

/* The logits after the newest token of every row, of several models their mean: that of their log-probabilities but for
   one number a row, which the search's own softmax takes away. 0, or -1. */
static int predict(const Members *members, const Live *live, int rows, int length, int64_t stride, int bos_id,
                   const int32_t *ids, Buffer *memory, float **logits) {
    const int d = widest_state(members), vocab = members->outputs[0]->d_out;
    const int64_t cells = (int64_t)rows * vocab, more = members->count > 1 ? cells : 0;
    if (make_room(members->decodings, members->count, rows, live->paths, rows, stride, length)) return -1;
    float *hidden = room(memory, 4 * ((int64_t)rows * (d + 2) + cells + more + vocab + 64));
    if (!hidden) return -1;
    *logits = hidden + (int64_t)rows * d;
    float *others = *logits + cells + vocab; /* a row in between is for the search */
    int32_t *tokens = (int32_t *)(others + more), *positions = tokens + rows;
    for (int r = 0; r < rows; r++) {
        tokens[r] = length ? live->tokens[r * stride + length - 1] : bos_id;
        if (ids) tokens[r] = ids[tokens[r]];
        positions[r] = length;
        live->paths[r * stride + length] = (int32_t)(sightline_places(members->decodings[0]) + r);
    }
    for (int m = 0; m < members->count; m++) {
        Decoding *s = members->decodings[m];
        float *own = m ? others : *logits;
        if (sightline_step(s, rows, tokens, positions, live->sentences, live->paths, stride, hidden)) return -1;
        if (apply(members->outputs[m], hidden, rows, s->model->d_model, own, vocab, NONE, &s->scratch)) return -1;
        if (m) add(*logits, others, cells);
    }
    if (members->count > 1) divide(*logits, (float)members->count, cells);
    return 0;
}

int sightline_search(const Members *members, const int32_t *ids, const float *barred, const Options *options,
                     const Limits *limits, const Found *found) {
    const Decoding *s = members->decodings[0];
    const int greedy = options->beam_size == 1, ends = MAX(options->ends.count, 1);
    const int most = greedy ? 1 : (1 + ends) * options->beam_size; /* of which beam_size at least live on */
    const int vocab = members->outputs[0]->d_out;
    const int64_t stride = found->longest;
    Candidate *best = malloc(sizeof(Candidate) * most);
    Live old = {0}, new = {0};
    Buffer memory = {0};
    float *logits;
    int rows = s->sentences;
    const int widest = rows * options->beam_size;
    int failed = !best || allocate(&old, widest, stride) || allocate(&new, widest, stride);
    for (int64_t i = 0; i < (int64_t)rows * options->pool; i++) found->scores[i] = -INFINITY, found->lengths[i] = 0;
    for (int r = 0; !failed && r < rows; r++) old.sentences[r] = r, old.log_probs[r] = 0;
    for (int length = 0; !failed && rows; length++) {
        failed = predict(members, &old, rows, length, stride, options->bos_id, ids, &memory, &logits);
        int next_rows = 0;
        for (int r = 0; !failed && r < rows; failed = stopped(&s->scratch)) {
            const int sentence = old.sentences[r];
            const int32_t *prefix = limits->prefix + (int64_t)sentence * limits->prefix_length;
            const int forced = length < limits->prefix_length ? prefix[length] : -1;
            int count = 0;
            for (; r < rows && old.sentences[r] == sentence; r++) {
                float *row = logits + (int64_t)r * vocab;
                if (old.log_probs[r] == -INFINITY) continue;
                if (barred)
                    for (int v = 0; v < vocab; v++) row[v] += barred[(int64_t)sentence * vocab + v];
                count = continue_row(row, logits + (int64_t)rows * vocab, vocab, r, old.log_probs[r], length,
                                     forced, length >= limits->min_length[sentence], options, best, count, most);
            }
            next_rows += advance(&old, &new, next_rows, best, count, length + 1, limits, options, found);
        }
        Live former = old;
        old = new, new = former;
        rows = next_rows;
        if (rows) written(old.tokens, length + 1);
    }
    free(best), release(&old), release(&new), free(memory.bytes);
    return failed ? -1 : 0;
}
