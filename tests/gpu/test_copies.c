/* SPDX-License-Identifier: Apache-2.0
 *
 * test_copies.c: copies of weights in 16 bits, on the fake libcuda: graphs with and without them give the same bits,
 * whoever has written weights in between, and round only what an optimizer has not.
 */
#include "unit/nn/nn_rig.h"

#include "kernel/array.h"
#include "kernel/gpu/flat.h"
#include "optim/step.h"

#define WORDS   40
#define ENTRIES 3 /* that products read in bf16: two layers and the words */

static tri_device *card;

/* The first layer multiplies f32. */
static tri_model *layers(void)
{
    tri_model *m;
    OK(tri_model_create("layers", &m));
    tri_value x = tri_model_input(m, TRI_F32, tri_shape_make(1, (int64_t[]){24}));
    tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(0, NULL));
    x = tri_linear(m, x, (tri_linear_options){.units = 40, .relu = true});
    x = tri_linear(m, x, (tri_linear_options){.units = 56, .relu = true});
    x = tri_linear(m, x, (tri_linear_options){.units = 24, .no_bias = true});
    tri_vocab_loss(m, x, y, (tri_vocab_loss_options){.words = WORDS});
    return m;
}

/* Two graphs over one store: the first one keeps copies. */
typedef struct pair {
    rig r;
    tri_graph *graphs[2];
    tri_optim *optim;
    float *grads[2]; /* of the card */
} pair;

static size_t grads_nbytes(const pair *p)
{
    return (size_t)(tri_params_grad_count(p->r.params) + TRI_PARAMS_TAIL) * sizeof(float);
}

static void pair_open(pair *p)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    config.name = TRI_OPTIM_ADAMW;
    *p = (pair){.r.model = layers()};
    OK(tri_model_finish(p->r.model));
    OK(tri_params_create(p->r.model, card, 1, &p->r.params));
    OK(tri_optim_create(&config, p->r.params, 1, &p->optim));
    rig_fill_batch(&p->r, WORDS);
    for (int g = 0; g < 2; g++) {
        tri_graph_config graph = rig_config("cuda", 1);
        graph.precision = TRI_BF16;
        graph.keeps_rounded = g == 0;
        OK(tri_graph_compile(p->r.model, p->r.params, &graph, &p->graphs[g]));
        p->grads[g] = tri_device_alloc(card, grads_nbytes(p));
        assert_non_null(p->grads[g]);
    }
}

static void pair_close(pair *p)
{
    for (int g = 0; g < 2; g++) {
        tri_graph_destroy(p->graphs[g]);
        tri_device_free(card, p->grads[g]);
    }
    tri_optim_destroy(p->optim);
    rig_close(&p->r);
}

/* The loss and all gradients. */
static float *run(const pair *p, int g)
{
    const tri_tree_part whole = {0, RIG_SHARDS};
    float *found = calloc(1, grads_nbytes(p));
    OK(tri_graph_grads_set(p->graphs[g], 1, &whole, &p->grads[g]));
    OK(tri_graph_forward(p->graphs[g], &p->r.batch, 1, true, NULL));
    OK(tri_graph_backward(p->graphs[g], NULL, NULL));
    tri_device_to_host(card, found, p->grads[g], grads_nbytes(p));
    return found;
}

static bool same(const pair *p)
{
    float *kept = run(p, 0), *plain = run(p, 1);
    const bool equal = memcmp(kept, plain, grads_nbytes(p)) == 0;
    free(kept);
    free(plain);
    return equal;
}

/* How often values are rounded in a forward pass of the graph that keeps copies. */
static int casts(const pair *p)
{
    tri_device_kernel *kernels;
    int64_t count;
    int found = 0;
    tri_device_kernels_time(card, 0);
    OK(tri_graph_forward(p->graphs[0], &p->r.batch, 1, false, NULL));
    OK(tri_device_kernels_read(card, &kernels, &count));
    tri_device_kernels_time(card, -1);
    assert_true(count > 0);
    for (int64_t k = 0; k < count; k++)
        found += strcmp(kernels[k].name, "cast") == 0;
    tri_free(kernels);
    return found;
}

static float *weights(const pair *p, const char *name)
{
    return p->r.params->values + tri_params_find(p->r.params, name)->first;
}

static void weights_are_rounded_once_until_they_change(void **state)
{
    (void)state;
    pair p;
    pair_open(&p);
    assert_int_equal(casts(&p), ENTRIES);
    assert_int_equal(casts(&p), 0);
    assert_true(same(&p));
    assert_int_equal(casts(&p), 0);
    tri_device_fill(card, weights(&p, "fc2.weight"), 0, 8);
    assert_int_equal(casts(&p), 1);
    assert_true(same(&p));
    tri_device_fill(card, p.r.params->values, 0, (size_t)p.r.params->count * sizeof(float));
    assert_int_equal(casts(&p), ENTRIES);
    assert_true(same(&p));
    pair_close(&p);
}

