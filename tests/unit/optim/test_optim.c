/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "optim/rows.h"
#include "unit/optim/optim_store.h"

static float values[STORE_COUNT], grads[STORE_COUNT], expected[STORE_COUNT];

static tri_optim_config config_of(const char *const *settings)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    for (; *settings; settings += 2)
        assert_int_equal(tri_options_set(&tri_optim_options, &config, settings[0], settings[1]), TRI_OK);
    return config;
}

static tri_optim_scalars figures_of(int64_t step)
{
    return (tri_optim_scalars){.step = step, .lr = 0.1f, .grad_scale = 0.5f, .buffer_scale = 0.25f};
}

/* Plain formulas in double for one element over three steps with the same gradient. */
static double expect_element(const tri_optim_config *config, double x, double g, bool decays)
{
    double m = 0, v = 0, decay = decays ? config->weight_decay : 0, sum = config->initial_accumulator;
    for (int t = 1; t <= 3; t++) {
        double d = g * 0.5;
        if (config->name == TRI_OPTIM_SGD) {
            d += decay * x;
            m = config->momentum * m + d;
            x -= 0.1 * (config->nesterov ? d + config->momentum * m : m);
            continue;
        }
        if (config->name == TRI_OPTIM_ADAGRAD) {
            d += decay * x;
            sum += d * d;
            x -= 0.1 * d / (sqrt(sum) + config->epsilon);
            continue;
        }
        if (config->name == TRI_OPTIM_FTRL) { /* algorithm 1 of the paper; m is z */
            d += decay * x;
            double sigma = (sqrt(sum + d * d) - sqrt(sum)) / 0.1;
            m += d - sigma * x;
            sum += d * d;
            x = fabs(m) <= config->l1
                    ? 0
                    : -(m - (m > 0 ? config->l1 : -config->l1)) / ((config->beta + sqrt(sum)) / 0.1 + config->l2);
            continue;
        }
        assert_true(config->name == TRI_OPTIM_ADAM ||
                    config->name == TRI_OPTIM_ADAMW); /* a new one: its formula here */
        if (config->name == TRI_OPTIM_ADAM)
            d += decay * x;
        else
            x -= 0.1 * decay * x;
        m = config->beta1 * m + (1 - config->beta1) * d;
        v = config->beta2 * v + (1 - config->beta2) * d * d;
        double root = sqrt(v / (1 - pow(config->beta2, t))) + config->epsilon;
        x -= 0.1 * m / (1 - pow(config->beta1, t)) / root;
    }
    return x;
}

static void three_steps_follow_the_formulas(void **state)
{
    (void)state;
    const char *const cases[][9] = {
        {"name", "sgd", "momentum", "0", NULL},
        {"name", "sgd", "weight_decay", "0.01", NULL},
        {"name", "sgd", "nesterov", "true", "weight_decay", "0.1", NULL},
        {"name", "adam", "weight_decay", "0.1", NULL},
        {"name", "adamw", "weight_decay", "0.1", NULL},
        {"name", "adamw", "weight_decay", "0.1", "decay", "weights", NULL},
        {"name", "adagrad", NULL},
        {"name", "adagrad", "epsilon", "0", "initial_accumulator", "0.1", "weight_decay", "0.1", NULL},
        {"name", "ftrl", NULL},
        {"name", "ftrl", "l1", "0.2", "l2", "0.5", "initial_accumulator", "0.1", NULL},
        {"name", "ftrl", "beta", "0.25", "weight_decay", "0.1", NULL},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_optim_config config = config_of(cases[c]);
        tri_optim *optim;
        assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
        store_fill(values, grads);
        memcpy(expected, values, sizeof(values));
        for (int64_t step = 0; step < 3; step++) {
            tri_optim_scalars figures = figures_of(step);
            tri_optim_step(optim, &figures, values, grads, 0, STORE_COUNT);
        }
        for (int e = 0; e < 2; e++)
            for (int64_t i = store_entries[e].first; i < store_entries[e].first + store_entries[e].count; i++) {
                bool decays = e == 0 || config.decay == TRI_DECAY_ALL;
                double want = expect_element(&config, (double)expected[i], (double)grads[i], decays);
                if (fabs((double)values[i] - want) > 3e-6)
                    fail_msg("case %zu element %lld: want %.9g, got %.9g", c, (long long)i, want, (double)values[i]);
            }
        tri_optim_destroy(optim);
    }
}

