/* SPDX-License-Identifier: Apache-2.0
 *
 * test_graph.c: whole models: gradients against finite differences, kernels against the reference, and the same bits
 * for any cut into parts, any number of threads, and any sharing of memory.
 */
#include "unit/nn/nn_rig.h"

static double dot(const rig *r, const float *a, const float *b)
{
    double sum = 0;
    for (int e = 0; e < r->params->entry_count; e++) {
        const tri_param *entry = &r->params->entries[e];
        for (int64_t i = entry->first; !entry->buffer && i < entry->first + entry->count; i++)
            sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* Half along the gradient, half random, of length about one. */
static void direction_fill(const rig *r, float *direction)
{
    double length = sqrt(dot(r, r->grads[0], r->grads[0]));
    tri_rng rng = {3, 9};
    for (int e = 0; e < r->params->entry_count; e++) {
        const tri_param *entry = &r->params->entries[e];
        for (int64_t i = entry->first; !entry->buffer && i < entry->first + entry->count; i++)
            direction[i] = (float)((double)r->grads[0][i] / length +
                                   (double)tri_rng_normal(rng, (uint64_t)i) / sqrt((double)r->params->count));
    }
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig r;
        rig_open(&r, rig_models[k].make(), rig_models[k].classes, "reference", 1, true);
        rig_run_whole(&r, 4);
        tri_params_fold(r.params, 1, r.grads[0]);
        float *direction = calloc((size_t)r.params->count, sizeof(float));
        float *start = malloc((size_t)r.params->count * sizeof(float));
        direction_fill(&r, direction);
        double slope = dot(&r, r.grads[0], direction);
        memcpy(start, r.params->values, (size_t)r.params->count * sizeof(float));
        double loss[2], step = 1e-3;
        for (int side = 0; side < 2; side++) {
            for (int64_t i = 0; i < r.params->count; i++)
                r.params->values[i] = start[i] + (float)(side ? step : -step) * direction[i];
            loss[side] = rig_loss(&r, 4);
        }
        double found = (loss[1] - loss[0]) / (2 * step);
        if (!(fabs(found - slope) < 0.01 * fabs(slope)))
            fail_msg("%s: difference %g, gradient %g", rig_models[k].name, found, slope);
        free(direction);
        free(start);
        rig_close(&r);
    }
}

static void fast_kernels_agree_with_the_reference(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig a, b;
        rig_open(&a, rig_models[k].make(), rig_models[k].classes, "reference", 1, true);
        rig_open(&b, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        rig_run_whole(&a, 2);
        rig_run_whole(&b, 2);
        float largest = 0;
        for (int64_t i = 0; i < a.params->count; i++)
            largest = fmaxf(largest, fabsf(a.grads[0][i]));
        for (int64_t i = 0; i < tri_params_grad_count(a.params) + TRI_PARAMS_TAIL; i++)
            if (!(fabsf(a.grads[0][i] - b.grads[0][i]) <= 1e-4f * largest + 1e-4f * fabsf(a.grads[0][i])))
                fail_msg("%s: element %lld: reference %g, cpu %g", rig_models[k].name, (long long)i,
                         (double)a.grads[0][i], (double)b.grads[0][i]);
        rig_close(&a);
        rig_close(&b);
    }
}

/* In bf16 and f16: near the gradients of f32, the same bits wherever buffers lie and for any number of threads, in less
 * memory.
 */
static void values_in_16_bits_give_nearly_the_gradients_of_f32(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2 * RIG_MODELS; n++) {
        const size_t k = n / 2;
        const tri_dtype type = n % 2 ? TRI_F16 : TRI_BF16;
        rig wide, half, apart;
        rig_open(&wide, rig_models[k].make(), rig_models[k].classes, "reference", 1, true);
        rig_open_as(&half, rig_models[k].make(), rig_models[k].classes, "cpu", 2, true, type);
        rig_open_as(&apart, rig_models[k].make(), rig_models[k].classes, "cpu", 1, false, type);
        const float loss = rig_run_whole(&wide, 2), near = rig_run_whole(&half, 2);
        rig_run_whole(&apart, 2);
        assert_memory_equal(half.grads[0], apart.grads[0], rig_grad_nbytes(&half));
        assert_true(memcmp(half.grads[0], wide.grads[0], rig_grad_nbytes(&half)) != 0);
        const double together = dot(&wide, wide.grads[0], half.grads[0]);
        const double lengths =
            sqrt(dot(&wide, wide.grads[0], wide.grads[0]) * dot(&wide, half.grads[0], half.grads[0]));
        if (!(together > 0.99 * lengths) || !(fabsf(near - loss) < 0.02f * loss))
            fail_msg("%s: cosine of the gradients %g, losses %g and %g", rig_models[k].name, together / lengths,
                     (double)loss, (double)near);
        rig_close(&wide);
        rig_close(&half);
        rig_close(&apart);
    }
}

