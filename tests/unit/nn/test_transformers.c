/* SPDX-License-Identifier: Apache-2.0
 *
 * test_transformers.c: gpt2 and llama against what PyTorch computed (golden/make.py), and what their fields do.
 */
#include <stdio.h>

#include "base/yaml.h"
#include "checkpoint/safetensors.h"
#include "unit/nn/nn_rig.h"

#define NEAR 1e-4

typedef struct golden_case {
    const char *path, *config;
} golden_case;

static const golden_case cases[] = {
    {TRI_GOLDEN_FOLDER "/gpt2.safetensors",
     "{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 40, n_positions: 15}"},
    {TRI_GOLDEN_FOLDER "/gpt2.safetensors",
     "{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 40, n_positions: 15, checkpoint: true}"},
    {TRI_GOLDEN_FOLDER "/llama.safetensors",
     "{name: llama, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, hidden_size: "
     "16, "
     "intermediate_size: 24, rope_theta: 100, rope_scaling: {rope_type: llama3, factor: 4, low_freq_factor: 1, "
     "high_freq_factor: 4, original_max_position_embeddings: 16}}"},
};

static tri_status build(const char *text, int64_t length, int64_t words, tri_model **out)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
    tri_status status = tri_model_build(root, tri_shape_make(1, &length), words, out);
    tri_arena_fini(&arena);
    return status;
}

static const tri_stored_tensor *stored(const tri_safetensors *file, const char *kind, const char *name)
{
    char full[128];
    snprintf(full, sizeof(full), "%s%s", kind, name);
    const tri_stored_tensor *tensor = tri_safetensors_find(file, full);
    if (!tensor)
        fail_msg("the golden file has no %s", full);
    return tensor;
}

/* The store holds exactly the weights of the file. */
static void weights_take(const tri_safetensors *file, tri_params *params)
{
    int found = 0;
    for (int i = 0; i < tri_safetensors_count(file); i++)
        found += strncmp(tri_safetensors_at(file, i)->name, "weight.", 7) == 0;
    assert_int_equal(found, params->entry_count);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        const tri_stored_tensor *tensor = stored(file, "weight.", entry->name);
        assert_true(tri_shape_equal(tensor->shape, entry->shape));
        memcpy(params->values + entry->first, tensor->bytes, tensor->nbytes);
    }
}

/* One step over shards of one sample; the mean loss. */
static double step_run(tri_graph *graph, const tri_params *params, const tri_safetensors *file, uint64_t step,
                       float *grad)
{
    const tri_stored_tensor *tokens = stored(file, "", "tokens");
    int32_t rows[] = {1, 1, 1, 1};
    int64_t first[] = {0, 1, 2, 3};
    const float(*sums)[4];
    tri_tree_part whole = {0, 4};
    tri_batch batch = {.shards = 4,
                       .rows = rows,
                       .first_sample = first,
                       .input = tokens->bytes,
                       .target = stored(file, "", "targets")->bytes};
    OK(tri_graph_grads_set(graph, 1, &whole, &grad));
    OK(tri_graph_forward(graph, &batch, step, true, &sums));
    OK(tri_graph_backward(graph, NULL, NULL));
    tri_params_fold(params, 1, grad);
    const float *tail = grad + tri_params_grad_count(params);
    assert_true(tail[TRI_TAIL_WEIGHT] == 45); /* three of 48 targets are ignored */
    for (int64_t i = 0; i < params->count; i++)
        grad[i] /= tail[TRI_TAIL_WEIGHT];
    return (double)tail[TRI_TAIL_LOSS] / (double)tail[TRI_TAIL_WEIGHT];
}

static void grads_compare(const tri_safetensors *file, const tri_params *params, const float *grad)
{
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        const float *want = stored(file, "grad.", entry->name)->bytes;
        double top = 0;
        for (int64_t i = 0; i < entry->count; i++)
            top = fmax(top, fabs((double)want[i]));
        for (int64_t i = 0; i < entry->count; i++)
            if (!(fabs((double)want[i] - (double)grad[entry->first + i]) <= NEAR * top))
                fail_msg("gradient of %s[%lld]: PyTorch %g, Trireme %g", entry->name, (long long)i, (double)want[i],
                         (double)grad[entry->first + i]);
    }
}