/* One element over many steps in double; state is what the optimizer keeps, in its order. */
static double reference_step(const tri_optim_config *config, int64_t step, double g, double x, double state[2])
{
    const double lr = 0.001, taken = (double)(step + 1);
    if (config->name == TRI_OPTIM_SGD) {
        g += config->weight_decay * x;
        state[0] = config->momentum * state[0] + g;
        return x - lr * (config->nesterov ? g + config->momentum * state[0] : state[0]);
    }
    if (config->name == TRI_OPTIM_ADAGRAD) {
        state[0] += g * g;
        return x - lr * g / (sqrt(state[0]) + config->epsilon);
    }
    if (config->name == TRI_OPTIM_FTRL) {
        double before = state[1];
        state[1] += g * g;
        state[0] += g - (sqrt(state[1]) - sqrt(before)) / lr * x;
        return -state[0] / ((config->beta + sqrt(state[1])) / lr);
    }
    state[0] = config->beta1 * state[0] + (1 - config->beta1) * g;
    state[1] = config->beta2 * state[1] + (1 - config->beta2) * g * g;
    double first = state[0] / (1 - pow(config->beta1, taken)), second = state[1] / (1 - pow(config->beta2, taken));
    return x - lr * config->weight_decay * x - lr * first / (sqrt(second) + config->epsilon);
}

/* Compares at step 1, where a constant that is off shows in the bias correction, and at 40,000, where the averages are
 * stationary and it shows in their mean. */
static void long_runs_follow_a_reference_in_double(void **state)
{
    (void)state;
    const char *const cases[][9] = {
        {"name", "sgd", "momentum", "0.999", NULL},
        {"name", "sgd", "nesterov", "true", "weight_decay", "0.1", NULL},
        {"name", "adam", "beta2", "0.9999", NULL},
        {"name", "adam", "beta1", "0.9999", "beta2", "0.99999", NULL},
        {"name", "adam", "beta1", "0", "beta2", "0.3", NULL},
        {"name", "adamw", "beta2", "0.9999", "weight_decay", "0.1", NULL},
        {"name", "adagrad", NULL},
        {"name", "ftrl", NULL},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_optim_config config = config_of(cases[c]);
        tri_optim_rows rows;
        assert_int_equal(tri_optim_rows_init(&rows, &config), TRI_OK);
        float x = 0.015625f, first = 0, second = 0, *pieces[] = {&first, &second};
        double want = 0.015625, path = 0, kept[2] = {0};
        tri_rng rng = {7, c};
        for (int64_t step = 0; step < 40000; step++) {
            float g = tri_rng_uniform(rng, (uint64_t)step) - 0.4f;
            tri_optim_rows_begin(&rows, &(tri_optim_scalars){step, 0.001, 1.0f, 1.0f});
            tri_optim_rows_step(&rows, &x, &g, pieces, 1);
            double before = want;
            want = reference_step(&config, step, (double)g, before, kept);
            path += fabs(want - before);
            if (step != 0 && step != 99 && step != 39999)
                continue;
            for (int s = 0; s < rows.states; s++)
                if (fabs((double)*pieces[s] - kept[s]) > 2e-5 * fabs(kept[s]))
                    fail_msg("case %zu step %lld state %d: want %.9g, got %.9g", c, (long long)step, s, kept[s],
                             (double)*pieces[s]);
            if (fabs((double)x - want) > 2e-5 * path + 1e-7 * fabs(want))
                fail_msg("case %zu step %lld: want %.9g, got %.9g", c, (long long)step, want, (double)x);
        }
    }
}

