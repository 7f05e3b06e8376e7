/* SPDX-License-Identifier: Apache-2.0
 *
 * test_step.c: plan, then run: a step allocates nothing, on one rank and on several; and jobs fail cleanly when memory
 * does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ranks/train/failing_open.h"

#include "base/memory.h"
#include "base/runtime.h"
#include "comm/comm.h"
#include "train/core/job.h"
#include "train/core/plan.h"

#define WARM_STEPS    4
#define COUNTED_STEPS 8
#define MAX_RANKS     3

static const char config[] = "model:\n"
                             "  layers:\n"
                             "    - reshape: [4, 4, 2]\n"
                             "    - conv2d: {out: 4, kernel: 3, pad: 1}\n"
                             "    - batch_norm\n"
                             "    - relu\n"
                             "    - max_pool: 2\n"
                             "    - flatten\n"
                             "    - dropout: 0.2\n"
                             "    - linear: classes\n"
                             "data: {name: synthetic, synthetic_count: 4096, synthetic_width: 32}\n"
                             "train: {batch: 64, shards: 8, epochs: 1, threads: 1}\n"
                             "optim: {clip_norm: 1}\n";

typedef struct rank_place {
    tri_hub *hub;
    int rank, world;
    tri_status status;
    uint64_t before, after; /* allocations of the whole process: all ranks step between the same two barriers */
} rank_place;

static tri_status steps_run(tri_job *job, int count)
{
    bool done;
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_job_step(job, &done));
    return TRI_OK;
}

static tri_status rank_count(rank_place *place)
{
    tri_comm_config comm_config;
    tri_net_config net_config;
    tri_comm *comm;
    tri_job *job = NULL;
    tri_options_defaults(&tri_comm_options, &comm_config);
    tri_options_defaults(&tri_net_options, &net_config);
    TRI_TRY(tri_comm_open_hub(place->hub, place->rank, place->world, &comm_config, &net_config, &comm));
    tri_status status = tri_job_open(&(tri_job_setup){.config_text = config, .comm = comm}, &job);
    if (status == TRI_OK)
        status = steps_run(job, WARM_STEPS);
    if (status == TRI_OK)
        status = tri_barrier(tri_comm_world(comm), NULL);
    place->before = tri_memory_now().calls;
    if (status == TRI_OK)
        status = tri_barrier(tri_comm_world(comm), NULL);
    if (status == TRI_OK)
        status = steps_run(job, COUNTED_STEPS);
    if (status == TRI_OK)
        status = tri_barrier(tri_comm_world(comm), NULL);
    place->after = tri_memory_now().calls;
    if (status == TRI_OK)
        status = tri_barrier(tri_comm_world(comm), NULL);
    tri_job_close(job);
    tri_comm_leave(comm);
    return status;
}

static void rank_body(void *arg)
{
    rank_place *place = arg;
    place->status = rank_count(place);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    for (int world = 1; world <= MAX_RANKS; world++) {
        tri_hub *hub;
        tri_thread *threads[MAX_RANKS];
        rank_place places[MAX_RANKS];
        assert_int_equal(tri_hub_create(&(tri_hub_config){.world = world}, &hub), TRI_OK);
        for (int r = 0; r < world; r++) {
            places[r] = (rank_place){.hub = hub, .rank = r, .world = world};
            assert_int_equal(tri_thread_start(&threads[r], "rank", rank_body, &places[r]), TRI_OK);
        }
        for (int r = 0; r < world; r++)
            tri_thread_join(threads[r]);
        tri_hub_destroy(hub);
        for (int r = 0; r < world; r++) {
            assert_int_equal(places[r].status, TRI_OK);
            assert_int_equal(places[r].after, places[r].before);
        }
    }
}

static void every_allocation_of_a_job_may_fail(void **state)
{
    (void)state;
    fail_each_allocation(config, NULL);
}

/* On the one rank of a job, in waves, and where the first steps search for the fastest ones. */
static void what_is_planned_is_what_a_job_holds(void **state)
{
    (void)state;
    const struct {
        const char *override[2];
        int moments, levels;
    } cases[] = {{{"optim.name=sgd", "train.shards_at_once=8"}, 1, 0},
                 {{"optim.name=adam", "train.shards_at_once=1"}, 2, 3},
                 {{"optim.name=adam", NULL}, 2, 3}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const overrides[] = {cases[i].override[0], cases[i].override[1], NULL};
        tri_config parsed;
        tri_job_memory memory;
        tri_job *job = NULL;
        assert_int_equal(tri_config_load(NULL, config, overrides, &parsed), TRI_OK);
        uint64_t live = tri_memory_now().live;
        assert_int_equal(tri_job_memory_plan(&parsed, 1, &memory), TRI_OK);
        assert_int_equal(tri_memory_now().live, live);
        assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = config, .overrides = overrides}, &job), TRI_OK);
        size_t planned, apart, values = (size_t)job->params->count * sizeof(float);
        tri_graph_memory(job->model.graph, &planned, &apart);
        assert_int_equal(memory.activations, planned);
        assert_int_equal(memory.activations_apart, apart);
        assert_true(planned > 0 && planned < apart);
        assert_int_equal(memory.weights, values);
        assert_int_equal(memory.optimizer, (size_t)cases[i].moments * values);
        assert_int_equal(memory.gradients, (size_t)(1 + cases[i].levels) * (values + TRI_PARAMS_TAIL * sizeof(float)));
        assert_int_equal(job->shards.accumulation.levels, cases[i].levels);
        assert_int_equal(job->shards.accumulation.searching, cases[i].override[1] == NULL);
        tri_job_close(job);
        tri_config_fini(&parsed);
    }
}

static void every_allocation_of_a_plan_may_fail(void **state)
{
    (void)state;
    tri_config parsed;
    tri_job_memory memory;
    const char *const overrides[] = {"train.shards_at_once=1", NULL};
    assert_int_equal(tri_config_load(NULL, config, overrides, &parsed), TRI_OK);
    int failures = 0, good_in_a_row = 0;
    for (uint64_t n = 1; good_in_a_row < 20; n++) {
        tri_memory_fail_at(n);
        tri_status status = tri_job_memory_plan(&parsed, 3, &memory);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        good_in_a_row = status == TRI_OK ? good_in_a_row + 1 : 0;
        failures += status != TRI_OK;
        assert_true(n < 10000);
    }
    assert_true(failures > 20);
    tri_config_fini(&parsed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(what_is_planned_is_what_a_job_holds),
        cmocka_unit_test(every_allocation_of_a_plan_may_fail),
        cmocka_unit_test(every_allocation_of_a_job_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