static void first_steps_are_those_of_pytorch(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * TRI_COUNT_OF(cases); k++) {
        tri_model *model;
        tri_params *params;
        tri_graph *graph;
        tri_safetensors *file;
        OK(tri_safetensors_open(cases[k / 2].path, &file));
        OK(build(cases[k / 2].config, 12, 23, &model));
        OK(tri_params_create(model, tri_device_host(), 1, &params));
        weights_take(file, params);
        tri_graph_config config = {
            .kind = k % 2 ? "cpu" : "reference", .rows = 1, .shards = 4, .threads = 2, .training = true};
        OK(tri_graph_compile(model, params, &config, &graph));
        float *grad = calloc((size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL), sizeof(float));
        const float *losses = stored(file, "", "losses")->bytes;
        for (uint64_t step = 0; step < 3; step++) {
            double loss = step_run(graph, params, file, step, grad);
            if (!(fabs(loss - (double)losses[step]) <= NEAR * (double)losses[step]))
                fail_msg("%s, %s: loss of step %d: PyTorch %g, Trireme %g", cases[k / 2].path, config.kind, (int)step,
                         (double)losses[step], loss);
            if (step == 0)
                grads_compare(file, params, grad);
            for (int64_t i = 0; i < params->count; i++)
                params->values[i] -= 0.5f * grad[i];
        }
        free(grad);
        tri_graph_destroy(graph);
        tri_params_destroy(params);
        tri_model_destroy(model);
        tri_safetensors_close(file);
    }
}

static void sizes_are_those_of_the_published_models(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t words, count;
    } models[] = {
        {"{name: gpt2, n_positions: 1024}", 50257, 124439808},
        {"{name: gpt2, n_positions: 1024, n_layer: 24, n_head: 16, n_embd: 1024}", 50257, 354823168},
        {"{name: gpt2, n_layer: 6, n_head: 6, n_embd: 384, n_positions: 256}", 65, 10770816},
        {"{name: llama, hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 16, num_attention_heads: 32, "
         "num_key_value_heads: 8, tie_word_embeddings: true}",
         128256, 1235814400},
        {"{name: llama, hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 22, num_attention_heads: 32, "
         "num_key_value_heads: 4}",
         32000, 1100048384},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(models); i++) {
        tri_model *m;
        OK(build(models[i].text, 64, models[i].words, &m));
        if (tri_model_param_count(m) != models[i].count)
            fail_msg("%s: want %lld parameters, got %lld", models[i].text, (long long)models[i].count,
                     (long long)tri_model_param_count(m));
        tri_model_destroy(m);
    }
}

static double deviation_of(const tri_params *params, const char *name)
{
    const tri_param *entry = tri_params_find(params, name);
    double sum = 0;
    assert_non_null(entry);
    for (int64_t i = 0; i < entry->count; i++)
        sum += (double)params->values[entry->first + i] * (double)params->values[entry->first + i];
    return sqrt(sum / (double)entry->count);
}

static void initial_weights_and_decay_are_those_of_nanogpt(void **state)
{
    (void)state;
    tri_model *m;
    tri_params *params;
    OK(build("{name: gpt2, n_layer: 8, n_head: 2, n_embd: 64}", 32, 300, &m));
    OK(tri_params_create(m, tri_device_host(), 1, &params));
    assert_true(fabs(deviation_of(params, "wte.weight") - 0.02) < 0.001);
    assert_true(fabs(deviation_of(params, "wpe.weight") - 0.02) < 0.001);
    assert_true(fabs(deviation_of(params, "h.3.attn.c_attn.weight") - 0.02) < 0.001);
    assert_true(fabs(deviation_of(params, "h.7.mlp.c_proj.weight") - 0.005) < 0.0003);
    assert_true(deviation_of(params, "h.7.mlp.c_proj.bias") == 0);
    assert_true(deviation_of(params, "ln_f.weight") == 1);
    for (int e = 0; e < params->entry_count; e++)
        assert_int_equal(params->entries[e].decay, params->entries[e].shape.ndim == 2);
    tri_params_destroy(params);
    tri_model_destroy(m);
}

static size_t planned_nbytes(const char *text)
{
    tri_model *m;
    tri_params *params;
    tri_graph *graph;
    size_t planned, plain;
    OK(build(text, 64, 300, &m));
    OK(tri_params_create(m, tri_device_host(), 1, &params));
    tri_graph_config config = {.kind = "cpu", .rows = 4, .shards = 2, .threads = 1, .training = true};
    OK(tri_graph_compile(m, params, &config, &graph));
    tri_graph_memory(graph, &planned, &plain);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
    tri_model_destroy(m);
    return planned;
}

static void checkpoint_needs_a_fraction_of_the_memory(void **state)
{
    (void)state;
    size_t kept = planned_nbytes("{name: gpt2, n_layer: 12, n_head: 4, n_embd: 64}");
    size_t again = planned_nbytes("{name: gpt2, n_layer: 12, n_head: 4, n_embd: 64, checkpoint: true}");
    if (!(again < kept / 3))
        fail_msg("%zu bytes with checkpoint, %zu without", again, kept);
}

