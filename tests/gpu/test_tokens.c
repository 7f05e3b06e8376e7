/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tokens.c: models walked token by token by kernels of kind "cuda", on the emulator: logits near those of the
 * CPU; the same bits however the tokens are cut and whatever is walked beside them, so that the cache changes no text;
 * and the hashes that a card must give, which expected/tokens.txt keeps.
 *
 * test_tokens [--accept] [--cuda] FILE: as of test_ops.
 */
#include <stdio.h>

#include <xxhash.h>

#include "base/yaml.h"
#include "generate/pick.h"
#include "gpu/emulator.h"
#include "nn/token_graph.h"
#include "unit/nn/nn_rig.h"

#define WORDS     21
#define LENGTH    37 /* more than one panel of the cache */
#define SEQUENCES 2
#define PROMPT    33

typedef struct model_case {
    const char *name, *text;
} model_case;

static const model_case models[] = {
    {"gpt2", "{name: gpt2, n_layer: 1, n_head: 2, n_embd: 12, n_positions: 37}"},
    {"llama",
     "{name: llama, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 10, "
     "hidden_size: 16, intermediate_size: 24, rope_theta: 100, attention_bias: true, tie_word_embeddings: true}"},
    {"llama_wide", "{name: llama, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 128, "
                   "hidden_size: 8, intermediate_size: 8, rope_scaling: {rope_type: llama3, factor: 4, "
                   "low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 16}}"},
};

static const char *expected_path;
static bool accepts;
static tri_gpu_queue queue;
static tri_device emulated;
static const tri_device *device = &emulated;

static tri_model *build(const char *text, int64_t length)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    tri_model *model;
    OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
    OK(tri_model_build(root, tri_shape_make(1, &length), WORDS, &model));
    tri_arena_fini(&arena);
    return model;
}

/* Weights are a function of name and place. */
static tri_status weights_read(void *arg, const char *name, int64_t first, int64_t count, float *out)
{
    const uint64_t stream = XXH3_64bits(name, strlen(name));
    const float mean = strstr(name, "norm") || strstr(name, "ln_") ? 1.0f : 0.0f;
    (void)arg;
    for (int64_t i = 0; i < count; i++)
        out[i] = mean + 0.5f * tri_rng_normal((tri_rng){5, stream}, (uint64_t)(first + i));
    return TRI_OK;
}

static tri_token_graph *graph_on(const tri_device *on, const char *text, tri_dtype dtype)
{
    tri_model *model = build(text, LENGTH);
    const tri_token_graph_config config = {
        .device = on, .dtype = dtype, .threads = 1, .sequences = SEQUENCES, .places = LENGTH};
    tri_token_graph *graph;
    OK(tri_token_graph_compile(model, &config, &graph));
    tri_model_destroy(model);
    OK(tri_token_graph_load(graph, &(tri_weights_source){weights_read, NULL}));
    return graph;
}

static void tokens_make(int sequence, int32_t tokens[LENGTH])
{
    for (int i = 0; i < LENGTH; i++)
        tokens[i] = (int32_t)tri_rng_below((tri_rng){7, 1}, (uint64_t)(sequence * LENGTH + i), WORDS);
}

static void expect_near(const char *name, const float *found, const float *wanted, double near)
{
    for (int w = 0; w < WORDS; w++)
        if (!(fabs((double)found[w] - (double)wanted[w]) <= near * (1 + fabs((double)wanted[w]))))
            fail_msg("%s: word %d: want %.9g, got %.9g", name, w, (double)wanted[w], (double)found[w]);
}

