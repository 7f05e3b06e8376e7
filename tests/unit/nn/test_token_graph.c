/* SPDX-License-Identifier: Apache-2.0
 *
 * test_token_graph.c: a model walked token by token gives the logits of the graph of training, however its tokens are
 * cut and whatever is walked beside them.
 */
#include <stdio.h>

#include "base/yaml.h"
#include "nn/token_graph.h"
#include "unit/nn/nn_rig.h"

#define WORDS    37
#define LENGTH   300
#define SEQUENCE 4

static const char *const models[] = {
    "{name: gpt2, n_layer: 2, n_head: 3, n_embd: 24, n_positions: 300, resid_pdrop: 0.1, embd_pdrop: 0.1}",
    "{name: gpt2, n_layer: 1, n_head: 1, n_embd: 33, activation_function: relu, tie_word_embeddings: false}",
    "{name: llama, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 10, hidden_size: "
    "20, "
    "rope_theta: 100, attention_bias: true, tie_word_embeddings: true}",
    "{name: llama, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 1, hidden_size: 64, "
    "rope_scaling: {rope_type: llama3, factor: 4, low_freq_factor: 1, high_freq_factor: 4, "
    "original_max_position_embeddings: 16}}",
};

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

typedef struct bench {
    tri_params *params;
    int32_t tokens[SEQUENCE][LENGTH];
    float *wanted; /* [SEQUENCE][LENGTH][WORDS] */
} bench;

static tri_status params_read(void *arg, const char *name, int64_t first, int64_t count, float *out)
{
    const bench *b = arg;
    const tri_param *entry = tri_params_find(b->params, name);
    assert_non_null(entry);
    assert_in_range(first + count, 1, entry->count);
    memcpy(out, b->params->values + entry->first + first, (size_t)count * sizeof(float));
    return TRI_OK;
}

/* Logits by the graph of training. */
static void wanted_make(bench *b, const char *text)
{
    tri_model *model = build(text, LENGTH);
    tri_graph *graph;
    const float(*sums)[4];
    int32_t rows[] = {SEQUENCE};
    int64_t first[] = {0};
    OK(tri_params_create(model, tri_device_host(), 3, &b->params));
    for (int64_t i = 0; i < b->params->count; i++) /* also biases and norms are something */
        b->params->values[i] += 0.1f * tri_rng_normal((tri_rng){1, 2}, (uint64_t)i);
    for (int i = 0; i < SEQUENCE * LENGTH; i++)
        b->tokens[i / LENGTH][i % LENGTH] = (int32_t)tri_rng_below((tri_rng){7, 1}, (uint64_t)i, WORDS);
    tri_graph_config config = {.kind = "cpu", .rows = SEQUENCE, .shards = 1, .threads = 2};
    OK(tri_graph_compile(model, b->params, &config, &graph));
    tri_batch batch = {.shards = 1, .rows = rows, .first_sample = first, .input = b->tokens, .target = b->tokens};
    OK(tri_graph_forward(graph, &batch, 0, false, &sums));
    const float *last = tri_graph_logits(graph);
    const tri_param *head = tri_params_find(b->params, "lm_head.weight");
    if (!head)
        head = tri_params_find(b->params, strstr(text, "gpt2") ? "wte.weight" : "model.embed_tokens.weight");
    const int64_t width = head->shape.dim[1];
    b->wanted = calloc(SEQUENCE * LENGTH * WORDS, sizeof(float));
    for (int64_t r = 0; r < SEQUENCE * LENGTH; r++)
        for (int64_t w = 0; w < WORDS; w++) {
            double sum = 0;
            for (int64_t c = 0; c < width; c++)
                sum += (double)last[r * width + c] * (double)b->params->values[head->first + w * width + c];
            b->wanted[r * WORDS + w] = (float)sum;
        }
    tri_graph_destroy(graph);
    tri_model_destroy(model);
}

