/* SPDX-License-Identifier: Apache-2.0
 *
 * test_span.c: models cut into two spans, and into three with a short one between, at every place where that may be
 * done: the gradients, the sums and the tail of the whole graph to the bit, with two runs under way at once.
 */
#include <stdio.h>

#include "nn/cuts.h"
#include "unit/nn/nn_rig.h"

#define MICRO 4 /* shards of a run: the batch is two of them */

typedef struct part {
    tri_params *params;
    tri_graph *graph;
    float *grads[2];
    tri_span_places places[2]; /* of both runs: outgoing values, and gradients of incoming ones; the rest is others' */
} part;

static tri_graph_config config_of(tri_dtype precision, const char *kind, bool training)
{
    tri_graph_config config = rig_config(kind, 1);
    config.precision = precision;
    config.shards = MICRO;
    config.slots = 2;
    config.training = training;
    return config;
}

static void part_open(part *p, const tri_model *model, const tri_stages *stages, int s, const tri_graph_config *shared)
{
    bool wanted[64];
    tri_graph_config config = *shared;
    config.first_node = stages->first_node[s];
    config.end_node = stages->first_node[s + 1];
    assert_true(model->params.count <= 64);
    tri_stages_wanted(model, stages, stages->count, s, wanted);
    OK(tri_params_create_some(model, wanted, tri_device_host(), 1, &p->params));
    tri_stages_mark(model, stages, stages->count, s, p->params);
    OK(tri_graph_compile(model, p->params, &config, &p->graph));
    int64_t count = tri_params_grad_count(p->params) + TRI_PARAMS_TAIL;
    for (int run = 0; run < 2; run++) {
        p->grads[run] = calloc((size_t)count, sizeof(float));
        for (int64_t i = 0; i < count; i++)
            p->grads[run][i] = NAN; /* whatever is not written shows */
        const tri_span *span = tri_graph_span(p->graph);
        p->places[run] =
            (tri_span_places){.out = tri_alloc_bulk(tri_crossings_nbytes(span->out, span->out_count, MICRO, false)),
                              .din = tri_alloc_bulk(tri_crossings_nbytes(span->in, span->in_count, MICRO, true))};
    }
}

static void part_close(part *p)
{
    for (int run = 0; run < 2; run++) {
        free(p->grads[run]);
        tri_free(p->places[run].out);
        tri_free(p->places[run].din);
    }
    tri_graph_destroy(p->graph);
    tri_params_destroy(p->params);
}

static tri_batch run_batch(const rig *r, int run)
{
    const tri_value_spec *values = r->model->values.items;
    size_t first = (size_t)run * MICRO;
    size_t in = (size_t)tri_shape_count(values[r->model->input].sample) * 4 * RIG_ROWS * first;
    size_t out = (size_t)tri_shape_count(values[r->model->target].sample) * 4 * RIG_ROWS * first;
    return (tri_batch){.shards = MICRO,
                       .rows = r->rows + first,
                       .first_sample = r->first_sample + first,
                       .input = (char *)r->input + in,
                       .target = (char *)r->target + out};
}

static void parts_run(part *parts, int count, const rig *r, float sums[RIG_SHARDS][4], bool training)
{
    for (int run = 0; run < 2; run++) {
        tri_batch batch = run_batch(r, run);
        for (int s = 0; s < count; s++) {
            tri_span_places places = parts[s].places[run];
            const float(*found)[4];
            places.in = s > 0 ? parts[s - 1].places[run].out : NULL;
            tri_graph_slot_enter(parts[s].graph, run, &places);
            OK(tri_graph_forward(parts[s].graph, &batch, 3, training, &found));
            assert_true((found != NULL) == (s == count - 1));
            if (found)
                memcpy(sums[run * MICRO], found, MICRO * sizeof(sums[0]));
        }
    }
    for (int run = 0; training && run < 2; run++) {
        tri_tree_part whole = {0, MICRO};
        bool halves = run == 1; /* all spans go down before any has its parameters' gradients */
        for (int s = count - 1; s >= 0; s--) {
            tri_span_places places = parts[s].places[run];
            places.in = s > 0 ? parts[s - 1].places[run].out : NULL;
            places.dout = s < count - 1 ? parts[s + 1].places[run].din : NULL;
            tri_graph_slot_enter(parts[s].graph, run, &places);
            OK(tri_graph_grads_set(parts[s].graph, 1, &whole, &parts[s].grads[run]));
            if (halves)
                OK(tri_graph_backward_values(parts[s].graph));
            else
                OK(tri_graph_backward(parts[s].graph, NULL, NULL));
        }
        for (int s = 0; halves && s < count; s++)
            OK(tri_graph_backward_weights(parts[s].graph));
    }
}

