/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuts.c: where models may be cut, what it costs, and which stages are chosen.
 */
#include "nn/cuts.h"
#include "unit/nn/nn_rig.h"

static void sections_open(tri_model *model, tri_sections *sections)
{
    tri_graph_config config = rig_config("cpu", 1);
    OK(tri_model_finish(model));
    OK(tri_sections_find(model, &config, sections));
}

/* Of the sections of a stage. */
static double stage_cost(const tri_sections *sections, const tri_stages *stages, int stage)
{
    double cost = 0;
    for (int s = 0; s < sections->count; s++)
        if (sections->items[s].first_node >= stages->first_node[stage] &&
            sections->items[s].first_node < stages->first_node[stage + 1])
            cost += tri_section_cost(sections, s);
    return cost;
}

static void sections_cover_the_model_and_its_work(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig r;
        tri_sections sections;
        double flops = 0, bytes = 0;
        rig_open(&r, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        sections_open(r.model, &sections);
        for (int s = 0; s < sections.count; s++) {
            flops += sections.items[s].flops;
            bytes += (double)sections.items[s].nbytes_up;
            assert_int_equal(sections.items[s].first_node, s ? sections.items[s - 1].end_node : 0);
            assert_true(s == 0 || sections.items[s].nbytes_up > 0);
        }
        assert_int_equal(sections.items[sections.count - 1].end_node, (int)r.model->nodes.count);
        assert_true(bytes > 0);
        if (strstr(rig_models[k].name, "again") || strcmp(rig_models[k].name, "llama") == 0)
            assert_true(flops > 1.1 * tri_graph_flops(r.graph)); /* formed again */
        else
            assert_true(fabs(flops - tri_graph_flops(r.graph)) < 1e-9 * flops);
        tri_sections_fini(&sections);
        rig_close(&r);
    }
}

static void blocks_and_fused_relus_are_not_torn(void **state)
{
    (void)state;
    tri_model *model = rig_gpt_again();
    tri_sections sections;
    sections_open(model, &sections);
    /* embedding | positions | block | block | norm | loss */
    assert_int_equal(sections.count, 6);
    assert_string_equal(sections.items[2].layer, "0.ln1.weight");
    tri_sections_fini(&sections);
    tri_model_destroy(model);
    model = rig_mlp();
    sections_open(model, &sections);
    /* linear | tanh | linear with relu | linear | loss */
    assert_int_equal(sections.count, 5);
    assert_int_equal(sections.items[3].first_node - sections.items[2].first_node, 2);
    tri_sections_fini(&sections);
    tri_model_destroy(model);
}

static tri_sections made_up(const double *costs, const int64_t *bytes, int count, tri_section *items)
{
    for (int s = 0; s < count; s++)
        items[s] =
            (tri_section){.first_node = 10 * s, .end_node = 10 * s + 10, .seconds = costs[s], .nbytes_up = bytes[s]};
    return (tri_sections){items, count};
}

static void the_most_expensive_stage_is_as_cheap_as_can_be(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    tri_section items[COUNT];
    tri_rng rng = {3, 1};
    for (uint64_t trial = 0; trial < 200; trial++) {
        double costs[COUNT];
        int64_t bytes[COUNT];
        for (int s = 0; s < COUNT; s++) {
            costs[s] = 1 + (double)tri_rng_below(rng, trial * 100 + (uint64_t)s, 20);
            bytes[s] = 100 + (int64_t)tri_rng_below(rng, trial * 100 + 50 + (uint64_t)s, 50);
        }
        tri_sections sections = made_up(costs, bytes, COUNT, items);
        tri_stages stages;
        OK(tri_stages_choose(&sections, 3, 1, &stages));
        double most = 0, least = INFINITY;
        for (int s = 0; s < 3; s++)
            most = fmax(most, stage_cost(&sections, &stages, s));
        for (int a = 1; a < COUNT; a++)
            for (int b = a + 1; b < COUNT; b++) {
                tri_stages other = {3, {0, 10 * a, 10 * b, 10 * COUNT}};
                least = fmin(least, fmax(stage_cost(&sections, &other, 0),
                                         fmax(stage_cost(&sections, &other, 1), stage_cost(&sections, &other, 2))));
            }
        assert_true(most >= least && most <= 1.021 * least);
    }
}

/* The expensive sections are every fourth one: which rank has which matters. */
static void ranks_with_several_stages_are_balanced(void **state)
{
    (void)state;
    tri_section items[28];
    double costs[28];
    int64_t bytes[28];
    for (int s = 0; s < 28; s++) {
        costs[s] = s % 4 == 3 ? 5 : 1;
        bytes[s] = 1;
    }
    for (int each = 2; each <= 4; each++) {
        tri_sections sections = made_up(costs, bytes, 28, items);
        tri_stages stages;
        double ranks[2] = {0};
        OK(tri_stages_choose(&sections, 2, each, &stages));
        assert_int_equal(stages.count, 2 * each);
        for (int s = 0; s < stages.count; s++) {
            ranks[s % 2] += stage_cost(&sections, &stages, s);
            assert_true(stages.first_node[s] < stages.first_node[s + 1]);
        }
        assert_true(fmax(ranks[0], ranks[1]) <= 28.0 + 1);
    }
}

