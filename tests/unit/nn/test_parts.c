/* SPDX-License-Identifier: Apache-2.0
 *
 * test_parts.c: models in tensor parts: they begin and learn as the whole model does, to rounding; each rank has its
 * share; what cannot be cut is refused.
 */
#include <stdio.h>

#include "base/yaml.h"
#include "nn/parts.h"
#include "unit/nn/nn_rig.h"

#define LENGTH INT64_C(8)
#define WORDS  INT64_C(13)

static tri_status build(const char *text, tri_model_split split, int64_t classes, tri_model **out)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
    tri_status status = tri_model_build_split(root, split, tri_shape_make(1, &(int64_t){LENGTH}), classes, out);
    tri_arena_fini(&arena);
    return status;
}

static const struct {
    const char *text;
    int64_t classes;
} models[] = {
    {"{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 24, initializer_range: 0.3, resid_pdrop: 0.2, "
     "attn_pdrop: 0.2}",
     WORDS},
    {"{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 24, initializer_range: 0.3, smoothing: 0.2, checkpoint: "
     "true, tie_word_embeddings: false, activation_function: relu}",
     WORDS},
    {"{name: llama, num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 4, hidden_size: "
     "12, intermediate_size: 20, attention_bias: true, mlp_bias: true, initializer_range: 0.3}",
     WORDS},
    {"{name: mlp, hidden: [16, 9, 8]}", 5},
    {"{name: mlp, hidden: 8}", 5},
};

static const char *const kinds[] = {"cpu", "reference"};

/* Element `place` of the tensor of that name, in an array laid out as the store. */
static float element_of(const tri_params *params, const float *array, const char *name, int64_t place)
{
    int64_t count;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        if (strcmp(entry->name, name) != 0)
            continue;
        int64_t at = tri_piece_find(entry->shape, entry->piece, place, &count);
        if (at >= 0)
            return array[entry->first + at];
    }
    fail_msg("%s has no element %lld", name, (long long)place);
    return 0;
}

static void grads_compare(const rig *cut, const rig *whole, const char *text)
{
    for (int e = 0; e < whole->params->entry_count; e++) {
        const tri_param *entry = &whole->params->entries[e];
        double top = 1e-2;
        for (int64_t i = 0; i < entry->count; i++)
            top = fmax(top, fabs((double)whole->grads[0][entry->first + i]));
        for (int64_t i = 0; i < entry->count; i++) {
            double want = (double)whole->grads[0][entry->first + i];
            double got = (double)element_of(cut->params, cut->grads[0], entry->name, i);
            if (!(fabs(got - want) <= 3e-5 * top))
                fail_msg("%s: %s[%lld]: want %.9g, got %.9g", text, entry->name, (long long)i, want, got);
        }
    }
}

static void parts_learn_as_the_whole_does(void **state)
{
    (void)state;
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++)
        for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
            rig whole, cut;
            tri_model *model;
            OK(build(models[m].text, (tri_model_split){.parts = 1}, models[m].classes, &model));
            rig_open(&whole, model, models[m].classes, kinds[k], 1, true);
            double want = (double)rig_run_whole(&whole, 7);
            tri_params_fold(whole.params, 1, whole.grads[0]);
            for (int at = 0; at < 4; at++) {
                int parts = at < 2 ? 2 : 4;
                bool sequence = at % 2 == 1;
                if (sequence && models[m].classes != WORDS)
                    continue;
                OK(build(models[m].text, (tri_model_split){parts, 1, 0, sequence}, models[m].classes, &model));
                assert_int_equal(tri_model_param_count(model), tri_model_param_count(whole.model));
                rig_open(&cut, model, models[m].classes, kinds[k], 2, true);
                assert_true(cut.params->entry_count > whole.params->entry_count);
                assert_true(tri_params_hash(cut.params) == tri_params_hash(whole.params));
                double got = (double)rig_run_whole(&cut, 7);
                tri_params_fold(cut.params, 1, cut.grads[0]);
                if (!(fabs(got - want) <= 1e-5 * want))
                    fail_msg("%s: want a loss of %g, got %g with %d parts", models[m].text, want, got, parts);
                assert_true(tri_graph_flops(cut.graph) == tri_graph_flops(whole.graph));
                grads_compare(&cut, &whole, models[m].text);
                rig_close(&cut);
            }
            rig_close(&whole);
        }
}

/* Views, shared buffers and second lives change no bit. */
static void shared_memory_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++)
        for (int half = 0; half < 2; half++) {
            rig apart, shared;
            tri_model *model;
            tri_dtype precision = half ? TRI_BF16 : TRI_F32;
            OK(build(models[m].text, (tri_model_split){4, 1, 0, false}, models[m].classes, &model));
            rig_open_as(&apart, model, models[m].classes, "cpu", 1, false, precision);
            OK(build(models[m].text, (tri_model_split){4, 1, 0, false}, models[m].classes, &model));
            rig_open_as(&shared, model, models[m].classes, "cpu", 2, true, precision);
            assert_true(shared.graph->planned_nbytes < apart.graph->planned_nbytes / 2);
            for (uint64_t step = 0; step < 2; step++) {
                rig_run_whole(&apart, step);
                rig_run_whole(&shared, step);
                assert_memory_equal(shared.grads[0], apart.grads[0], rig_grad_nbytes(&apart));
            }
            rig_close(&apart);
            rig_close(&shared);
        }
}

