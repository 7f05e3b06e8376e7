/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "optim/rows.h"
#include "unit/optim/optim_store.h"

static float values[STORE_COUNT], grads[STORE_COUNT], expected[STORE_COUNT];
static float arrays[TRI_OPTIM_MAX_STATE][STORE_COUNT];

static tri_optim_config config_of(const char *name)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    assert_int_equal(tri_options_set(&tri_optim_options, &config, "name", name), TRI_OK);
    config.weight_decay = 0.1;
    config.initial_accumulator = 0.25;
    return config;
}

/* Rows of 16 elements, each with its piece of the state, move as they would in a store. */
static void rows_move_as_the_store_does(void **state)
{
    (void)state;
    for (const char *const *name = tri_optim_names(); *name; name++) {
        tri_optim_config config = config_of(*name);
        tri_optim *optim;
        tri_optim_rows rows;
        assert_int_equal(tri_optim_create(&config, &store, 1, &optim), TRI_OK);
        store_fill(values, grads);
        for (int64_t step = 0; step < 3; step++)
            tri_optim_step(optim, &(tri_optim_scalars){step, 0.1f, 0.5f, 1.0f}, values, grads, 0, 1600);
        memcpy(expected, values, sizeof(values));
        assert_int_equal(tri_optim_rows_init(&rows, &config), TRI_OK);
        assert_int_equal(rows.states, tri_optim_states(&config));
        for (int s = 0; s < rows.states; s++)
            for (int i = 0; i < STORE_COUNT; i++)
                arrays[s][i] = tri_optim_rows_initial(&rows, s);
        store_fill(values, grads);
        for (int64_t step = 0; step < 3; step++) {
            tri_optim_rows_begin(&rows, &(tri_optim_scalars){step, 0.1f, 0.5f, 1.0f});
            for (int row = 99; row >= 0; row--) {
                float *pieces[] = {arrays[0] + 16 * row, arrays[1] + 16 * row};
                tri_optim_rows_step(&rows, values + 16 * row, grads + 16 * row, pieces, 16);
            }
        }
        assert_memory_equal(values, expected, sizeof(values));
        for (int s = 0; s < rows.states; s++)
            assert_memory_equal(arrays[s], tri_optim_state(optim, s), 1600 * sizeof(float));
        tri_optim_destroy(optim);
    }
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    tri_optim_config config = config_of("adam");
    tri_optim_rows rows;
    config.beta1 = 1;
    assert_int_equal(tri_optim_rows_init(&rows, &config), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want less than 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_move_as_the_store_does),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
