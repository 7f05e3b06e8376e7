/* SPDX-License-Identifier: Apache-2.0
 *
 * test_engine.c: engines that cannot be had are refused in one line; tests/process/mpi.py has those that can.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/engine_mpi.h"
#include "ranks/comm_spawn.h"

static void threads_have_no_mpi(void **state)
{
    (void)state;
    tri_hub *hub = NULL;
    tri_comm *comm = NULL;
    tri_comm_config config;
    tri_net_config net;
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    assert_int_equal(tri_options_set(&tri_comm_options, &config, "engine", "mpi"), TRI_OK);
    assert_int_equal(tri_hub_create(&(tri_hub_config){.world = 2}, &hub), TRI_OK);
    assert_int_equal(tri_comm_open_hub(hub, 0, 2, &config, &net, &comm), TRI_ECONFIG);
    assert_string_equal(tri_last_error(), "comm.engine: want host where ranks are threads of one process, got mpi");
    tri_hub_destroy(hub);
}

static void a_plug_in_is_found_by_who_started_the_job(void **state)
{
    (void)state;
    const tri_mpi_ops *mpi = NULL;
    assert_int_equal(tri_mpi_load("", "slurm", &mpi), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "this one was started by slurm"));
    assert_int_equal(tri_mpi_load("/nowhere.so", "openmpi", &mpi), TRI_ENOTFOUND);
    assert_non_null(strstr(tri_last_error(), "cannot load the plug-in: /nowhere.so"));
    assert_int_equal(tri_mpi_load("libz.so.1", "openmpi", &mpi), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "libz.so.1: want a plug-in of Trireme"));
    assert_null(mpi);
}

static void one_rank_needs_no_engine(void **state)
{
    (void)state;
    tri_comm *comm = NULL;
    tri_comm_config config;
    tri_net_config net;
    float x = 3;
    tri_hub *hub = NULL;
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    assert_int_equal(tri_options_set(&tri_comm_options, &config, "engine", "mpi"), TRI_OK);
    assert_int_equal(tri_hub_create(&(tri_hub_config){.world = 1}, &hub), TRI_OK);
    assert_int_equal(tri_comm_open_hub(hub, 0, 1, &config, &net, &comm), TRI_OK);
    assert_string_equal(tri_comm_engine(comm), "host");
    assert_int_equal(tri_all_reduce(tri_comm_world(comm), &x, &x, 1, TRI_F32, TRI_REDUCE_SUM, NULL), TRI_OK);
    tri_comm_leave(comm);
    tri_hub_destroy(hub);
}

static void ask_different_engines(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_comm *comm = NULL;
    tri_net *net = NULL;
    tri_comm_config config;
    tri_options_defaults(&tri_comm_options, &config);
    SPAWN_CHECK(self,
                tri_options_set(&tri_comm_options, &config, "engine", self->rank == 1 ? "mpi" : "host") == TRI_OK);
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, tri_comm_create(net, (tri_comm_place){self->rank, self->world, 0}, &config, &self->config,
                                      &comm) == TRI_ECONFIG);
    SPAWN_CHECK(self, strstr(tri_last_error(), "ranks do not agree: rank 0 has") != NULL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "; rank 1 has trireme " TRI_VERSION
                                               ", comm.order = canonical, comm.engine = mpi") != NULL);
}

static void ranks_that_want_different_engines_are_told(void **state)
{
    (void)state;
    spawn_config config = {.kind = SPAWN_SHM, .world = 3};
    assert_true(spawn_ranks(&config, ask_different_engines, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_have_no_mpi),
        cmocka_unit_test(a_plug_in_is_found_by_who_started_the_job),
        cmocka_unit_test(one_rank_needs_no_engine),
        cmocka_unit_test(ranks_that_want_different_engines_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
