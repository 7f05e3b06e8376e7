/* SPDX-License-Identifier: Apache-2.0
 *
 * test_logits.c: models that transformers wrote, read into our store: logits and loss are those that transformers gives
 * (hf.py make), within 1e-4. usage: test_logits FOLDER; each folder in it is a model with logits.txt.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "interop/pretrained.h"
#include "nn/graph.h"

#define TOKENS_MAX 64
#define TOLERANCE  1e-4

static const char *fixtures;

typedef struct golden {
    int tokens, words;
    int32_t input[TOKENS_MAX], target[TOKENS_MAX];
    double loss;
    float *logits; /* [tokens, words] */
} golden;

static double number_next(char **at)
{
    char *end;
    double value = strtod(*at, &end);
    assert_ptr_not_equal(end, *at);
    *at = end;
    return value;
}

static void golden_read(const char *folder, golden *out)
{
    char path[512], *text, *at;
    size_t nbytes;
    snprintf(path, sizeof(path), "%s/logits.txt", folder);
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    at = text;
    out->tokens = (int)number_next(&at);
    out->words = (int)number_next(&at);
    assert_in_range(out->tokens, 1, TOKENS_MAX);
    for (int i = 0; i < out->tokens; i++)
        out->input[i] = (int32_t)number_next(&at);
    for (int i = 0; i < out->tokens; i++)
        out->target[i] = (int32_t)number_next(&at);
    out->loss = number_next(&at);
    out->logits = malloc((size_t)out->tokens * (size_t)out->words * sizeof(float));
    assert_non_null(out->logits);
    for (int i = 0; i < out->tokens * out->words; i++)
        out->logits[i] = (float)number_next(&at);
    tri_free(text);
}

static void model_make(const tri_pretrained *source, const golden *wanted, tri_model **model)
{
    tri_string text = {0};
    tri_arena arena = {0};
    tri_yaml *fields;
    assert_int_equal(tri_hf_config_model(tri_pretrained_config(source), &text), TRI_OK);
    assert_int_equal(tri_yaml_parse(&arena, text.text, text.nbytes, "model", &fields), TRI_OK);
    tri_status status = tri_model_build(fields, (tri_shape){1, {wanted->tokens}}, wanted->words, model);
    if (status != TRI_OK)
        fail_msg("%s", tri_last_error());
    tri_arena_fini(&arena);
    tri_string_fini(&text);
}

static void weights_read(const tri_pretrained *source, tri_params *params)
{
    tri_checkpoint_slice slices[64];
    assert_in_range(params->entry_count, 1, 64);
    for (int e = 0; e < params->entry_count; e++)
        slices[e] = (tri_checkpoint_slice){.name = params->entries[e].name,
                                           .shape = params->entries[e].shape,
                                           .values = params->values + params->entries[e].first};
    if (tri_pretrained_read(source, slices, params->entry_count, &(tri_pretrained_load){0}) != TRI_OK)
        fail_msg("%s", tri_last_error());
}

/* The model keeps what the last matrix reads: its product is formed here. */
static double logits_apart(const tri_params *params, const float *hidden, const golden *wanted)
{
    const char *const names[] = {"lm_head.weight", "wte.weight", "model.embed_tokens.weight"};
    const tri_param *matrix = NULL;
    double worst = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(names) && !matrix; i++)
        matrix = tri_params_find(params, names[i]);
    assert_non_null(matrix);
    int64_t width = matrix->shape.dim[1];
    for (int t = 0; t < wanted->tokens; t++)
        for (int v = 0; v < wanted->words; v++) {
            double sum = 0;
            for (int64_t c = 0; c < width; c++)
                sum += (double)hidden[t * width + c] * (double)params->values[matrix->first + v * width + c];
            double apart = fabs(sum - (double)wanted->logits[t * wanted->words + v]);
            worst = apart > worst || isnan(apart) ? apart : worst;
        }
    return worst;
}

static void model_check(const char *folder, const char *kind)
{
    golden wanted;
    tri_pretrained *source;
    tri_model *model;
    tri_params *params;
    tri_graph *graph;
    const float(*sums)[4];
    golden_read(folder, &wanted);
    if (tri_pretrained_open(folder, &source) != TRI_OK)
        fail_msg("%s", tri_last_error());
    model_make(source, &wanted, &model);
    assert_int_equal(tri_params_create(model, tri_device_host(), 1, &params), TRI_OK);
    weights_read(source, params);
    const tri_graph_config config = {.kind = kind, .rows = 1, .shards = 1, .threads = 1};
    assert_int_equal(tri_graph_compile(model, params, &config, &graph), TRI_OK);
    const tri_batch batch = {.shards = 1,
                             .rows = (const int32_t[]){1},
                             .first_sample = (const int64_t[]){0},
                             .input = wanted.input,
                             .target = wanted.target};
    assert_int_equal(tri_graph_forward(graph, &batch, 0, false, &sums), TRI_OK);
    double apart = logits_apart(params, tri_graph_logits(graph), &wanted);
    if (!(apart <= TOLERANCE) || !(fabs((double)sums[0][0] - wanted.loss) <= TOLERANCE * wanted.tokens))
        fail_msg("%s, %s: logits differ by up to %g, loss %g, want %g", folder, kind, apart, (double)sums[0][0],
                 wanted.loss);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
    tri_model_destroy(model);
    tri_pretrained_close(source);
    free(wanted.logits);
}

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    char **names, path[400];
    size_t count;
    int models = 0;
    assert_int_equal(tri_fs_list(fixtures, &names, &count), TRI_OK);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", fixtures, names[i]);
        if (!tri_fs_is_folder(path))
            continue;
        model_check(path, "reference");
        model_check(path, "cpu");
        models++;
    }
    assert_int_equal(models, 4);
    tri_fs_list_free(names, count);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_those_of_transformers)};
    if (argc != 2)
        return 2;
    fixtures = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
