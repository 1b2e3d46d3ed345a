/* What a build of the library yields, as one hash a line: products, activations, attention and its gradients, dropout,
   the softmax of a loss, whole searches. Inputs come from a generator of its own, so every processor must print the same.

       kernels LIBRARY */

#include "attention.h"
#include "search.h"

#ifdef _WIN32
/* windows.h has an INT8 of its own. */
__declspec(dllimport) void *LoadLibraryA(const char *name);
__declspec(dllimport) void *GetProcAddress(void *library, const char *name);
#define dlopen(name, how) LoadLibraryA(name)
#define dlsym(library, name) GetProcAddress(library, name)
#define dlerror() "it cannot be loaded"
#else
#include <dlfcn.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *opened;

static void *function(const char *name) {
    void *found = dlsym(opened, name);
    if (!found) fprintf(stderr, "%s is missing\n", name), exit(1);
    return found;
}

#define CALL(name) ((__typeof__(&name))function(#name))

/* --- Numbers in, hashes out --- */

static uint32_t state = 1;

static uint32_t drawn(void) { return (state = state * 1664525u + 1013904223u) >> 8; }

static float number(void) { return (float)drawn() / (1 << 23) - 1; }

static float *numbers(int64_t n, float size) {
    float *x = malloc(4 * (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = size * number();
    return x;
}

static uint64_t hashed(uint64_t hash, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static void show(const char *what, const void *bytes, size_t size) {
    printf("%s %016llx\n", what, (unsigned long long)hashed(0xcbf29ce484222325u, bytes, size));
}

static void show_floats(const char *what, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) fprintf(stderr, "%s: no number\n", what), exit(1);
    show(what, x, 4 * (size_t)n);
}

/* --- Products --- */

static const char *const NAMES[] = {"float32", "int8", "bfloat16", "int4"};

/* Memory for a layer, which is never given back. */
static void *zeros(int d_out, int d_in, Numbers kind) {
    const size_t size = (CALL(headwise_linear_size)(d_out, d_in, kind) + 63) / 64 * 64;
    return memset(aligned_alloc(64, size), 0, size);
}

static const Linear *layer_of(int d_out, int d_in, Numbers kind, int after_relu, int in_blocks) {
    float *weight = numbers((int64_t)d_out * d_in, 1 / sqrtf(d_in)), *bias = numbers(d_out, 1);
    const Linear *made =
        CALL(headwise_linear)(zeros(d_out, d_in, kind), weight, bias, d_out, d_in, kind, after_relu, in_blocks);
    free(weight), free(bias);
    return made;
}

static const Linear *layer(int d_out, int d_in, Numbers kind, int after_relu) {
    return layer_of(d_out, d_in, kind, after_relu, 0);
}

static void products(void) {
    static const int shapes[][2] = {{1, 8}, {17, 100}, {48, 64}, {203, 512}, {64, 36}};
    for (int s = 0; s < 5; s++)
        for (int i = 0; i < 6; i++) { /* the last two are int8 again, of what is never negative, and in blocks */
            const Numbers kind = i >= 4 ? INT8 : (Numbers)i;
            const int d_out = shapes[s][0], d_in = shapes[s][1];
            const Linear *linear = layer_of(d_out, d_in, kind, i == 4, i == 5);
            float *x = numbers(101 * d_in, 3), *y = malloc(4 * 101 * (size_t)d_out);
            for (int j = 0; i == 4 && j < 101 * d_in; j++) x[j] = fabsf(x[j]);
            for (int rows = 1; rows <= 101; rows += rows < 8 ? 1 : 31) {
                char what[64];
                sprintf(what, "%s%s %d rows %d to %d", NAMES[kind], i == 5 ? " in blocks" : "", rows, d_in, d_out);
                if (CALL(headwise_linear_forward)(linear, x, rows, y)) exit(1);
                show_floats(what, y, (int64_t)rows * d_out);
            }
            free(x), free(y);
        }
}

/* 1 + 2^-23 and a little less than half a unit of its last place: in double precision that little is lost, and float would
   then round up. */
static void rounded_once(void) {
    const float unit = 1 / 8388608.0f, weight[8] = {1 + unit, 1 - 1 / 32768.0f}, x[8] = {1, unit / 2 * (1 + 1 / 32768.0f)};
    const Linear *linear = CALL(headwise_linear)(zeros(1, 8, 0), weight, NULL, 1, 8, 0, 0, 0);
    float y;
    if (CALL(headwise_linear_forward)(linear, x, 1, &y) || y != 1 + unit) fprintf(stderr, "rounded twice: %a\n", y), exit(1);
}

static void activations(void) {
    for (int kind = RELU; kind <= SILU; kind++) {
        float *x = numbers(1003, 20);
        char what[32];
        sprintf(what, "activation %d", kind);
        CALL(headwise_activate)(kind, x, 1003);
        show_floats(what, x, 1003);
        free(x);
    }
}

/* --- Training --- */

typedef void Dropping(const void *, int, const float *, int64_t, int, float, int64_t, void *, int, int); /* training.c */
typedef int Softmax(void *, int, int64_t, int64_t, float *, int);

static void training(void) {
    static const int32_t queries[] = {0, 5, 6, 23, 55}, keys[] = {0, 9, 10, 27, 59};
    enum { HEADS = 2, D_K = 16, D_V = 24, ROWS = 59, WIDTH = HEADS * 24 };
    float *q = numbers(ROWS * WIDTH, 2), *k = numbers(ROWS * WIDTH, 2), *v = numbers(ROWS * WIDTH, 1);
    float *weights = calloc(HEADS * ROWS * 64, 4), *out = calloc(ROWS * WIDTH, 4), *by = numbers(ROWS * WIDTH, 1);
    float *gradients = calloc(3 * ROWS * WIDTH, 4);
    const Inputs in = {q, k, v, HEADS * D_K, HEADS * D_K, HEADS * D_V};
    const Inputs to = {gradients, gradients + ROWS * WIDTH, gradients + 2 * ROWS * WIDTH, WIDTH, WIDTH, WIDTH};
    for (int causal = 0; causal < 2; causal++) {
        const Packing packing = {queries, causal ? queries : keys, 4, causal, HEADS, D_K, D_V};
        if (CALL(headwise_attend)(&packing, &in, weights, out, 1)) exit(1);
        show_floats("attention", out, 55 * HEADS * D_V);
        if (CALL(headwise_attend_backward)(&packing, &in, weights, by, &to, 1)) exit(1);
        show_floats("attention's gradients", gradients, 3 * ROWS * WIDTH);
    }
    Dropping *drop = function("headwise_drop");
    Softmax *softmax = function("headwise_softmax");
    float *x = numbers(40001, 5), *dropped = malloc(4 * 40001), normalizers[40];
    drop(x, 0, NULL, 7, 6554, 1.25f, 40001, dropped, 0, 1);
    show_floats("dropout", dropped, 40001);
    drop(x, 0, x, 8, 6554, 1.25f, 40001, dropped, 0, 1);
    show_floats("dropout and residual", dropped, 40001);
    if (softmax(x, 0, 40, 1000, normalizers, 1)) exit(1);
    show_floats("softmax", x, 40000), show_floats("normalizers", normalizers, 40);
}

static uint16_t *halves(const float *x, int64_t n) {
    uint16_t *y = malloc(2 * (size_t)n);
    convert(x, 0, n, y, 1);
    return y;
}

/* The same in bfloat16. */
static void training_in_halves(void) {
    static const int32_t queries[] = {0, 5, 6, 23, 55}, keys[] = {0, 9, 10, 27, 59};
    enum { HEADS = 2, D_K = 16, D_V = 24, ROWS = 59, WIDTH = HEADS * D_V, N = 40001 };
    uint16_t *q = halves(numbers(ROWS * WIDTH, 2), ROWS * WIDTH), *k = halves(numbers(ROWS * WIDTH, 2), ROWS * WIDTH);
    uint16_t *v = halves(numbers(ROWS * WIDTH, 1), ROWS * WIDTH), *by = halves(numbers(ROWS * WIDTH, 1), ROWS * WIDTH);
    float *weights = calloc(HEADS * ROWS * 64, 4), *x = numbers(N, 5), *out = malloc(4 * N), normalizers[40];
    uint16_t *y = calloc(3 * ROWS * WIDTH, 2), *z = malloc(2 * N), *halved = halves(x, N);
    const Inputs in = {q, k, v, HEADS * D_K, HEADS * D_K, HEADS * D_V};
    const Inputs to = {y, y + ROWS * WIDTH, y + 2 * ROWS * WIDTH, WIDTH, WIDTH, WIDTH};
    const Packing packing = {queries, keys, 4, 0, HEADS, D_K, D_V, 1};
    if (CALL(headwise_attend)(&packing, &in, weights, z, 1)) exit(1);
    show("attention in bfloat16", z, 2 * 55 * WIDTH);
    if (CALL(headwise_attend_backward)(&packing, &in, weights, by, &to, 1)) exit(1);
    show("attention's gradients in bfloat16", y, 2 * 3 * ROWS * WIDTH);
    Dropping *drop = function("headwise_drop");
    Softmax *softmax = function("headwise_softmax");
    drop(halved, 1, x, 8, 6554, 1.25f, N, out, 0, 1);
    show_floats("dropout of bfloat16 and residual", out, N);
    drop(x, 0, NULL, 7, 6554, 1.25f, N, z, 1, 1);
    show("dropout to bfloat16", z, 2 * N);
    if (softmax(halved, 1, 40, 999, normalizers, 1)) exit(1);
    show("softmax in bfloat16", halved, 2 * 40 * 999), show_floats("normalizers", normalizers, 40);
}

/* --- Searches --- */

enum { D = 64, D_FF = 100, HEADS = 4, VOCABULARY = 203, SENTENCES = 7, LONGEST = 30 };

static Norm norm(int rms) {
    float *weight = numbers(D, 0.3f);
    for (int i = 0; i < D; i++) weight[i] += 1;
    return (Norm){weight, rms ? NULL : numbers(D, 0.3f), 1e-5f};
}

static Layer *layers(Numbers kind, Activation activation, int rms) {
    Layer *made = calloc(2, sizeof(Layer));
    for (int l = 0; l < 2; l++) {
        const Attention self = {
            .heads = HEADS, .kv_heads = HEADS, .d_k = 16, .d_v = 16, .in = layer(3 * D, D, kind, 0),
            .out = layer(D, D, kind, 0), .norm = norm(rms), .scale = 0.3f,
        };
        const Attention cross = {
            .heads = HEADS, .kv_heads = HEADS, .d_k = 16, .d_v = 16, .in = layer(D, D, kind, 0),
            .memory = layer(2 * D, D, kind, 0), .out = layer(D, D, kind, 0), .norm = norm(rms), .scale = 0.3f,
        };
        const int gated = activation == SILU;
        const Linear *up = layer((1 + gated) * D_FF, D, kind, 0), *down = layer(D, D_FF, kind, activation == RELU);
        made[l] = (Layer){self, cross, {up, down, norm(rms), activation}};
    }
    return made;
}

static Transformer transformer(Numbers kind, Activation activation, int norm_first, int d_model) {
    const float *positions = numbers(64 * D, 0.5f), *rows = numbers(VOCABULARY * D, 1);
    uint16_t *halves = malloc(2 * VOCABULARY * D);
    CALL(headwise_to_bfloat16)(rows, VOCABULARY * D, halves);
    const int half = kind == BFLOAT16;
    const Embeddings embeddings = {half ? (void *)halves : rows, positions, norm_first ? (Norm){0} : norm(0), 2, -1, half};
    Transformer t = {
        .d_model = d_model, .norm_first = norm_first, .n_encoder_layers = 2, .n_decoder_layers = 2,
        .source = embeddings, .target = embeddings,
    };
    t.encoder = layers(kind, activation, norm_first), t.decoder = layers(kind, activation, norm_first);
    if (norm_first) t.encoder_norm = norm(1), t.decoder_norm = norm(1);
    t.output = layer(VOCABULARY, d_model, kind, 0);
    return t;
}

/* A decoder alone with two heads of keys and values, which are normalised and turned, and a window in its second layer. */
static Transformer decoder_alone(Numbers kind, int d_model) {
    enum { KEYS = HEADS / 2 * 16, WIDTH = D + 2 * KEYS };
    Transformer t = transformer(kind, SILU, 1, d_model);
    Layer *made = (Layer *)t.decoder;
    for (int l = 0; l < 2; l++) {
        Attention *a = &made[l].self;
        a->kv_heads = HEADS / 2, a->in = layer(WIDTH, D, kind, 0), a->window = 5 * l;
        a->q_norm = norm(1), a->k_norm = norm(1), a->norm_width = 16;
        made[l].cross = (Attention){0};
    }
    t.n_encoder_layers = 0, t.target.positions = NULL;
    t.rotary = (Rotary){numbers(64 * 16, 1), 8};
    return t;
}

/* Whether sources are vectors, as of sounds. */
static int is_speech(const Transformer *t) { return t->n_encoder_layers && !t->source.rows; }

/* Encodes vectors and reads prompts of one to three tokens; prints the states after them. */
static Decoding *listening(const Transformer *t, const int32_t *tokens, const int32_t *lengths, int count) {
    static const int32_t prompts[SENTENCES] = {3, 1, 2, 2, 1, 3, 1};
    float *vectors = numbers(count * t->d_model, 1), *hidden = malloc(4 * (size_t)13 * t->d_model);
    Decoding *made = CALL(headwise_start_vectors)(t, vectors, lengths, SENTENCES, NULL);
    if (!made || CALL(headwise_read_more_prompts)(made, tokens, prompts, hidden)) exit(1);
    show_floats("prompts", hidden, 13 * (int64_t)t->d_model);
    free(hidden);
    return made;
}

/* Reads sources or prompts; prints the states of all tokens of prompts, and log-probabilities of some. */
static Decoding *started(const Transformer *t, const int32_t *tokens, const int32_t *lengths, int count) {
    if (is_speech(t)) return listening(t, tokens, lengths, count);
    if (t->n_encoder_layers) return CALL(headwise_start)(t, tokens, lengths, SENTENCES, NULL);
    float *hidden = malloc(4 * (size_t)count * t->d_model), log_probs[64];
    Decoding *made = CALL(headwise_read_prompts)(t, tokens, lengths, SENTENCES, hidden, NULL);
    if (!made || CALL(headwise_log_probs)(t->output, hidden, tokens, count, log_probs, NULL)) exit(1);
    show_floats("prompts", hidden, (int64_t)count * t->d_model), show_floats("log-probabilities", log_probs, count);
    free(hidden);
    return made;
}

/* `samples`: how many outputs are drawn of each sentence; 0: none, they are searched for. */
static void search(const Transformer *t, int beam_size, int samples, const char *what) {
    static const int64_t streams[1 + SENTENCES] = {-4, 1, -5, 1LL << 60, 3, 3, 99, 7};
    static const int32_t lengths[SENTENCES] = {5, 1, 12, 9, 3, 20, 2}, ends[] = {2};
    int32_t pieces[52], min_length[SENTENCES], max_length[SENTENCES];
    for (int i = 0; i < 52; i++) pieces[i] = 3 + (int32_t)(drawn() % (VOCABULARY - 3));
    for (int i = 0; i < SENTENCES; i++) min_length[i] = 2, max_length[i] = LONGEST - i;
    const Options options = {
        .beam_size = beam_size, .pool = beam_size, .bos_id = 1, .copies = samples ? samples : 1, .ends = {ends, 1},
        .early_stopping = STOP_EXACT, .length_penalty = 0.6f, .no_repeat_ngram = samples % 3, .top_k = 40 * (samples > 1),
        .temperature = 1.3f, .top_p = samples > 2 ? 0.8f : 1, .among_allowed = is_speech(t),
        .first_timestamp = is_speech(t) ? VOCABULARY - 60 : 0, .no_timestamps = 5, .latest_first = 20,
    };
    const Limits limits = {min_length, max_length, NULL, samples ? streams : NULL, 0};
    const int n = SENTENCES * beam_size * options.copies;
    int32_t *tokens = calloc(n * LONGEST, 4), *found_lengths = calloc(n, 4);
    float *each = calloc(n * LONGEST, 4), *log_probs = calloc(n, 4), *scores = calloc(n, 4);
    const Found found = {tokens, found_lengths, each, log_probs, scores, LONGEST};
    Decoding *decoding = started(t, pieces, lengths, 52);
    const Members members = {&decoding, &t->output, 1};
    if (!decoding || CALL(headwise_search)(&members, NULL, NULL, &options, &limits, &found)) exit(1);
    show(what, tokens, 4 * (size_t)n * LONGEST);
    show_floats(what, each, (int64_t)n * LONGEST), show_floats(what, scores, n);
    CALL(headwise_end)(decoding);
    free(tokens), free(found_lengths), free(each), free(log_probs), free(scores);
}

static void searches(void) {
    static const Activation kinds[] = {RELU, GELU, SILU};
    for (int i = 0; i < 24; i++) { /* rows of whole registers, and of 3 fewer */
        const Numbers weights = (Numbers)(i % 4);
        const int norm_first = i % 12 >= 8;
        const Activation kind = kinds[i % 12 / 4];
        const Transformer t = transformer(weights, kind, norm_first, i < 12 ? D : D - 3);
        for (int beam_size = 1; beam_size <= 4; beam_size += 3) {
            char what[64];
            sprintf(what, "search %s d_model %d activation %d beam %d", NAMES[weights], t.d_model, kind, beam_size);
            search(&t, beam_size, 0, what);
        }
        for (int samples = 1; samples <= 3; samples++) search(&t, 1, samples, "drawn");
    }
    for (int i = 0; i < 6; i++) {
        const Transformer t = decoder_alone((Numbers)(i % 3), i < 3 ? D : D - 3);
        search(&t, 1, 0, "decoder alone"), search(&t, 4, 0, "decoder alone, beam 4"), search(&t, 1, 2, "drawn");
    }
    for (int i = 0; i < 6; i++) {
        Transformer t = transformer((Numbers)(i % 3), GELU, 1, i < 3 ? D : D - 3);
        t.source.rows = NULL;
        search(&t, 1, 0, "speech"), search(&t, 4, 0, "speech, beam 4"), search(&t, 1, 2, "speech, drawn");
    }
}

/* Encoders with token types, a projection of their embeddings, padding that is no position, and relative positions. */
static void encoders(void) {
    static const int32_t lengths[SENTENCES] = {5, 1, 12, 9, 3, 20, 2};
    int32_t tokens[52], types[52];
    for (int i = 0; i < 52; i++) tokens[i] = (int32_t)(drawn() % VOCABULARY), types[i] = i % 2;
    tokens[7] = 3;
    for (int i = 0; i < 6; i++) {
        const Numbers weights = (Numbers)(i % 3);
        Transformer t = transformer(weights, GELU, i >= 3, i < 3 ? D : D - 3);
        const Relative relative = {numbers(HEADS * 127, 1), 64};
        t.n_decoder_layers = 0, t.source.padding = 3, t.source.positions += D, t.source.types = numbers(2 * D, 1);
        float *hidden = calloc(52 * D, 4);
        for (int more = 0; more < 3; more++) {
            if (more == 1) t.relative = &relative;
            if (more == 2) t.source.width = 48, t.source.project = layer(D, 48, weights, 0);
            if (CALL(headwise_encode)(&t, tokens, more ? types : NULL, lengths, SENTENCES, NULL, hidden)) exit(1);
            show_floats("encoder", hidden, 52 * t.d_model);
        }
        free(hidden);
    }
}

int main(int count, char **arguments) {
    opened = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!opened) return fprintf(stderr, "usage: kernels LIBRARY: %s\n", count == 2 ? dlerror() : ""), 2;
#if defined(__linux__) && defined(__x86_64__)
    syscall(SYS_arch_prctl, 0x1023, 18); /* Linux lets a process use the tiles of AMX only when it has asked */
#endif
    products(), rounded_once(), activations(), training(), training_in_halves(), searches(), encoders();
    return 0;
}