/* 1 - lr * decay in f32 has steps of 6e-8: a decay of 1e-6 would be 1.4 % off. */
static void small_decoupled_decay_is_not_rounded(void **state)
{
    (void)state;
    enum { COUNT = 1024 };
    const char *const settings[] = {"name", "adamw", "weight_decay", "0.01", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim_rows rows;
    static float x[COUNT], g[COUNT], first[COUNT], second[COUNT];
    float *pieces[] = {first, second};
    assert_int_equal(tri_optim_rows_init(&rows, &config), TRI_OK);
    double lost = 0;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1 + (float)i / COUNT;
    tri_optim_rows_begin(&rows, &(tri_optim_scalars){0, 1e-4, 1.0f, 1.0f});
    tri_optim_rows_step(&rows, x, g, pieces, COUNT);
    for (int i = 0; i < COUNT; i++)
        lost += 1 - (double)x[i] / (1 + (double)i / COUNT);
    assert_true(fabs(lost / COUNT / 1e-6 - 1) < 2e-3);
}

static void slow_running_statistics_follow_a_reference_in_double(void **state)
{
    (void)state;
    tri_param entry = {.name = "norm.variance", .count = 1, .buffer = true, .momentum = 1e-4f};
    tri_params one = {.names = store_names,
                      .model_count = 1,
                      .entries = &entry,
                      .entry_count = 1,
                      .count = 1,
                      .block_count = 1,
                      .device = &store_device};
    const char *const none[] = {NULL};
    tri_optim_config config = config_of(none);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &one, 1, &optim), TRI_OK);
    float average = 1;
    double want = 1;
    tri_rng rng = {7, 0};
    for (int64_t step = 0; step < 60000; step++) {
        float sum = 2 * tri_rng_uniform(rng, (uint64_t)step);
        tri_optim_step(optim, &(tri_optim_scalars){step, 0.1, 1.0f, 0.5f}, &average, &sum, 0, 1);
        want += 1e-4 * ((double)sum / 2 - want);
    }
    if (fabs((double)average - want) > 2e-5 * want)
        fail_msg("want %.9g, got %.9g", want, (double)average);
    assert_true(optim_average(1.0f, 1e-9f, 1.0f, 0.0f) == 1e-9f); /* a fraction of 1: the newest alone, exactly */
    tri_optim_destroy(optim);
}

static void running_statistics_take_in_the_mean_over_shards(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    tri_optim_config config = config_of(none);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
    store_fill(values, grads);
    memcpy(expected, values, sizeof(values));
    tri_optim_scalars figures = figures_of(0);
    tri_optim_step(optim, &figures, values, grads, 0, STORE_COUNT);
    for (int64_t i = store_entries[2].first; i < store_entries[2].first + 4; i++)
        assert_float_equal(values[i], 0.9f * expected[i] + 0.1f * grads[i] * 0.25f, 1e-6f);
    memcpy(expected, values, sizeof(values));
    figures.buffer_scale = 0; /* no shard has any */
    tri_optim_step(optim, &figures, values, grads, 0, STORE_COUNT);
    const int64_t first = store_entries[2].first;
    assert_memory_equal(values + first, expected + first, 4 * sizeof(float));
    tri_optim_destroy(optim);
}

static void slices_and_threads_change_no_bit_and_gaps_stay_zero(void **state)
{
    (void)state;
    const char *const names[] = {"sgd", "adam", "adamw", "adagrad", "ftrl"};
    for (size_t n = 0; n < TRI_COUNT_OF(names); n++) {
        const char *const settings[] = {"name", names[n], "weight_decay", "0.1", NULL};
        tri_optim_config config = config_of(settings);
        for (int variant = 0; variant < 4; variant++) {
            tri_optim *optim;
            assert_int_equal(tri_optim_create(&config, &store, 1 + variant % 3, &optim), TRI_OK);
            store_fill(values, grads);
            for (int64_t step = 0; step < 3; step++) {
                tri_optim_scalars figures = figures_of(step);
                int64_t piece = variant == 0 ? STORE_COUNT : 1777 * variant;
                for (int64_t first = 0; first < STORE_COUNT; first += piece)
                    tri_optim_step(optim, &figures, values, grads, first,
                                   STORE_COUNT - first < piece ? STORE_COUNT - first : piece);
            }
            if (variant == 0)
                memcpy(expected, values, sizeof(values));
            assert_memory_equal(values, expected, sizeof(values));
            for (int64_t i = STORE_WEIGHT_COUNT - 3; i < STORE_WEIGHT_COUNT; i++)
                assert_true(values[i] == 0);
            tri_optim_destroy(optim);
        }
    }
}