/* Prompts of different lengths, then tokens; each sequence also alone, from its begin, cut elsewhere. */
static void logits_are_near_the_cpu_and_depend_on_what_is_before_alone(void **state)
{
    (void)state;
    for (size_t m = 0; m <= TRI_COUNT_OF(models); m++) {
        const model_case *model = &models[m % TRI_COUNT_OF(models)];
        const tri_dtype dtype = m % 2 == 0 ? TRI_F32 : TRI_BF16;
        tri_token_graph *together = graph_on(device, model->text, dtype), *alone = graph_on(device, model->text, dtype);
        tri_token_graph *cpu = graph_on(NULL, model->text, dtype);
        int64_t place[SEQUENCES] = {0};
        for (int step = 0; step < 2; step++) {
            tri_token_span spans[SEQUENCES];
            int32_t tokens[SEQUENCES][LENGTH];
            const float *logits, *wanted, *single;
            for (int s = 0; s < SEQUENCES; s++) {
                tokens_make(s, tokens[s]);
                spans[s] = (tri_token_span){SEQUENCES - 1 - s, place[s], step == 0 ? 1 + 32 * s : 1, tokens[s]};
                spans[s].tokens += place[s];
                place[s] += spans[s].count;
            }
            OK(tri_token_graph_run(together, spans, SEQUENCES, &logits));
            OK(tri_token_graph_run(cpu, spans, SEQUENCES, &wanted));
            for (int s = 0; s < SEQUENCES; s++) {
                expect_near(model->name, logits + s * WORDS, wanted + s * WORDS, dtype == TRI_F32 ? 2e-4 : 0.1);
                tri_token_span begin = {0, 0, place[s] / 3, tokens[s]};
                tri_token_span end = {0, begin.count, place[s] - begin.count, tokens[s] + begin.count};
                if (begin.count > 0)
                    OK(tri_token_graph_run(alone, &begin, 1, &single));
                OK(tri_token_graph_run(alone, &end, 1, &single));
                assert_memory_equal(single, logits + s * WORDS, WORDS * sizeof(float));
            }
        }
        tri_token_graph_destroy(together);
        tri_token_graph_destroy(alone);
        tri_token_graph_destroy(cpu);
    }
}

typedef struct writer {
    tri_token_graph *graph;
    tri_picker *picker;
    bool cached; /* else all tokens are walked again for each new one */
    double temperature;
} writer;

/* Texts of `count` sequences side by side; returns the hash of the last logits of all. */
static uint64_t write_texts(const writer *w, int count, int32_t tokens[SEQUENCES][LENGTH])
{
    uint64_t hash = 0;
    for (int64_t known = PROMPT; known < LENGTH; known++) {
        tri_token_span spans[SEQUENCES];
        const float *logits;
        const int64_t place = w->cached && known > PROMPT ? known - 1 : 0;
        for (int s = 0; s < count; s++)
            spans[s] = (tri_token_span){s, place, known - place, tokens[s] + place};
        OK(tri_token_graph_run(w->graph, spans, count, &logits));
        hash = XXH3_64bits_withSeed(logits, (size_t)count * WORDS * sizeof(float), hash);
        for (int s = 0; s < count; s++) {
            const tri_pick_rule rule = {
                .temperature = w->temperature, .top_p = 1, .repeat = 1, .seed = (uint64_t)s + 1};
            float own[WORDS];
            memcpy(own, logits + s * WORDS, sizeof(own));
            tokens[s][known] = tri_pick(w->picker, own, WORDS, &rule, tokens[s], known);
        }
    }
    return hash;
}

/* Weights of the store are those that the token graph reads. */
static void params_fill(const tri_params *params)
{
    tri_device_view view;
    OK(tri_device_view_open(&view, device, params->values, (size_t)params->count * sizeof(float)));
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        OK(weights_read(NULL, entry->name, 0, entry->count, (float *)view.host + entry->first));
    }
    tri_device_view_write(&view);
    tri_device_view_close(&view);
}

/* Each token of a greedy text is the likeliest one by the forward pass of training too. */
static void expect_full_pass(const model_case *of, const int32_t tokens[LENGTH])
{
    tri_model *model = build(of->text, LENGTH);
    tri_params *params;
    tri_graph *graph;
    tri_device_view last;
    const float(*sums)[4];
    const int32_t rows[] = {1};
    const int64_t first[] = {0};
    const char *head = strstr(of->text, "tie_word_embeddings: true") ? "model.embed_tokens.weight"
                       : strcmp(of->name, "gpt2") == 0               ? "wte.weight"
                                                                     : "lm_head.weight";
    OK(tri_params_create(model, device, 1, &params));
    params_fill(params);
    const tri_graph_config config = {.kind = "cuda", .rows = 1, .shards = 1, .threads = 1};
    OK(tri_graph_compile(model, params, &config, &graph));
    const tri_batch batch = {.shards = 1, .rows = rows, .first_sample = first, .input = tokens, .target = tokens};
    OK(tri_graph_forward(graph, &batch, 0, false, &sums));
    const int64_t width = tri_params_find(params, head)->shape.dim[1];
    float *words = calloc((size_t)(WORDS * width), sizeof(float));
    OK(weights_read(NULL, head, 0, WORDS * width, words));
    OK(tri_device_view_open(&last, device, (void *)(uintptr_t)tri_graph_logits(graph),
                            (size_t)(LENGTH * width) * sizeof(float)));
    for (int64_t t = PROMPT; t < LENGTH; t++) {
        int best = 0;
        double logits[WORDS] = {0};
        for (int v = 0; v < WORDS; v++) {
            for (int64_t c = 0; c < width; c++)
                logits[v] += (double)((const float *)last.host)[(t - 1) * width + c] * (double)words[v * width + c];
            best = logits[v] > logits[best] ? v : best;
        }
        assert_int_equal(tokens[t], best);
    }
    tri_device_view_close(&last);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
    tri_model_destroy(model);
    free(words);
}