static void halves_added_are_the_whole_to_the_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * RIG_MODELS; k++) {
        rig a, b;
        const char *kind = k % 2 ? "cpu" : "reference";
        rig_open(&a, rig_models[k / 2].make(), rig_models[k / 2].classes, kind, 1, true);
        rig_open(&b, rig_models[k / 2].make(), rig_models[k / 2].classes, kind, 1, true);
        rig_run_whole(&a, 2);
        rig_run(&b, 2, (tri_tree_part[]){{0, 4}, {4, 4}}, 2);
        tri_vector_add(1, b.grads[0], b.grads[0], b.grads[1], tri_params_grad_count(b.params) + TRI_PARAMS_TAIL);
        assert_memory_equal(a.grads[0], b.grads[0], rig_grad_nbytes(&a));
        /* {0} {1} {2,3} {4..7}: the steps of tri_tree_plan() */
        tri_tree_part parts[] = {{0, 1}, {1, 1}, {2, 2}, {4, 4}};
        tri_tree_step steps[3];
        rig_run(&b, 4, parts, 2);
        int count = tri_tree_plan(parts, 4, steps);
        for (int i = 0; i < count; i++)
            tri_vector_add(1, b.grads[steps[i].into], b.grads[steps[i].into], b.grads[steps[i].from],
                           tri_params_grad_count(b.params) + TRI_PARAMS_TAIL);
        assert_memory_equal(a.grads[0], b.grads[0], rig_grad_nbytes(&a));
        rig_close(&a);
        rig_close(&b);
    }
}

/* Two workers with four shards each: what the layout of ranks does. */
static void shards_of_two_workers_give_the_bits_of_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_SPLIT_MODELS; k++) {
        rig a, b;
        rig_open(&a, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        rig_open(&b, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        rig_run_whole(&a, 7);
        const tri_value_spec *values = b.model->values.items;
        size_t in = (size_t)tri_shape_count(values[b.model->input].sample) * 4 * RIG_ROWS * 4;
        size_t out = (size_t)tri_shape_count(values[b.model->target].sample) * 4 * RIG_ROWS * 4;
        for (int worker = 0; worker < 2; worker++) {
            tri_batch half = {.shards = 4,
                              .rows = b.rows + 4 * worker,
                              .first_sample = b.first_sample + 4 * worker,
                              .input = (char *)b.input + (size_t)worker * in,
                              .target = (char *)b.target + (size_t)worker * out};
            tri_tree_part part = {0, 4};
            const float(*sums)[4];
            OK(tri_graph_grads_set(b.graph, 1, &part, &b.grads[worker]));
            OK(tri_graph_forward(b.graph, &half, 7, true, &sums));
            OK(tri_graph_backward(b.graph, NULL, NULL));
        }
        tri_vector_add(1, b.grads[0], b.grads[0], b.grads[1], tri_params_grad_count(b.params) + TRI_PARAMS_TAIL);
        assert_memory_equal(a.grads[0], b.grads[0], rig_grad_nbytes(&a));
        rig_close(&a);
        rig_close(&b);
    }
}

static void threads_and_sharing_of_memory_change_no_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        for (int variant = 0; variant < 6; variant++) {
            rig a, b;
            const char *kind = variant % 2 ? "cpu" : "reference";
            rig_open(&a, rig_models[k].make(), rig_models[k].classes, kind, 1, false);
            rig_open(&b, rig_models[k].make(), rig_models[k].classes, kind, 1 + variant / 2, true);
            for (uint64_t step = 0; step < 2; step++) { /* the second run finds the first one's remains */
                rig_run_whole(&a, step);
                rig_run_whole(&b, step);
                assert_memory_equal(a.grads[0], b.grads[0], rig_grad_nbytes(&a));
            }
            rig_close(&a);
            rig_close(&b);
        }
    }
}