/* Gradient `number` of a span's store: of the same parameter, or tie, of the whole. */
static int number_in_whole(const tri_params *whole, const tri_params *some, int number)
{
    if (number < some->entry_count)
        return whole->of_model[some->entries[number].number];
    return whole->entry_count + some->ties[number - some->entry_count].number;
}

static void part_compare(const part *p, const rig *r, const char *where)
{
    for (int number = 0; number < tri_params_tail(p->params); number++) {
        bool tie = number >= p->params->entry_count;
        int entry = tie ? p->params->ties[number - p->params->entry_count].entry : number;
        bool away = tie ? p->params->ties[number - p->params->entry_count].away : p->params->entries[entry].away;
        assert_int_equal(tri_graph_writes(p->graph, number), !away);
        int64_t count = p->params->entries[entry].count, first = tri_params_grad_first(p->params, number);
        if (away)
            continue;
        tri_vector_add(1, p->grads[0] + first, p->grads[0] + first, p->grads[1] + first, count);
        int64_t place = tri_params_grad_first(r->params, number_in_whole(r->params, p->params, number));
        if (memcmp(p->grads[0] + first, r->grads[0] + place, (size_t)count * sizeof(float)) != 0)
            fail_msg("%s: the gradient of %s is another", where, p->params->entries[entry].name);
    }
    if (!tri_graph_writes(p->graph, tri_params_tail(p->params)))
        return;
    int64_t first = tri_params_grad_count(p->params);
    tri_vector_add(1, p->grads[0] + first, p->grads[0] + first, p->grads[1] + first, TRI_PARAMS_TAIL);
    assert_memory_equal(p->grads[0] + first, r->grads[0] + tri_params_grad_count(r->params),
                        TRI_PARAMS_TAIL * sizeof(float));
}

/* Sections say how many bytes cross where the span begins. */
static void bytes_compare(const tri_graph *graph, const tri_model *model, const tri_graph_config *config)
{
    tri_sections sections;
    const tri_span *span = tri_graph_span(graph);
    int64_t up = 0, down = 0;
    OK(tri_sections_find(model, config, &sections));
    for (int i = 0; i < span->in_count; i++) {
        up += (int64_t)span->in[i].nbytes;
        down += span->in[i].grad ? (int64_t)span->in[i].nbytes : 0;
    }
    for (int s = 0; s < sections.count; s++)
        if (sections.items[s].first_node == graph->config.first_node) {
            assert_int_equal(sections.items[s].nbytes_up * RIG_ROWS, up);
            assert_int_equal(sections.items[s].nbytes_down * RIG_ROWS, down);
        }
    tri_sections_fini(&sections);
}

static void cut_and_compare(const rig *r, const tri_stages *stages, const tri_graph_config *config, const char *where)
{
    part parts[3];
    float sums[RIG_SHARDS][4];
    const float(*whole)[4] = tri_graph_sums_host(r->graph);
    for (int s = 0; s < stages->count; s++)
        part_open(&parts[s], r->model, stages, s, config);
    for (int s = 0; s + 1 < stages->count; s++) {
        if (stages->count == 2)
            bytes_compare(parts[1].graph, r->model, config);
        const tri_span *left = tri_graph_span(parts[s].graph), *right = tri_graph_span(parts[s + 1].graph);
        assert_int_equal(left->out_count, right->in_count);
        for (int i = 0; i < left->out_count; i++)
            assert_int_equal(left->out[i].value, right->in[i].value);
    }
    parts_run(parts, stages->count, r, sums, true);
    assert_memory_equal(sums, whole, sizeof(sums));
    for (int s = 0; s < stages->count; s++)
        part_compare(&parts[s], r, where);
    for (int s = 0; s < stages->count; s++)
        part_close(&parts[s]);
}

