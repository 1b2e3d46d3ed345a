/* Prompts, many positions at once; and the log-probabilities of given tokens. See transformer.h. */

#include "layers.h"

#include "attention.h"

#include <string.h>

#define PROMPT_BATCH 512 /* positions computed at once: the memory of activations */
#define LOGIT_ROWS 48    /* rows whose logits are computed at once */

/* The sentence and position of each of `rows` tokens; the first one is token `at` of sentence `sentence`. */
static void number_positions(const Decoding *s, int sentence, int at, int rows, int32_t *positions, int32_t *sentences) {
    for (int r = 0; r < rows; r++) {
        sentences[r] = sentence;
        positions[r] = at;
        if (++at == s->prompt_lengths[sentence]) {
            sentence++;
            at = 0;
        }
    }
}

/* Reads all prompts; `some` has room for the states of a batch of rows. */
static int read_prompts(Decoding *s, const int32_t *tokens, float *hidden, float *some, int32_t *positions) {
    const int d = s->model->d_model;
    int32_t *sentences = positions + PROMPT_BATCH;
    int sentence = 0, at = 0;
    while (s->n_slots < s->n_prompt_slots) {
        const int64_t first = s->n_slots;
        const int rows = (int)MIN(PROMPT_BATCH, s->n_prompt_slots - first);
        float *states = hidden ? hidden + first * d : some;
        number_positions(s, sentence, at, rows, positions, sentences);
        TRY(headwise_step(s, rows, tokens + first, positions, sentences, NULL, 0, states));
        for (int r = 0; r < rows; r++)
            if (positions[r] + 1 == s->prompt_lengths[sentences[r]])
                memcpy(s->prompt_states + (int64_t)sentences[r] * d, states + (int64_t)r * d, 4 * (size_t)d);
        sentence = sentences[rows - 1];
        at = positions[rows - 1] + 1;
        if (at == s->prompt_lengths[sentence]) {
            sentence++;
            at = 0;
        }
    }
    return 0;
}

/* Memory for what is known of prompts, which have no slots yet. */
static int prepare_prompts(Decoding *s, const int32_t *lengths) {
    s->n_slots = s->n_prompt_slots = 0;
    if (!s->prompt_states) {
        s->prompt_lengths = malloc(sizeof(int) * (size_t)s->sentences);
        s->prompt_offsets = malloc(sizeof(int64_t) * (size_t)s->sentences);
        s->prompt_states = malloc(4 * (size_t)s->sentences * s->model->d_model);
    }
    if (!s->prompt_lengths || !s->prompt_offsets || !s->prompt_states) return OUT_OF_MEMORY;
    int64_t slots = 0;
    for (int i = 0; i < s->sentences; i++) {
        s->prompt_lengths[i] = lengths[i];
        s->prompt_offsets[i] = slots;
        slots += lengths[i];
    }
    if (slots > s->capacity) TRY(grow_cache(s, slots));
    s->n_prompt_slots = slots;
    return 0;
}

int headwise_read_more_prompts(Decoding *s, const int32_t *tokens, const int32_t *lengths, float *hidden) {
    float *some = hidden ? NULL : malloc(4 * (size_t)PROMPT_BATCH * s->model->d_model);
    int32_t *positions = malloc(8 * (size_t)PROMPT_BATCH);
    int failed = (hidden || some) && positions ? prepare_prompts(s, lengths) : OUT_OF_MEMORY;
    if (!failed) failed = read_prompts(s, tokens, hidden, some, positions);
    free(some);
    free(positions);
    return failed;
}

Decoding *headwise_read_prompts(const Transformer *model, const int32_t *tokens, const int32_t *lengths, int sentences,
                                float *hidden, const atomic_int *stop) {
    Decoding *s = new_decoding(model, lengths, sentences, stop);
    if (s && !headwise_read_more_prompts(s, tokens, lengths, hidden)) return s;
    headwise_end(s);
    return NULL;
}

int headwise_log_probs(const Linear *output, const float *hidden, const int32_t *tokens, int rows, float *log_probs,
                       const atomic_int *stop) {
    Scratch scratch = {.stop = stop};
    const int d = output->d_in, vocab = output->d_out;
    float *logits = malloc(4 * (size_t)LOGIT_ROWS * vocab);
    int failed = logits ? 0 : OUT_OF_MEMORY;
    for (int first = 0; !failed && first < rows; first += LOGIT_ROWS) {
        const int count = MIN(LOGIT_ROWS, rows - first);
        failed = linear_forward(output, hidden + (int64_t)first * d, count, d, logits, vocab, NONE, &scratch);
        for (int r = 0; !failed && r < count; r++) {
            const float *row = logits + (int64_t)r * vocab, largest = maximum(row, vocab);
            log_probs[first + r] = row[tokens[first + r]] - largest - logarithm(exponential_sum(row, vocab, largest));
        }
    }
    free(logits);
    release(&scratch.quantised);
    return failed;
}