static void count_ready(void *arg, int entry)
{
    int *seen = arg;
    seen[entry + 1]++;
    if (seen[0]++ == 0)
        seen[0] += 1000 * entry; /* the first one */
}

static void each_entry_is_announced_once_and_the_tail_first(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, rig_resnet(), 5, "cpu", 1, true);
    int seen[64] = {0}, entries = r.params->entry_count;
    tri_tree_part whole = {0, RIG_SHARDS};
    const float(*sums)[4];
    OK(tri_graph_grads_set(r.graph, 1, &whole, r.grads));
    OK(tri_graph_forward(r.graph, &r.batch, 0, true, &sums));
    OK(tri_graph_backward(r.graph, count_ready, seen));
    assert_int_equal(seen[0], 1000 * entries + entries + 1);
    for (int e = 0; e <= entries; e++)
        assert_int_equal(seen[e + 1], 1);
    const float *tail = r.grads[0] + r.params->count;
    assert_true(tail[TRI_TAIL_WEIGHT] == 20 && tail[TRI_TAIL_SHARDS] == 7 && tail[TRI_TAIL_STOP] == 0);
    float right = 0;
    for (int s = 0; s < RIG_SHARDS; s++)
        right += sums[s][2];
    assert_true(tail[TRI_TAIL_RIGHT] == right);
    rig_close(&r);
}

/* All matrices stand still: their gradients are left alone, all others are the same, and less is kept for the way down.
 */
static void frozen_matrices_have_no_gradients_and_keep_no_inputs(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig all, some;
        tri_graph *graph;
        rig_open(&all, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        rig_open(&some, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        tri_params *params = some.params;
        for (int e = 0; e < params->entry_count; e++)
            params->entries[e].frozen = params->entries[e].shape.ndim > 1;
        tri_graph_config config = rig_config("cpu", 1);
        OK(tri_graph_compile(some.model, params, &config, &graph));
        tri_graph_destroy(some.graph);
        some.graph = graph;
        rig_run_whole(&all, 2);
        rig_run_whole(&some, 2);
        for (int e = 0; e < params->entry_count; e++)
            for (int64_t i = params->entries[e].first; i < params->entries[e].first + params->entries[e].count; i++)
                if (params->entries[e].frozen ? !isnan(some.grads[0][i])
                                              : memcmp(&some.grads[0][i], &all.grads[0][i], sizeof(float)) != 0)
                    fail_msg("%s: %s, element %lld: %g, with all %g", rig_models[k].name, params->entries[e].name,
                             (long long)i, (double)some.grads[0][i], (double)all.grads[0][i]);
        if (!(some.graph->planned_nbytes <= all.graph->planned_nbytes))
            fail_msg("%s: %zu bytes, with all %zu", rig_models[k].name, some.graph->planned_nbytes,
                     all.graph->planned_nbytes);
        rig_close(&all);
        rig_close(&some);
    }
}

/* Three layers in a row, the upper two frozen: what goes into those is not kept. */
static void inputs_of_frozen_layers_are_not_kept(void **state)
{
    (void)state;
    tri_graph_bytes bytes[2];
    for (int frozen = 0; frozen < 2; frozen++) {
        tri_value x, y;
        tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){7}, &x, &y);
        for (int layer = 0; layer < 3; layer++)
            x = tri_linear(m, x, (tri_linear_options){.units = 256});
        tri_cross_entropy(m, tri_linear(m, x, (tri_linear_options){.units = 5}), y, 0);
        OK(tri_model_finish(m));
        bool still[8] = {false};
        for (int p = 2; p < 8; p++)
            still[p] = frozen == 1;
        tri_graph_config config = rig_config("cpu", 1);
        config.rows = 512;
        config.frozen = still;
        OK(tri_graph_memory_find(m, &config, &bytes[frozen]));
        assert_true(bytes[frozen].slot == 0 && bytes[frozen].rounded == 0);
        tri_model_destroy(m);
    }
    size_t value = (size_t)256 * 512 * RIG_SHARDS * sizeof(float);
    assert_true(bytes[1].planned + 2 * value <= bytes[0].planned);
}