static tri_token_graph *token_graph_on(const tri_device *device, bench *b, const char *text, tri_dtype dtype,
                                       int threads)
{
    tri_model *model = build(text, LENGTH);
    tri_token_graph_config config = {
        .device = device, .dtype = dtype, .threads = threads, .sequences = SEQUENCE, .places = LENGTH};
    tri_token_graph *graph;
    OK(tri_token_graph_compile(model, &config, &graph));
    tri_model_destroy(model);
    OK(tri_token_graph_load(graph, &(tri_weights_source){params_read, b}));
    assert_int_equal(tri_token_graph_words(graph), WORDS);
    return graph;
}

static tri_token_graph *token_graph(bench *b, const char *text, tri_dtype dtype, int threads)
{
    return token_graph_on(NULL, b, text, dtype, threads);
}

static void bench_close(bench *b)
{
    tri_params_destroy(b->params);
    free(b->wanted);
}

/* The logits after token `place` of the sequence. */
static double distance(const bench *b, int sequence, int64_t place, const float *found)
{
    double worst = 0;
    const float *wanted = b->wanted + (sequence * LENGTH + place) * WORDS;
    for (int w = 0; w < WORDS; w++)
        worst = fmax(worst, fabs((double)found[w] - (double)wanted[w]) / (1 + fabs((double)wanted[w])));
    return worst;
}

static void one_token_at_a_time_has_the_logits_of_training(void **state)
{
    (void)state;
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++) {
        bench b;
        wanted_make(&b, models[m]);
        tri_token_graph *graph = token_graph(&b, models[m], TRI_F32, 2);
        for (int64_t place = 0; place < LENGTH; place++) {
            const float *logits;
            tri_token_span span = {1, place, 1, b.tokens[2] + place};
            OK(tri_token_graph_run(graph, &span, 1, &logits));
            if (distance(&b, 2, place, logits) > 1e-4)
                fail_msg("model %zu: place %lld is off by %g", m, (long long)place, distance(&b, 2, place, logits));
        }
        tri_token_graph_destroy(graph);
        bench_close(&b);
    }
}

/* Prompts of different lengths at once, then a token each, a sequence that ends and one that begins among them. */
static void sequences_side_by_side_do_not_change_each_other(void **state)
{
    (void)state;
    static const int64_t prompt[SEQUENCE] = {1, 290, 33, 7};
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++) {
        for (int half = 0; half < 2; half++) {
            bench b;
            wanted_make(&b, models[m]);
            tri_token_graph *together = token_graph(&b, models[m], half ? TRI_BF16 : TRI_F32, 2);
            tri_token_graph *alone = token_graph(&b, models[m], half ? TRI_BF16 : TRI_F32, 1);
            const double near = half ? 0.15 : 1e-4;
            int64_t place[SEQUENCE] = {0};
            for (int step = 0; step < 6; step++) {
                tri_token_span spans[SEQUENCE];
                const float *logits, *single;
                for (int s = 0; s < SEQUENCE; s++) {
                    spans[s] =
                        (tri_token_span){SEQUENCE - 1 - s, place[s], step == 0 ? prompt[s] : 1, b.tokens[s] + place[s]};
                    place[s] += spans[s].count;
                }
                OK(tri_token_graph_run(together, spans, SEQUENCE, &logits));
                for (int s = 0; s < SEQUENCE; s++) {
                    if (distance(&b, s, place[s] - 1, logits + s * WORDS) > near)
                        fail_msg("model %zu: sequence %d is off by %g", m, s,
                                 distance(&b, s, place[s] - 1, logits + s * WORDS));
                    /* cut elsewhere, on another number of threads, alone: the same bits */
                    tri_token_span whole = {0, 0, place[s], b.tokens[s]}, begin = whole, end = whole;
                    begin.count = place[s] / 2;
                    end.place = begin.count;
                    end.count -= begin.count;
                    end.tokens += begin.count;
                    if (begin.count > 0)
                        OK(tri_token_graph_run(alone, &begin, 1, &single));
                    OK(tri_token_graph_run(alone, &end, 1, &single));
                    assert_memory_equal(single, logits + s * WORDS, WORDS * sizeof(float));
                }
            }
            tri_token_graph_destroy(together);
            tri_token_graph_destroy(alone);
            bench_close(&b);
        }
    }
}