static void cut_everywhere(const char *name, tri_model *model, int64_t classes, tri_dtype precision, const char *kind)
{
    rig r;
    tri_sections sections;
    tri_graph_config config = config_of(precision, kind, true);
    rig_open_as(&r, model, classes, kind, 1, true, precision);
    int nodes = (int)r.model->nodes.count;
    rig_run_whole(&r, 3);
    OK(tri_sections_find(r.model, &config, &sections));
    assert_true(sections.count >= 4);
    for (int a = 1; a < sections.count; a++) {
        char where[160];
        snprintf(where, sizeof(where), "%s before node %d", name, sections.items[a].first_node);
        cut_and_compare(&r, &(tri_stages){2, {0, sections.items[a].first_node, nodes}}, &config, where);
        for (int b = a + 1; b < sections.count && b < a + 4; b++)
            cut_and_compare(&r,
                            &(tri_stages){3, {0, sections.items[a].first_node, sections.items[b].first_node, nodes}},
                            &config, where);
    }
    tri_sections_fini(&sections);
    rig_close(&r);
}

static void spans_give_the_bits_of_the_whole_wherever_it_is_cut(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_SPLIT_MODELS; k++)
        cut_everywhere(rig_models[k].name, rig_models[k].make(), rig_models[k].classes, TRI_F32, "cpu");
}

static void spans_give_the_bits_of_the_whole_in_16_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * RIG_SPLIT_MODELS; k++)
        cut_everywhere(rig_models[k / 2].name, rig_models[k / 2].make(), rig_models[k / 2].classes,
                       k % 2 ? TRI_F16 : TRI_BF16, "cpu");
}

static void transformers_of_the_table_can_be_cut(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{name: gpt2, n_layer: 2, n_head: 2, n_embd: 8, vocab_size: 7, resid_pdrop: 0.2, embd_pdrop: 0.1, attn_pdrop: "
        "0.2}",
        "{name: gpt2, n_layer: 2, n_head: 2, n_embd: 8, vocab_size: 7, resid_pdrop: 0.2, tie_word_embeddings: false}",
        "{name: gpt2, n_layer: 3, n_head: 2, n_embd: 8, vocab_size: 7, resid_pdrop: 0.2, checkpoint: true}",
        "{name: llama, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, hidden_size: 8, "
        "intermediate_size: 12, vocab_size: 7, tie_word_embeddings: true}"};
    for (size_t i = 0; i < 2 * TRI_COUNT_OF(texts); i++) {
        tri_arena arena = {0};
        tri_yaml *root;
        tri_model *model;
        const char *text = texts[i / 2];
        OK(tri_yaml_parse(&arena, text, strlen(text), "m.yaml", &root));
        OK(tri_model_build(root, tri_shape_make(1, (int64_t[]){4}), 7, &model));
        cut_everywhere(text, model, 7, i % 2 ? TRI_BF16 : TRI_F32, "cpu");
        tri_arena_fini(&arena);
    }
}

static void spans_of_reference_kernels_do_too(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_SPLIT_MODELS; k++)
        cut_everywhere(rig_models[k].name, rig_models[k].make(), rig_models[k].classes, TRI_F32, "reference");
}

/* One that is read in the first, the second and the third span: the second passes it on and adds to its gradient. */
static void a_value_read_behind_the_next_span_is_passed_on(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, rig_attention(), 5, "cpu", 1, true);
    tri_graph_config config = config_of(TRI_F32, "cpu", true);
    tri_sections sections;
    OK(tri_sections_find(r.model, &config, &sections));
    int relays = 0;
    for (int a = 1; a + 1 < sections.count; a++) {
        part p;
        part_open(
            &p, r.model,
            &(tri_stages){
                3, {0, sections.items[a].first_node, sections.items[a + 1].first_node, (int)r.model->nodes.count}},
            1, &config);
        const tri_span *span = tri_graph_span(p.graph);
        for (int i = 0; i < span->out_count; i++)
            relays += span->out[i].relay >= 0 && span->out[i].grad;
        part_close(&p);
    }
    assert_true(relays > 3);
    tri_sections_fini(&sections);
    rig_close(&r);
}

static void a_graph_for_evaluation_can_be_cut(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_SPLIT_MODELS; k++) {
        rig r;
        part parts[2];
        tri_sections sections;
        tri_graph_config config = config_of(TRI_F32, "cpu", false);
        const float(*whole)[4];
        float sums[RIG_SHARDS][4];
        rig_open(&r, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        OK(tri_graph_forward(r.graph, &r.batch, 3, false, &whole));
        OK(tri_sections_find(r.model, &config, &sections));
        tri_stages stages = {2, {0, sections.items[sections.count / 2].first_node, (int)r.model->nodes.count}};
        for (int s = 0; s < 2; s++) {
            part_open(&parts[s], r.model, &stages, s, &config);
            assert_int_equal(tri_crossings_nbytes(tri_graph_span(parts[s].graph)->in,
                                                  tri_graph_span(parts[s].graph)->in_count, MICRO, true),
                             0);
        }
        parts_run(parts, 2, &r, sums, false);
        assert_memory_equal(sums, whole, sizeof(sums));
        for (int s = 0; s < 2; s++)
            part_close(&parts[s]);
        tri_sections_fini(&sections);
        rig_close(&r);
    }
}