static void optimizers_write_the_copies_too(void **state)
{
    (void)state;
    pair p;
    pair_open(&p);
    assert_true(same(&p));
    for (int64_t step = 0; step < 3; step++) { /* the last one in two pieces, the second within an entry */
        const tri_optim_scalars scalars = {.step = step, .lr = 0.01, .grad_scale = 0.1f};
        const int64_t all = p.r.params->count,
                      first = step < 2 ? all : weights(&p, "fc2.weight") - p.r.params->values + 7;
        tri_optim_step(p.optim, &scalars, p.r.params->values, p.grads[1], 0, first);
        if (first < all)
            tri_optim_step_at(p.optim, &scalars, p.r.params->values + first, p.grads[1] + first, first, all - first);
        assert_int_equal(casts(&p), 0);
        assert_true(same(&p));
    }
    pair_close(&p);
}

/* Each way in which something else than an optimizer writes weights; the last one says nothing of it. */
enum { BY_COPY, BY_HOST, BY_PINNED, BY_VIEW, BY_AVERAGE, BY_OTHERS, BY_FILL, BY_ADD, BY_FOLD, UNSAID, WAYS };

/* An optimizer that belongs to another store, which has no copies. */
static void step_by_others(const pair *p, float *values)
{
    const tri_optim_scalars scalars = {.lr = 0.01, .grad_scale = 0.1f};
    pair other;
    pair_open(&other);
    tri_optim_step(other.optim, &scalars, values, p->grads[1], 0, p->r.params->count);
    pair_close(&other);
}

static void write_by(const pair *p, int way)
{
    float *to = weights(p, "fc3.weight"), host[2] = {3, -4};
    tri_device_view view;
    switch (way) {
    case BY_COPY:
        tri_device_copy(card, to, weights(p, "fc1.weight"), 64);
        break;
    case BY_HOST:
        tri_device_from_host(card, to, host, sizeof(host));
        break;
    case BY_PINNED: {
        float *pinned = tri_device_host_alloc(card, sizeof(host));
        tri_device_event event;
        memcpy(pinned, host, sizeof(host));
        OK(tri_device_event_create(card, &event));
        tri_device_copy_in(card, to, pinned, sizeof(host));
        tri_device_event_record(card, event, TRI_QUEUE_COPIES);
        tri_device_event_wait(card, event);
        tri_device_event_destroy(card, &event);
        tri_device_host_free(card, pinned);
        break;
    }
    case BY_VIEW:
        OK(tri_device_view_open(&view, card, to, 64));
        ((float *)view.host)[3] = 5;
        tri_device_view_write(&view);
        tri_device_view_close(&view);
        break;
    case BY_AVERAGE:
        optim_gpu_average(card, 0.5f, 1, to, p->grads[1], 16);
        break;
    case BY_OTHERS:
        step_by_others(p, p->r.params->values);
        break;
    case BY_FILL:
        tri_array_fill(card, to, 2, 16);
        break;
    case BY_ADD:
        tri_array_add(card, 1, to, to, to, 16);
        break;
    case BY_FOLD:
        tri_array_fold(card, p->grads[1], 16, 16, &(tri_tree_part){0, 2}, 1, &to);
        break;
    default:
        tri_gpu_fill(tri_gpu_queue_of(card), to, 2, 16);
    }
}

static void whoever_writes_weights_the_copy_follows(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        pair p;
        pair_open(&p);
        assert_true(same(&p));
        write_by(&p, way);
        if (same(&p) == (way == UNSAID))
            fail_msg("way %d: the copy is%s that of the weights", way, way == UNSAID ? "" : " not");
        pair_close(&p);
    }
}

/* Where another store of the device has copies, products round for themselves. */
static void one_store_of_a_device_has_copies(void **state)
{
    (void)state;
    pair first, second;
    pair_open(&first);
    pair_open(&second);
    assert_int_equal(casts(&first), ENTRIES);
    assert_int_equal(casts(&first), 0);
    assert_int_equal(casts(&second), ENTRIES);
    assert_int_equal(casts(&second), ENTRIES);
    tri_device_fill(card, weights(&second, "fc2.weight"), 0, 8);
    assert_true(same(&first) && same(&second));
    pair_close(&first);
    pair_close(&second);
    pair_open(&second);
    assert_int_equal(casts(&second), ENTRIES);
    assert_int_equal(casts(&second), 0);
    pair_close(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_rounded_once_until_they_change), cmocka_unit_test(optimizers_write_the_copies_too),
        cmocka_unit_test(whoever_writes_weights_the_copy_follows), cmocka_unit_test(one_store_of_a_device_has_copies)};
    OK(tri_device_open("cuda:0", &card));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_device_close(card);
    return failed;
}