static void of_cuts_as_good_the_one_with_fewer_bytes_is_taken(void **state)
{
    (void)state;
    tri_section items[6];
    tri_stages stages;
    tri_sections sections = made_up((double[]){50, 49.8, 0.1, 0.1, 50, 50}, (int64_t[]){0, 9, 90, 4, 30, 90}, 6, items);
    OK(tri_stages_choose(&sections, 2, 1, &stages));
    assert_int_equal(stages.first_node[1], 30);
    items[3].nbytes_down = 100;
    OK(tri_stages_choose(&sections, 2, 1, &stages));
    assert_int_equal(stages.first_node[1], 40);
}

static void more_stages_than_sections_are_refused_with_both(void **state)
{
    (void)state;
    tri_model *model = rig_mlp();
    tri_sections sections;
    tri_stages stages;
    sections_open(model, &sections);
    OK(tri_stages_choose(&sections, 5, 1, &stages));
    assert_int_equal(tri_stages_choose(&sections, 6, 1, &stages), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want 6 x 1 stages, the model has 5 sections"));
    tri_sections_fini(&sections);
    tri_model_destroy(model);
}

static void layers_are_cut_by_name(void **state)
{
    (void)state;
    tri_model *model = rig_gpt_again();
    tri_sections sections;
    tri_stages stages;
    sections_open(model, &sections);
    OK(tri_stages_by_hand(model, &sections, (const char *[]){"1", "ln1."}, 2, &stages));
    assert_int_equal(stages.count, 3);
    assert_int_equal(stages.first_node[1], sections.items[3].first_node);
    assert_int_equal(stages.first_node[2], sections.items[4].first_node);
    assert_int_equal(tri_stages_by_hand(model, &sections, (const char *[]){"head"}, 1, &stages), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "'head' is the name of no layer"));
    assert_int_equal(tri_stages_by_hand(model, &sections, (const char *[]){"1.fc2"}, 1, &stages), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "cannot be cut before '1.fc2'"));
    assert_non_null(strstr(tri_last_error(), "the nearest place before it: 1.ln1.weight"));
    assert_int_equal(tri_stages_by_hand(model, &sections, (const char *[]){"wte"}, 1, &stages), TRI_ECONFIG);
    assert_int_equal(tri_stages_by_hand(model, &sections, (const char *[]){"1", "0"}, 2, &stages), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "in the order of the model"));
    tri_sections_fini(&sections);
    tri_model_destroy(model);
}

static void tied_weights_are_at_home_once(void **state)
{
    (void)state;
    tri_model *model = rig_gpt();
    int nodes = 0;
    bool wanted[64];
    tri_params *params;
    OK(tri_model_finish(model));
    nodes = (int)model->nodes.count;
    tri_stages stages = {4, {0, 2, 8, nodes - 1, nodes}};
    int holders = 0, homes = 0, ties = 0;
    int64_t elements = 0;
    for (int rank = 0; rank < 4; rank++) {
        tri_stages_wanted(model, &stages, 4, rank, wanted);
        OK(tri_params_create_some(model, wanted, tri_device_host(), 1, &params));
        tri_stages_mark(model, &stages, 4, rank, params);
        const tri_param *entry = tri_params_find(params, "wte.weight");
        holders += entry != NULL;
        homes += entry && !entry->away;
        for (int t = 0; t < params->tie_count; t++)
            ties += !params->ties[t].away;
        for (int e = 0; e < params->entry_count; e++) {
            assert_int_equal(params->entries[e].away, params->entries[e].copy);
            elements += params->entries[e].copy ? 0 : params->entries[e].count;
        }
        assert_true(!entry || rank == 0 || rank == 3);
        assert_int_equal(entry && entry->copy, rank == 3);
        tri_params_destroy(params);
    }
    assert_int_equal(holders, 2);
    assert_int_equal(homes, 1);
    assert_int_equal(ties, 1);
    assert_int_equal(elements, tri_model_param_count(model));
    /* One rank with both ends is alone with it. */
    tri_stages_wanted(model, &stages, 3, 0, wanted);
    OK(tri_params_create_some(model, wanted, tri_device_host(), 1, &params));
    tri_stages_mark(model, &stages, 3, 0, params);
    assert_false(tri_params_find(params, "wte.weight")->away);
    assert_false(params->ties[0].away);
    tri_params_destroy(params);
    tri_model_destroy(model);
}

static void every_section_can_be_measured(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        tri_model *model = rig_models[k].make();
        tri_graph_config config = rig_config("cpu", 1);
        tri_sections sections;
        tri_stages stages;
        sections_open(model, &sections);
        config.shards = 3;
        config.slots = (int)k % 3;
        config.precision = k % 2 ? TRI_BF16 : TRI_F32;
        OK(tri_sections_measure(model, &config, 0.01, &sections));
        for (int s = 0; s < sections.count; s++) {
            assert_true(sections.items[s].seconds > 0);
            assert_true(tri_section_cost(&sections, s) == sections.items[s].seconds);
        }
        OK(tri_stages_choose(&sections, 2, 1, &stages));
        tri_sections_fini(&sections);
        tri_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_cover_the_model_and_its_work),
        cmocka_unit_test(blocks_and_fused_relus_are_not_torn),
        cmocka_unit_test(the_most_expensive_stage_is_as_cheap_as_can_be),
        cmocka_unit_test(ranks_with_several_stages_are_balanced),
        cmocka_unit_test(of_cuts_as_good_the_one_with_fewer_bytes_is_taken),
        cmocka_unit_test(more_stages_than_sections_are_refused_with_both),
        cmocka_unit_test(layers_are_cut_by_name),
        cmocka_unit_test(tied_weights_are_at_home_once),
        cmocka_unit_test(every_section_can_be_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