static void texts_begin(int32_t tokens[SEQUENCES][LENGTH])
{
    for (int s = 0; s < SEQUENCES; s++)
        tokens_make(s, tokens[s]);
}

/* Greedy and drawn; cached and not; one at a time and side by side: the same tokens, and the file has their hash. */
static void the_cache_and_the_batch_change_no_text(void **state)
{
    (void)state;
    FILE *file = fopen(expected_path, accepts ? "w" : "r");
    if (!file)
        fail_msg("cannot open %s", expected_path);
    for (size_t m = 0; m < 4 * TRI_COUNT_OF(models); m++) {
        const model_case *model = &models[m / 4];
        const tri_dtype dtype = m / 2 % 2 == 0 ? TRI_F32 : TRI_BF16;
        writer w = {.cached = true, .temperature = m % 2 == 0 ? 0 : 4};
        int32_t texts[SEQUENCES][LENGTH], others[SEQUENCES][LENGTH];
        char line[256], wanted[256] = "";
        OK(tri_picker_create(WORDS, &w.picker));
        w.graph = graph_on(device, model->text, dtype);
        texts_begin(texts);
        const uint64_t hash = write_texts(&w, SEQUENCES, texts);
        int at = snprintf(line, sizeof(line), "%s %s %s %016llx:", model->name, dtype == TRI_F32 ? "f32" : "bf16",
                          w.temperature > 0 ? "drawn" : "greedy", (unsigned long long)hash);
        for (int i = PROMPT; i < LENGTH; i++)
            at += snprintf(line + at, sizeof(line) - (size_t)at, " %d", texts[0][i]);
        strcat(line, "\n");
        if (accepts) {
            fputs(line, file);
            fflush(file); /* what follows may fail */
        } else if (!fgets(wanted, sizeof(wanted), file) || strcmp(line, wanted) != 0)
            fail_msg("want the line %s got %s (test_tokens --accept FILE writes all again)", wanted, line);
        texts_begin(others);
        const uint64_t alone = write_texts(&w, 1, others);
        assert_memory_equal(others[0], texts[0], sizeof(texts[0]));
        if (w.temperature > 0) {
            texts_begin(others);
            w.cached = false;
            assert_true(write_texts(&w, 1, others) == alone);
        }
        for (int s = 0; m % 4 == 0 && s < SEQUENCES; s++)
            expect_full_pass(model, texts[s]);
        tri_token_graph_destroy(w.graph);
        tri_picker_destroy(w.picker);
    }
    fclose(file);
}

static void wide_heads_are_refused_by_name(void **state)
{
    tri_model *model = build("{name: gpt2, n_layer: 1, n_head: 1, n_embd: 129}", 8);
    const tri_token_graph_config config = {
        .device = device, .dtype = TRI_F32, .threads = 1, .sequences = 1, .places = 8};
    tri_token_graph *graph;
    (void)state;
    assert_int_equal(tri_token_graph_compile(model, &config, &graph), TRI_EUNSUPPORTED);
    assert_non_null(strstr(tri_last_error(), "attention: want heads of at most 128 elements on a GPU, got 129"));
    tri_model_destroy(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_near_the_cpu_and_depend_on_what_is_before_alone),
        cmocka_unit_test(the_cache_and_the_batch_change_no_text),
        cmocka_unit_test(wide_heads_are_refused_by_name),
    };
    tri_device *card = NULL;
    bool cuda = false;
    for (int i = 1; i + 1 < argc; i++) {
        accepts = accepts || strcmp(argv[i], "--accept") == 0;
        cuda = cuda || strcmp(argv[i], "--cuda") == 0;
    }
    expected_path = argc > 1 ? argv[argc - 1] : NULL;
    queue = tri_emulator_queue();
    emulated = tri_emulator_device(&queue);
    if (cuda) {
        if (tri_device_open("cuda", &card) != TRI_OK) {
            fprintf(stderr, "error: %s\n", tri_last_error());
            return 2;
        }
        device = card;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_device_close(card);
    return failed;
}