/* What is below the first parameter that moves needs no gradient: none crosses. */
static void frozen_layers_of_other_stages_are_known(void **state)
{
    (void)state;
    bool frozen[64] = {true, true}; /* of the first layer */
    tri_model *model = rig_mlp();
    tri_graph_config config = config_of(TRI_F32, "cpu", true);
    tri_sections sections;
    part p;
    OK(tri_model_finish(model));
    OK(tri_sections_find(model, &config, &sections));
    assert_true(sections.items[1].nbytes_down > 0);
    tri_sections_fini(&sections);
    config.frozen = frozen;
    OK(tri_sections_find(model, &config, &sections));
    assert_int_equal(sections.items[1].nbytes_down, 0);
    assert_true(sections.items[1].nbytes_up > 0);
    part_open(&p, model, &(tri_stages){2, {0, sections.items[1].first_node, (int)model->nodes.count}}, 1, &config);
    assert_int_equal(tri_graph_span(p.graph)->in_count, 1);
    assert_false(tri_graph_span(p.graph)->in[0].grad);
    part_close(&p);
    tri_sections_fini(&sections);
    tri_model_destroy(model);
}

/* What several slots share exists once. */
static void slots_cost_what_lives_into_the_way_down(void **state)
{
    (void)state;
    rig r;
    size_t nbytes[4], plain;
    rig_open(&r, rig_gpt_again(), 7, "cpu", 1, true);
    for (int slots = 0; slots < 4; slots++) {
        tri_graph *graph;
        tri_graph_config config = config_of(TRI_F32, "cpu", true);
        config.slots = slots;
        OK(tri_graph_compile(r.model, r.params, &config, &graph));
        tri_graph_memory(graph, &nbytes[slots], &plain);
        tri_graph_destroy(graph);
    }
    assert_int_equal(nbytes[0], nbytes[1]);
    assert_true(nbytes[3] - nbytes[2] > 0);
    assert_true(nbytes[3] - nbytes[2] < nbytes[1] / 2); /* blocks keep what goes in alone */
    assert_true(nbytes[2] - 2 * (nbytes[3] - nbytes[2]) < nbytes[1]);
    rig_close(&r);
}

static void wrong_spans_are_refused(void **state)
{
    (void)state;
    tri_model *model = rig_gpt_again();
    tri_params *all, *none;
    tri_graph *graph;
    bool wanted[64] = {false};
    tri_graph_config config = config_of(TRI_F32, "cpu", true);
    OK(tri_model_finish(model));
    OK(tri_params_create(model, tri_device_host(), 1, &all));
    OK(tri_params_create_some(model, wanted, tri_device_host(), 1, &none));
    config.first_node = 5; /* within the first block */
    config.end_node = (int)model->nodes.count;
    assert_int_equal(tri_graph_compile(model, all, &config, &graph), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "cannot be cut before node 5"));
    config.first_node = 9;
    config.end_node = 9;
    assert_int_equal(tri_graph_compile(model, all, &config, &graph), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "got 9 to 9"));
    config.first_node = config.end_node = 0;
    assert_int_equal(tri_graph_compile(model, none, &config, &graph), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "embedding reads wte.weight, which is not in the store"));
    config.slots = -1;
    assert_int_equal(tri_graph_compile(model, all, &config, &graph), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "slots"));
    tri_params_destroy(none);
    tri_params_destroy(all);
    tri_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_give_the_bits_of_the_whole_wherever_it_is_cut),
        cmocka_unit_test(spans_give_the_bits_of_the_whole_in_16_bits),
        cmocka_unit_test(transformers_of_the_table_can_be_cut),
        cmocka_unit_test(spans_of_reference_kernels_do_too),
        cmocka_unit_test(a_value_read_behind_the_next_span_is_passed_on),
        cmocka_unit_test(a_graph_for_evaluation_can_be_cut),
        cmocka_unit_test(frozen_layers_of_other_stages_are_known),
        cmocka_unit_test(slots_cost_what_lives_into_the_way_down),
        cmocka_unit_test(wrong_spans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