static void blocks_are_formed_again_to_the_bit(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "reference"};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        rig kept, again;
        rig_open(&kept, rig_gpt(), 7, kinds[k], 1, true);
        rig_open(&again, rig_gpt_again(), 7, kinds[k], 2, true);
        for (uint64_t step = 0; step < 2; step++) {
            rig_run_whole(&kept, step);
            rig_run_whole(&again, step);
            assert_memory_equal(kept.grads[0], again.grads[0], rig_grad_nbytes(&kept));
        }
        rig_close(&kept);
        rig_close(&again);
    }
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig r;
        rig_open(&r, rig_models[k].make(), rig_models[k].classes, "cpu", 2, true);
        rig_run_whole(&r, 0);
        uint64_t calls = tri_memory_now().calls;
        rig_run_whole(&r, 1);
        assert_int_equal(tri_memory_now().calls, calls);
        rig_close(&r);
    }
}

static void a_graph_for_evaluation_gives_the_same_logits_with_less_memory(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig r;
        tri_graph *small;
        rig_open(&r, rig_models[k].make(), rig_models[k].classes, "cpu", 1, true);
        tri_graph_config config = rig_config("cpu", 1);
        config.training = false;
        OK(tri_graph_compile(r.model, r.params, &config, &small));
        const float(*sums)[4];
        OK(tri_graph_forward(r.graph, &r.batch, 0, false, &sums));
        float loss = sums[2][0];
        OK(tri_graph_forward(small, &r.batch, 0, false, &sums));
        assert_true(sums[2][0] == loss && isfinite(loss));
        int64_t count = tri_shape_count(tri_model_shape(r.model, r.model->logits)) * RIG_SHARDS * RIG_ROWS;
        assert_memory_equal(tri_graph_logits(small), tri_graph_logits(r.graph), (size_t)count * sizeof(float));
        size_t planned[2], plain;
        tri_graph_memory(r.graph, &planned[0], &plain);
        tri_graph_memory(small, &planned[1], &plain);
        assert_true(planned[1] < planned[0]);
        assert_int_equal(tri_graph_forward(small, &r.batch, 0, true, &sums), TRI_EINVAL);
        tri_graph_destroy(small);
        rig_close(&r);
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, rig_mlp(), 5, "cpu", 1, true);
    const float(*sums)[4];
    tri_tree_part parts[] = {{0, 4}, {4, 4}}, gap[] = {{0, 4}, {5, 1}}, odd[] = {{0, 3}};
    assert_int_equal(tri_graph_forward(r.graph, &r.batch, 0, true, &sums), TRI_EINVAL);
    assert_int_equal(tri_graph_backward(r.graph, NULL, NULL), TRI_EINVAL);
    assert_int_equal(tri_graph_grads_set(r.graph, 2, gap, r.grads), TRI_EINVAL);
    assert_int_equal(tri_graph_grads_set(r.graph, 1, odd, r.grads), TRI_EINVAL);
    assert_int_equal(tri_graph_grads_set(r.graph, 0, odd, r.grads), TRI_EINVAL);
    OK(tri_graph_grads_set(r.graph, 1, parts, r.grads));
    assert_int_equal(tri_graph_forward(r.graph, &r.batch, 0, true, &sums), TRI_EINVAL);
    OK(tri_graph_grads_set(r.graph, 2, parts, r.grads));
    OK(tri_graph_forward(r.graph, &r.batch, 0, true, &sums));
    OK(tri_graph_backward(r.graph, NULL, NULL));
    assert_int_equal(tri_graph_backward(r.graph, NULL, NULL), TRI_EINVAL);
    r.rows[0] = RIG_ROWS + 1;
    assert_int_equal(tri_graph_forward(r.graph, &r.batch, 0, true, &sums), TRI_EINVAL);
    tri_graph *none = NULL;
    tri_graph_config config = rig_config("gpu", 1);
    assert_int_equal(tri_graph_compile(r.model, r.params, &config, &none), TRI_EINVAL);
    config = rig_config("cpu", 0);
    assert_int_equal(tri_graph_compile(r.model, r.params, &config, &none), TRI_EINVAL);
    assert_null(none);
    rig_close(&r);
}