/* Prompts, then a token each, in memory that the host cannot touch. */
static void a_fake_device_has_the_bits_of_the_host(void **state)
{
    tri_device *device;
    (void)state;
    OK(tri_device_open("fake", &device));
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++) {
        bench b;
        const tri_dtype dtype = m % 2 == 0 ? TRI_F32 : TRI_BF16;
        wanted_make(&b, models[m]);
        tri_token_graph *host = token_graph(&b, models[m], dtype, 1);
        tri_token_graph *fake = token_graph_on(device, &b, models[m], dtype, 2);
        for (int64_t place = 0; place < 40; place += place == 0 ? 38 : 1) {
            const float *wanted, *found;
            const int64_t count = place == 0 ? 38 : 1;
            const tri_token_span spans[] = {{3, place, count, b.tokens[0] + place}, {1, place, count, b.tokens[1]}};
            OK(tri_token_graph_run(host, spans, 2, &wanted));
            OK(tri_token_graph_run(fake, spans, 2, &found));
            assert_memory_equal(found, wanted, 2 * WORDS * sizeof(float));
        }
        tri_token_graph_destroy(host);
        tri_token_graph_destroy(fake);
        bench_close(&b);
    }
    tri_device_close(device);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    bench b;
    wanted_make(&b, models[0]);
    tri_token_graph *graph = token_graph(&b, models[0], TRI_F32, 1);
    const float *logits;
    int32_t wrong = WORDS;
    assert_int_equal(tri_token_graph_run(graph, &(tri_token_span){0, 0, 1, &wrong}, 1, &logits), TRI_EINVAL);
    assert_string_equal(tri_last_error(), "token 37 is none of the 37 of the model's vocabulary");
    assert_int_equal(tri_token_graph_run(graph, &(tri_token_span){0, LENGTH, 1, b.tokens[0]}, 1, &logits), TRI_EINVAL);
    assert_int_equal(tri_token_graph_run(graph, &(tri_token_span){SEQUENCE, 0, 1, b.tokens[0]}, 1, &logits),
                     TRI_EINVAL);
    tri_token_graph_destroy(graph);
    tri_model *model = build(models[0], LENGTH);
    tri_token_graph_config config = {.dtype = TRI_F32, .threads = 1, .sequences = 1, .places = LENGTH + 1};
    assert_int_equal(tri_token_graph_compile(model, &config, &graph), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "positions: want samples of at most 300 tokens, got 301"));
    tri_model_destroy(model);
    bench_close(&b);
}

static void other_models_are_refused_by_name(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    tri_model *model;
    tri_token_graph *graph;
    const char *text = "{name: mlp, hidden: [4]}";
    OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
    OK(tri_model_build(root, tri_shape_make(1, (int64_t[]){8}), 3, &model));
    tri_token_graph_config config = {.dtype = TRI_F32, .threads = 1, .sequences = 1, .places = 8};
    assert_int_equal(tri_token_graph_compile(model, &config, &graph), TRI_EUNSUPPORTED);
    assert_non_null(strstr(tri_last_error(), "causal transformers (gpt2, llama) alone"));
    tri_model_destroy(model);
    tri_arena_fini(&arena);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    tri_model *model = build(models[2], 16);
    tri_token_graph_config config = {.dtype = TRI_F32, .threads = 1, .sequences = 1, .places = 16};
    tri_token_graph *graph = NULL;
    for (uint64_t n = 1; !graph; n++) {
        const uint64_t live = tri_memory_now().live;
        tri_memory_fail_at(n);
        tri_status status = tri_token_graph_compile(model, &config, &graph);
        tri_memory_fail_at(0);
        if (status != TRI_OK) {
            assert_int_equal(status, TRI_ENOMEM);
            assert_int_equal(tri_memory_now().live, live);
        }
    }
    tri_token_graph_destroy(graph);
    tri_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_at_a_time_has_the_logits_of_training),
        cmocka_unit_test(sequences_side_by_side_do_not_change_each_other),
        cmocka_unit_test(a_fake_device_has_the_bits_of_the_host),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