/* The way in has no memory of its own. */
static void what_parts_share_is_not_copied(void **state)
{
    (void)state;
    rig r;
    tri_model *model;
    OK(build(models[0].text, (tri_model_split){4, 1, 0, false}, WORDS, &model));
    rig_open(&r, model, WORDS, "cpu", 1, true);
    int shares = 0;
    for (int o = 0; o < r.graph->op_count; o++) {
        const graph_op *op = &r.graph->ops[o];
        if (op->desc.op != TRI_OP_SHARE_PARTS)
            continue;
        shares++;
        assert_true(tri_graph_value(r.graph, op->output) == tri_graph_value(r.graph, op->input[0]));
        assert_int_equal(op->dinput[0], r.graph->values[op->output].grad);
    }
    assert_int_equal(shares, 7 * 5); /* before each pair of layers, and the loss */
    rig_close(&r);
}

static void each_rank_has_its_share(void **state)
{
    (void)state;
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++) {
        tri_model *model;
        tri_params *all, *some;
        OK(build(models[m].text, (tri_model_split){4, 1, 0, false}, models[m].classes, &model));
        OK(tri_params_create(model, tri_device_host(), 42, &all));
        tri_model_destroy(model);
        int seen[256] = {0};
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            for (int rank = 0; rank < ranks; rank++) {
                OK(build(models[m].text, (tri_model_split){4, ranks, rank, false}, models[m].classes, &model));
                OK(tri_params_create(model, tri_device_host(), 42, &some));
                assert_int_equal(some->model_count, all->entry_count);
                assert_int_equal(some->block_count, all->block_count);
                for (int e = 0; e < some->entry_count; e++) {
                    const tri_param *entry = &some->entries[e], *same = &all->entries[entry->number];
                    assert_string_equal(entry->name, same->name);
                    assert_true(tri_piece_equal(entry->piece, same->piece) && entry->block == same->block);
                    assert_memory_equal(some->values + entry->first, all->values + same->first,
                                        (size_t)entry->count * sizeof(float));
                    assert_true(tri_param_is_replicated(entry) || entry->piece.part * ranks / 4 == rank);
                    seen[entry->number] += tri_param_is_replicated(entry) ? 0 : 1;
                }
                tri_params_destroy(some);
                tri_model_destroy(model);
            }
        for (int e = 0; e < all->entry_count; e++) /* by one of two ranks, and one of four */
            assert_int_equal(seen[e], tri_param_is_replicated(&all->entries[e]) ? 0 : 2);
        tri_params_destroy(all);
    }
}

static void what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tri_model_split split;
        const char *words;
    } cases[] = {
        {"{name: gpt2, n_head: 6, n_embd: 24}",
         {4, 1, 0, false},
         "n_head: want heads that the 4 tensor parts divide, got 6"},
        {"{name: gpt2, n_head: 4, n_embd: 16, n_inner: 18}",
         {4, 1, 0, false},
         "n_inner: want inner units that the 4 tensor"},
        {"{name: gpt2, n_head: 16, n_embd: 16}", {16, 1, 0, false}, "one word for each of the 16 tensor parts, got 13"},
        {"{name: llama, num_attention_heads: 8, num_key_value_heads: 2}",
         {4, 1, 0, false},
         "num_key_value_heads: want heads of keys and values that the 4 tensor parts divide, got 2"},
        {"{name: llama, num_attention_heads: 8, intermediate_size: 30}", {4, 2, 1, false}, "intermediate_size"},
        {"{name: mlp, hidden: [16, 10, 6]}", {4, 1, 0, false}, "hidden: want widths"},
        {"{name: lenet}",
         {2, 1, 0, false},
         "model lenet: cannot be cut into 2 tensor parts, only mlp, gpt2, llama can"},
        {"{layers: [linear: 4]}", {2, 2, 0, false}, "model layers: cannot be cut into 2 tensor parts"},
        {"{name: gpt2, n_head: 16, n_embd: 32, vocab_size: 40}",
         {16, 2, 0, true},
         "want samples of tokens that the 16 tensor parts divide, got 8"},
        {"{name: mlp}", {2, 1, 0, true}, "model mlp: has no tokens"},
        {"{name: mlp}", {3, 1, 0, false}, "tensor parts that are a power of two from 1 to 1024, got 3"},
        {"{name: mlp}", {2, 4, 0, false}, "tensor ranks that are a power of two and divide the 2 tensor parts, got 4"},
        {"{name: mlp}", {4, 2, 2, false}, "a tensor rank below 2, got 2"},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_model *model;
        assert_int_equal(build(cases[c].text, cases[c].split, WORDS, &model), TRI_ECONFIG);
        if (!strstr(tri_last_error(), cases[c].words))
            fail_msg("want '%s', got '%s'", cases[c].words, tri_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_learn_as_the_whole_does),  cmocka_unit_test(shared_memory_gives_the_same_bits),
        cmocka_unit_test(what_parts_share_is_not_copied), cmocka_unit_test(each_rank_has_its_share),
        cmocka_unit_test(what_cannot_be_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