static void flops_are_those_of_the_products(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, rig_mlp(), 5, "cpu", 1, true);
    /* 7 -> 11: up and weights; 11 -> 6 and 6 -> 5: up, weights, inputs */
    assert_true(tri_graph_flops(r.graph) == 2.0 * (2 * 77 + 3 * 66 + 3 * 30));
    rig_close(&r);
}

/* concat(z, relu(z)) with z = linear(x): what the other reader of z sees must not be cut at zero. */
static void relu_is_fused_only_where_nobody_else_reads(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        tri_value x, y;
        tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){3}, &x, &y);
        tri_value z = tri_linear(m, x, (tri_linear_options){.units = 3, .no_bias = true});
        tri_value cut = tri_relu(m, z);
        tri_value both = shared ? tri_concat(m, (tri_value[]){z, cut}, 2, 0) : cut;
        tri_cross_entropy(m, both, y, 0);
        rig r;
        rig_open(&r, m, 3, "cpu", 1, true);
        for (int i = 0; i < 9; i++)
            r.params->values[i] = i % 4 == 0 ? 1.0f : 0.0f; /* z = x */
        tri_tree_part whole = {0, RIG_SHARDS};
        OK(tri_graph_grads_set(r.graph, 1, &whole, r.grads));
        rig_loss(&r, 0);
        assert_int_equal(r.graph->op_count, shared ? 4 : 2);
        const float *input = r.input, *found = tri_graph_logits(r.graph);
        int negative = 0;
        for (int row = 0; row < RIG_SHARDS * RIG_ROWS; row++) {
            for (int i = 0; i < 3; i++) {
                float value = input[3 * row + i], above = value > 0 ? value : 0;
                negative += value < 0;
                assert_true(found[(shared ? 6 : 3) * row + (shared ? 3 : 0) + i] == above);
                assert_true(!shared || found[6 * row + i] == value);
            }
        }
        assert_true(negative > 10);
        rig_close(&r);
    }
}

static void a_pool_is_fused_to_the_bit_where_that_is_faster(void **state)
{
    (void)state;
    rig fused, apart, plain;
    rig_open(&fused, rig_pooled(), 5, "cpu", 1, true);
    rig_open(&apart, rig_pooled_as(true), 5, "cpu", 1, true);
    rig_open(&plain, rig_pooled(), 5, "tiles", 1, true);
    assert_int_equal(plain.graph->op_count, 6); /* tiles know no fused pool */
    assert_true(fused.graph->op_count < 6);     /* the first one at least */
    assert_int_equal(apart.graph->op_count, 8);
    assert_true(tri_graph_flops(fused.graph) == tri_graph_flops(plain.graph));
    assert_true(fused.graph->planned_nbytes < apart.graph->planned_nbytes);
    for (uint64_t step = 0; step < 2; step++) {
        rig_run_whole(&fused, step);
        rig_run_whole(&apart, step);
        assert_memory_equal(fused.grads[0], apart.grads[0], rig_grad_nbytes(&fused));
    }
    rig_close(&fused);
    rig_close(&apart);
    rig_close(&plain);
}