/* What torch.optim.Adagrad does with these: worked out by its documented formulas, in double, by hand. */
static void adagrad_gives_the_figures_of_pytorch(void **state)
{
    (void)state;
    const char *const settings[] = {"name", "adagrad", "epsilon", "1e-10", "initial_accumulator", "0.5", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
    memset(values, 0, sizeof(values));
    memset(grads, 0, sizeof(grads));
    const float steps[] = {1.0f, -2.0f, 0.5f};
    /* sums 1.5, 5.5, 5.75: -0.1 / 1.2247449, + 0.2 / 2.3452079, - 0.05 / 2.3979158 */
    const double want[] = {-0.0816496581, 0.0036307174, -0.0172207112};
    for (int64_t step = 0; step < 3; step++) {
        values[1] = 3; /* without a gradient */
        grads[0] = steps[step];
        tri_optim_step(optim, &(tri_optim_scalars){step, 0.1f, 1.0f, 1.0f}, values, grads, 0, STORE_COUNT);
        assert_true(fabs((double)values[0] - want[step]) < 1e-7);
        assert_true(values[1] == 3);
    }
    assert_true(tri_optim_state(optim, 0)[1] == 0.5f && tri_optim_state(optim, 0)[0] == 5.75f);
    tri_optim_destroy(optim);
}

static void without_epsilon_a_weight_without_gradient_stays(void **state)
{
    (void)state;
    const char *const settings[] = {"name", "adagrad", "epsilon", "0", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
    store_fill(values, grads);
    memset(grads, 0, sizeof(grads));
    memcpy(expected, values, sizeof(values));
    tri_optim_step(optim, &(tri_optim_scalars){0, 0.1f, 1.0f, 1.0f}, values, grads, 0, STORE_COUNT);
    assert_memory_equal(values, expected, sizeof(float) * STORE_WEIGHT_COUNT);
    tri_optim_destroy(optim);
}

/* L1 makes weights exactly 0; a learning rate of 0 moves none. */
static void ftrl_gives_zeros_and_rests_at_rate_zero(void **state)
{
    (void)state;
    const char *const settings[] = {"name", "ftrl", "l1", "1", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
    memset(values, 0, sizeof(values));
    memset(grads, 0, sizeof(grads));
    for (int64_t step = 0; step < 4; step++) {
        grads[0] = step % 2 ? 0.75f : -0.5f; /* z stays below l1 */
        grads[1] = -0.5f;                    /* z reaches -2 */
        tri_optim_step(optim, &(tri_optim_scalars){step, 0.1f, 1.0f, 1.0f}, values, grads, 0, STORE_COUNT);
        assert_true(values[0] == 0);
        assert_true((values[1] > 0) == (step >= 2));
    }
    memcpy(expected, values, sizeof(values));
    tri_optim_step(optim, &(tri_optim_scalars){4, 0.0f, 1.0f, 1.0f}, values, grads, 0, STORE_COUNT);
    assert_memory_equal(values, expected, sizeof(values));
    tri_optim_destroy(optim);
}

static void an_unknown_name_is_told_all_that_there_are(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    tri_optim_config config = config_of(none);
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "name", "none"), TRI_ECONFIG);
    assert_string_equal(tri_last_error(), "optim.name: want one of sgd|adam|adamw|adagrad|ftrl, got \"none\"");
}

/* Three optimizers, each with the state of its part of the store, are one; a cut goes through an entry, one part is
 * empty. */
static void parts_with_state_of_their_own_move_as_the_whole(void **state)
{
    (void)state;
    const int64_t cuts[] = {0, 17008, 17008, STORE_COUNT};
    const char *const settings[] = {"name", "adamw", "weight_decay", "0.1", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *whole, *parts[3];
    assert_int_equal(tri_optim_create(&config, &store, 2, &whole), TRI_OK);
    assert_int_equal(tri_optim_nbytes(whole), 2 * STORE_COUNT * sizeof(float));
    store_fill(values, grads);
    for (int64_t step = 0; step < 3; step++)
        tri_optim_step(whole, &(tri_optim_scalars){step, 0.01f, 0.5f, 0.25f}, values, grads, 0, STORE_COUNT);
    memcpy(expected, values, sizeof(values));
    store_fill(values, grads);
    for (int p = 0; p < 3; p++) {
        int64_t count = cuts[p + 1] - cuts[p];
        assert_int_equal(tri_optim_create_part(&config, &store, cuts[p], count, 2, &parts[p]), TRI_OK);
        assert_int_equal(tri_optim_nbytes(parts[p]), 2 * (size_t)count * sizeof(float));
        for (int64_t step = 0; step < 3; step++)
            tri_optim_step(parts[p], &(tri_optim_scalars){step, 0.01f, 0.5f, 0.25f}, values, grads, cuts[p], count);
        for (int s = 0; s < 2; s++)
            assert_memory_equal(tri_optim_state(parts[p], s), tri_optim_state(whole, s) + cuts[p],
                                (size_t)count * sizeof(float));
        tri_optim_destroy(parts[p]);
    }
    assert_memory_equal(values, expected, sizeof(values));
    tri_optim_destroy(whole);
}

/* Slices of the store, each with values and gradients somewhere else, move as the whole does. */
static void slices_that_lie_apart_move_as_the_whole(void **state)
{
    (void)state;
    const tri_slice slices[] = {{0, 16}, {4096, 8192}, {17008, 32}};
    const char *const settings[] = {"name", "adamw", "weight_decay", "0.1", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *whole, *share;
    static float own_values[8240], own_grads[8240];
    assert_int_equal(tri_optim_create(&config, &store, 2, &whole), TRI_OK);
    assert_int_equal(tri_optim_create_share(&config, &store, slices, 3, 2, &share), TRI_OK);
    assert_int_equal(tri_optim_nbytes(share), 2 * 8240 * sizeof(float));
    store_fill(values, grads);
    for (int64_t i = 0, at = 0; i < 3; at += slices[i++].count) {
        memcpy(own_values + at, values + slices[i].first, (size_t)slices[i].count * sizeof(float));
        memcpy(own_grads + at, grads + slices[i].first, (size_t)slices[i].count * sizeof(float));
    }
    for (int64_t step = 0; step < 3; step++) {
        tri_optim_scalars figures = {step, 0.01f, 0.5f, 0.25f};
        tri_optim_step(whole, &figures, values, grads, 0, STORE_COUNT);
        for (int64_t i = 0, at = 0; i < 3; at += slices[i++].count)
            tri_optim_step_at(share, &figures, own_values + at, own_grads + at, slices[i].first, slices[i].count);
    }
    for (int64_t i = 0, at = 0; i < 3; at += slices[i++].count) {
        size_t nbytes = (size_t)slices[i].count * sizeof(float);
        assert_memory_equal(own_values + at, values + slices[i].first, nbytes);
        for (int s = 0; s < 2; s++)
            assert_memory_equal(tri_optim_state(share, s) + at, tri_optim_state(whole, s) + slices[i].first, nbytes);
    }
    tri_optim_destroy(whole);
    tri_optim_destroy(share);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    const char *const settings[] = {"name", "adamw", NULL};
    tri_optim_config config = config_of(settings);
    tri_optim *optim;
    assert_int_equal(tri_optim_create(&config, &store, 2, &optim), TRI_OK);
    store_fill(values, grads);
    tri_optim_scalars figures = figures_of(0);
    uint64_t calls = tri_memory_now().calls;
    tri_optim_step(optim, &figures, values, grads, 0, STORE_COUNT);
    assert_int_equal(tri_memory_now().calls, calls);
    tri_optim_destroy(optim);
}

static void state_is_named_as_in_pytorch(void **state)
{
    (void)state;
    const struct {
        const char *name, *momentum, *first, *second;
    } cases[] = {{"sgd", "0.9", "momentum", NULL},
                 {"sgd", "0", NULL, NULL},
                 {"adam", "0", "exp_avg", "exp_avg_sq"},
                 {"adagrad", "0", "sum", NULL},
                 {"ftrl", "0", "z", "n"}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const settings[] = {"name", cases[i].name, "momentum", cases[i].momentum, NULL};
        tri_optim_config config = config_of(settings);
        tri_optim *optim;
        assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
        const char *names[] = {cases[i].first, cases[i].second};
        assert_int_equal(tri_optim_states(&config), (names[0] != NULL) + (names[1] != NULL));
        for (int s = 0; s < 2; s++) {
            const char *name = tri_optim_state_name(optim, s);
            assert_int_equal(name == NULL, names[s] == NULL);
            if (name)
                assert_string_equal(name, names[s]);
        }
        assert_null(tri_optim_state_name(optim, 2));
        tri_optim_destroy(optim);
    }
}

/* The gradient's norm by slices that end at `cut`. */
static double norm_by_slices(int64_t cut, int threads)
{
    static double blocks[64];
    assert_true(store.block_count <= 64);
    memset(blocks, 0, sizeof(blocks));
    tri_clip_squares(&store, grads + cut, cut, store.count - cut, blocks, threads);
    tri_clip_squares(&store, grads, 0, cut, blocks, threads);
    return tri_clip_norm(blocks, store.block_count, 0.5);
}

static void the_norm_leaves_out_buffers_and_depends_neither_on_threads_nor_on_slices(void **state)
{
    (void)state;
    store_fill(values, grads);
    double squares = 0;
    for (int e = 0; e < 2; e++)
        for (int64_t i = store_entries[e].first; i < store_entries[e].first + store_entries[e].count; i++)
            squares += (double)grads[i] * (double)grads[i];
    double norm = norm_by_slices(store.count, 1);
    assert_true(fabs(norm - 0.5 * sqrt(squares)) < 1e-9 * norm);
    for (int threads = 1; threads <= 3; threads++)
        for (int64_t cut = 0; cut < STORE_WEIGHT_COUNT; cut += TRI_NORM_BLOCK)
            assert_true(norm_by_slices(cut, threads) == norm);
    assert_true(norm_by_slices(STORE_WEIGHT_COUNT, 1) == norm);
    assert_true(norm_by_slices(STORE_WEIGHT_COUNT + 16, 1) == norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_steps_follow_the_formulas),
        cmocka_unit_test(long_runs_follow_a_reference_in_double),
        cmocka_unit_test(small_decoupled_decay_is_not_rounded),
        cmocka_unit_test(slow_running_statistics_follow_a_reference_in_double),
        cmocka_unit_test(running_statistics_take_in_the_mean_over_shards),
        cmocka_unit_test(slices_and_threads_change_no_bit_and_gaps_stay_zero),
        cmocka_unit_test(adagrad_gives_the_figures_of_pytorch),
        cmocka_unit_test(without_epsilon_a_weight_without_gradient_stays),
        cmocka_unit_test(ftrl_gives_zeros_and_rests_at_rate_zero),
        cmocka_unit_test(an_unknown_name_is_told_all_that_there_are),
        cmocka_unit_test(parts_with_state_of_their_own_move_as_the_whole),
        cmocka_unit_test(slices_that_lie_apart_move_as_the_whole),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(state_is_named_as_in_pytorch),
        cmocka_unit_test(the_norm_leaves_out_buffers_and_depends_neither_on_threads_nor_on_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