static void wrong_fields_are_refused_with_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"{name: gpt2, n_head: 5}", "n_head: want a divisor of n_embd (768), got 5"},
        {"{name: gpt2, n_positions: 63}", "n_positions: want at least the 64 tokens of a sample, got 63"},
        {"{name: gpt2, vocab_size: 10}", "vocab_size: want at least the 300 tokens of the data, got 10"},
        {"{name: gpt2, activation_function: gelu_nev}", "did you mean 'gelu_new'?"},
        {"{name: gpt2, activation_function: softplus}", "only gelu_new, gelu, relu, silu"},
        {"{name: gpt2, n_layers: 3}", "there is no field of model gpt2 'n_layers'; did you mean 'n_layer'?"},
        {"{name: gpt2, attn_pdrop: 1}", "attn_pdrop"},
        {"{name: llama, attention_dropout: -0.1}", "attention_dropout"},
        {"{name: llama, num_attention_heads: 7}", "num_attention_heads: want a divisor of hidden_size (512), got 7"},
        {"{name: llama, num_key_value_heads: 3}", "want heads that are a multiple of the heads of keys and values"},
        {"{name: llama, hidden_act: gelu}", "hidden_act: want silu, got gelu"},
        {"{name: llama, rope_scaling: {rope_type: yarn}}", "rope_type: want llama3, got yarn"},
        {"{name: llama, max_position_embeddings: 8}", "max_position_embeddings: want at least the 64 tokens"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        tri_model *m;
        assert_int_equal(build(wrong[i].text, 64, 300, &m), TRI_ECONFIG);
        if (!strstr(tri_last_error(), wrong[i].words))
            fail_msg("%s: %s", wrong[i].text, tri_last_error());
    }
}

static void tied_weights_must_fit(void **state)
{
    (void)state;
    static const char *const tied[] = {"embed.weight", "embod.weight"};
    static const char *const words[] = {"want tied weights of shape [9, 4], embed.weight has [7, 4]",
                                        "there is no parameter embod.weight"};
    for (int i = 0; i < 2; i++) {
        tri_model *m;
        OK(tri_model_create("test", &m));
        tri_value x = tri_model_input(m, TRI_I32, tri_shape_make(1, (int64_t[]){3}));
        tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(1, (int64_t[]){3}));
        x = tri_embedding(m, x, 7, 4, "embed");
        tri_vocab_loss(m, x, y, (tri_vocab_loss_options){.words = 9, .tied = tied[i]});
        assert_int_equal(tri_model_finish(m), TRI_EINVAL);
        if (!strstr(tri_last_error(), words[i]))
            fail_msg("%s", tri_last_error());
        tri_model_destroy(m);
    }
}

static void count_table(void *arg, int number)
{
    *(int *)arg += number == 0;
}

/* The store's gradients are those of the rig after tri_params_fold(), to the bit; the table's is complete once. */
static void joined_compare(const rig *r, const char *kind, tri_dtype precision)
{
    tri_params *params;
    tri_graph *graph;
    const float(*sums)[4];
    const tri_tree_part whole = {0, RIG_SHARDS};
    int complete = 0;
    OK(tri_params_create(r->model, tri_device_host(), 1, &params));
    tri_params_join_ties(params, r->model);
    assert_int_equal(tri_params_grad_count(params), params->count);
    tri_graph_config config = rig_config(kind, 2);
    config.precision = precision;
    OK(tri_graph_compile(r->model, params, &config, &graph));
    float *grads = malloc((size_t)(params->count + TRI_PARAMS_TAIL) * sizeof(float));
    for (int64_t i = 0; i < params->count; i++) /* whatever is not written shows */
        grads[i] = NAN;
    OK(tri_graph_grads_set(graph, 1, &whole, &grads));
    OK(tri_graph_forward(graph, &r->batch, 3, true, &sums));
    OK(tri_graph_backward(graph, count_table, &complete));
    assert_string_equal(params->entries[0].name, "wte.weight");
    assert_int_equal(complete, 1);
    for (int e = 0; e < params->entry_count; e++)
        assert_memory_equal(grads + params->entries[e].first, r->grads[0] + params->entries[e].first,
                            (size_t)params->entries[e].count * sizeof(float));
    free(grads);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
}

static void ties_that_are_joined_have_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        tri_dtype precision;
    } rows[] = {{"cpu", TRI_F32}, {"cpu", TRI_BF16}, {"reference", TRI_F32}};
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        rig r;
        rig_open_as(&r, rig_gpt(), 7, rows[i].kind, 2, true, rows[i].precision);
        rig_run_whole(&r, 3);
        assert_int_equal(r.params->tie_count, 1);
        tri_params_fold(r.params, 2, r.grads[0]);
        joined_compare(&r, rows[i].kind, rows[i].precision);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_steps_are_those_of_pytorch),
        cmocka_unit_test(sizes_are_those_of_the_published_models),
        cmocka_unit_test(initial_weights_and_decay_are_those_of_nanogpt),
        cmocka_unit_test(checkpoint_needs_a_fraction_of_the_memory),
        cmocka_unit_test(wrong_fields_are_refused_with_words),
        cmocka_unit_test(tied_weights_must_fit),
        cmocka_unit_test(ties_that_are_joined_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