/* Points inside or outside a ring. */
static void an_mlp_learns_a_toy_problem(void **state)
{
    (void)state;
    tri_value x, y;
    tri_model *m = rig_start(TRI_F32, 1, (int64_t[]){2}, &x, &y);
    x = tri_linear(m, x, (tri_linear_options){.units = 32, .relu = true});
    x = tri_linear(m, x, (tri_linear_options){.units = 32, .relu = true});
    tri_cross_entropy(m, tri_linear(m, x, (tri_linear_options){.units = 2}), y, 0);
    OK(tri_model_finish(m));
    enum { ROWS = 32 };
    tri_params *params;
    tri_graph *graph;
    OK(tri_params_create(m, tri_device_host(), 3, &params));
    tri_graph_config config = {.kind = "cpu", .rows = ROWS, .shards = 8, .threads = 1, .training = true};
    OK(tri_graph_compile(m, params, &config, &graph));
    float input[8 * ROWS][2];
    int32_t target[8 * ROWS], rows[8];
    int64_t first[8];
    for (uint64_t i = 0; i < 8 * ROWS; i++) {
        for (uint64_t d = 0; d < 2; d++)
            input[i][d] = 2 * tri_rng_uniform((tri_rng){1, 2}, 2 * i + d) - 1;
        target[i] = input[i][0] * input[i][0] + input[i][1] * input[i][1] > 0.5f;
    }
    for (int s = 0; s < 8; s++) {
        rows[s] = ROWS;
        first[s] = s * ROWS;
    }
    tri_batch batch = {.shards = 8, .rows = rows, .first_sample = first, .input = input, .target = target};
    float *grad = calloc((size_t)(params->count + TRI_PARAMS_TAIL), sizeof(float));
    tri_tree_part whole = {0, 8};
    const float(*sums)[4];
    OK(tri_graph_grads_set(graph, 1, &whole, &grad));
    for (uint64_t step = 0; step < 500; step++) {
        OK(tri_graph_forward(graph, &batch, step, true, &sums));
        OK(tri_graph_backward(graph, NULL, NULL));
        for (int64_t i = 0; i < params->count; i++)
            params->values[i] -= 0.5f * grad[i] / (8 * ROWS);
    }
    if (!(grad[params->count + TRI_TAIL_RIGHT] > 0.95f * 8 * ROWS))
        fail_msg("only %g of %d right", (double)grad[params->count + TRI_TAIL_RIGHT], 8 * ROWS);
    free(grad);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
    tri_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(fast_kernels_agree_with_the_reference),
        cmocka_unit_test(values_in_16_bits_give_nearly_the_gradients_of_f32),
        cmocka_unit_test(halves_added_are_the_whole_to_the_bit),
        cmocka_unit_test(shards_of_two_workers_give_the_bits_of_one),
        cmocka_unit_test(threads_and_sharing_of_memory_change_no_bit),
        cmocka_unit_test(each_entry_is_announced_once_and_the_tail_first),
        cmocka_unit_test(frozen_matrices_have_no_gradients_and_keep_no_inputs),
        cmocka_unit_test(inputs_of_frozen_layers_are_not_kept),
        cmocka_unit_test(blocks_are_formed_again_to_the_bit),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(a_graph_for_evaluation_gives_the_same_logits_with_less_memory),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(flops_are_those_of_the_products),
        cmocka_unit_test(relu_is_fused_only_where_nobody_else_reads),
        cmocka_unit_test(a_pool_is_fused_to_the_bit_where_that_is_faster),
        cmocka_unit_test(an_mlp_learns_a_toy_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
