/* SPDX-License-Identifier: Apache-2.0
 *
 * test_waves.c: the search for how many shards at once are fastest: what it tries, when it stops, what it keeps; whom
 * it leaves alone; and that no bit depends on what it finds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "train/core/job.h"
#include "train/core/step.h"

static const char config[] = "model:\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - flatten\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 4096, synthetic_width: 32}\n"
                             "train: {batch: 64, shards: 8, epochs: 1, threads: 1}\n"
                             "optim: {lr: 0.1}\n";

static tri_job *open_job(const char *const *overrides)
{
    tri_job *job = NULL;
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = config, .overrides = overrides}, &job), TRI_OK);
    return job;
}

/* Steps of a search, half of their time each way: the first one of each number is slow, as memory is new. */
static void took(tri_job *job, double seconds)
{
    for (int i = 0; i < 4; i++) {
        job->record.forward = job->record.backward = i == 0 ? 1 : (seconds + (i == 2 ? 0 : 0.01)) / 2;
        tri_accumulation_step(job);
    }
}

static void the_fastest_number_is_kept(void **state)
{
    (void)state;
    static const struct {
        double seconds[4]; /* of 8, 4, 2 and 1 shards; 0: is not asked for */
        int64_t found;
    } cases[] = {
        {{0.50, 0.40, 0.30, 0.20}, 1}, {{0.50, 0.40, 0.41, 0.50}, 4},
        {{0.50, 0.53, 0, 0}, 8},       {{0.50, 0.495, 0.492, 0.491}, 8}, /* not worth it */
        {{0.50, 0.51, 0.30, 0.40}, 2},
    };
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_job *job = open_job(NULL);
        int64_t shards = 8;
        for (int i = 0; i < 4 && cases[c].seconds[i] > 0; i++, shards /= 2) {
            assert_true(job->shards.accumulation.searching);
            assert_int_equal(job->shards.accumulation.at_once, shards);
            took(job, cases[c].seconds[i]);
        }
        assert_false(job->shards.accumulation.searching);
        assert_int_equal(job->shards.accumulation.at_once, cases[c].found);
        assert_int_equal(job->shards.accumulation.scratch == NULL,
                         cases[c].found == 8); /* nothing is kept for nothing */
        tri_job_close(job);
    }
}

static void who_is_not_free_does_not_search(void **state)
{
    (void)state;
    static const char *const cases[] = {"train.shards_at_once=8", "train.shards_at_once=2", "parallel.sync=zero1",
                                        "train.shards=1"};
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        tri_job *job = open_job((const char *const[]){cases[c], NULL});
        assert_false(job->shards.accumulation.searching);
        tri_job_close(job);
    }
}

/* Gradients that are large beside the activations would cost more memory than they bring time. */
static void a_model_of_large_weights_does_not_search(void **state)
{
    (void)state;
    static const char large[] = "model: {name: mlp, hidden: [512]}\n"
                                "data: {name: synthetic, synthetic_count: 256, synthetic_width: 32}\n"
                                "train: {batch: 16, threads: 1}\n";
    tri_job *job = NULL;
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = large}, &job), TRI_OK);
    assert_false(job->shards.accumulation.searching);
    assert_int_equal(job->shards.accumulation.levels, 0);
    tri_job_close(job);
}

static uint64_t trained(const char *const *overrides)
{
    bool done = false;
    tri_job *job = open_job(overrides);
    for (int step = 0; step < 24; step++) {
        assert_int_equal(tri_job_step(job, &done), TRI_OK);
    }
    if (overrides == NULL) {
        assert_false(job->shards.accumulation.searching); /* at most 16 steps */
    }
    const uint64_t hash = tri_params_hash(job->params);
    tri_job_close(job);
    return hash;
}

static void no_bit_depends_on_the_search(void **state)
{
    (void)state;
    const uint64_t all = trained((const char *const[]){"train.shards_at_once=8", NULL});
    assert_int_equal(trained(NULL), all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_number_is_kept),
        cmocka_unit_test(who_is_not_free_does_not_search),
        cmocka_unit_test(a_model_of_large_weights_does_not_search),
        cmocka_unit_test(no_bit_depends_on_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
