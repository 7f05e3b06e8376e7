/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: ranks that examine each other: all pairs are measured once, and a rank that is not there is a finding.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "doctor/doctor.h"
#include "ranks/comm_spawn.h"

static void measure_body(spawn_rank *self, void *arg)
{
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    tri_job_facts job;
    char met[128] = {0};

    (void)arg;
    SPAWN_CHECK(self, tri_job_facts_init(&job, self->world) == TRI_OK);
    SPAWN_CHECK(self, comm && tri_job_measure(comm, &job) == TRI_OK);
    SPAWN_CHECK(self, job.measured);
    for (size_t i = 0; i < job.pairs.count; i++) {
        const tri_pair *pair = tri_vector_at(&job.pairs, i);

        SPAWN_CHECK(self, pair->a == self->rank && pair->b > pair->a && pair->b < self->world && !met[pair->b]);
        SPAWN_CHECK(self, pair->latency_us > 0 && pair->bytes_per_second > 0 && pair->transport[0]);
        met[pair->b] = 1;
    }
    SPAWN_CHECK(self, job.pairs.count == (size_t)(self->world - 1 - self->rank));
    for (int r = 0; self->rank == 0 && r < self->world; r++)
        SPAWN_CHECK(self, fabs(job.skew_s[r]) < 5); /* one clock */
    tri_job_facts_fini(&job);
    tri_comm_leave(comm);
}

static void all_pairs_are_measured_once(void **state)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    static const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_SHM, SPAWN_TCP, SPAWN_SIM};

    (void)state;
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
            spawn_config config = {.kind = kinds[k], .world = worlds[i], .seed = 7};

            if (!spawn_ranks(&config, measure_body, NULL))
                fail_msg("%s, %d ranks", spawn_kind_name(kinds[k]), worlds[i]);
        }
    }
}

typedef struct many {
    tri_hub *hub;
    int world;
    size_t pairs;
    int wrong;
} many;

static void many_body(int rank, void *arg)
{
    many *at = arg;
    tri_comm_config config;
    tri_net_config net;
    tri_comm *comm = NULL;
    tri_job_facts job;

    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    net.transport = TRI_TRANSPORT_SIM;
    if (tri_job_facts_init(&job, at->world) != TRI_OK ||
        tri_comm_open_hub(at->hub, rank, at->world, &config, &net, &comm) != TRI_OK ||
        tri_job_measure(comm, &job) != TRI_OK)
        at->wrong++;
    for (size_t i = 0; i < job.pairs.count; i++) {
        const tri_pair *pair = tri_vector_at(&job.pairs, i);

        /* Of the model: 2 ms one way, 10 MB/s. */
        at->wrong += pair->latency_us < 2000 || pair->latency_us > 2100;
        at->wrong += pair->bytes_per_second < 5e6 || pair->bytes_per_second > 1e7;
    }
    at->pairs += job.pairs.count;
    tri_job_facts_fini(&job);
    tri_comm_leave(comm);
}

/* Past 32 ranks pairs are measured side by side, past 64 not all of them. In virtual time, so the figures are known. */
static void many_ranks_are_measured_side_by_side(void **state)
{
    static const struct {
        int world;
        size_t pairs;
    } rows[] = {{2, 1}, {33, 33 * 32 / 2}, {70, 69 + 68 + 66 + 62 + 54 + 38 + 6}};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        many at = {.world = rows[i].world};
        tri_hub_config hub = {.world = at.world, .fabric = {.latency_us = 2000, .bandwidth = 10000000}};
        tri_sim_config sim = {.seed = 5};

        assert_int_equal(tri_hub_create(&hub, &at.hub), TRI_OK);
        assert_int_equal(tri_sim_run(&sim, at.world, many_body, &at), TRI_OK);
        tri_hub_destroy(at.hub);
        assert_int_equal(at.pairs, rows[i].pairs);
        assert_int_equal(at.wrong, 0);
    }
}

typedef struct examined {
    char url[80];
    tri_store *store; /* of a simulation */
    int world, wrong;
    tri_vector findings;
    tri_string matrix;
} examined;

static bool examine_as(examined *at, int rank, tri_store *store, double limit_s)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    tri_string matrix = {0};
    tri_cluster cluster = {.rank = rank,
                           .world = at->world,
                           .local_rank = rank,
                           .local_world = at->world,
                           .started_by = "test",
                           .store = store};

    memcpy(cluster.token, "0123456789abcdef", 17);
    if (tri_job_examine(&cluster, "tiles", NULL, limit_s, &findings, &matrix) != TRI_OK ||
        (rank == 0) != (findings.count > 0))
        return false;
    if (rank == 0) {
        at->findings = findings;
        at->matrix = matrix;
    }
    return true;
}

static void examine_body(spawn_rank *self, void *arg)
{
    examined *at = arg;
    tri_store *store = NULL;

    SPAWN_CHECK(self, tri_store_open(at->url, "", tri_deadline_after_ms(60000), &store) == TRI_OK);
    SPAWN_CHECK(self, examine_as(at, self->rank, store, 60));
    tri_store_close(store);
}

static const tri_finding *finding_of(const examined *at, const char *check)
{
    const tri_finding *found = NULL;

    for (size_t i = 0; i < at->findings.count; i++) {
        const tri_finding *finding = tri_vector_at(&at->findings, i);

        if (strcmp(finding->check, check) == 0)
            found = finding;
    }
    assert_non_null(found);
    return found;
}

static void examined_fini(examined *at)
{
    tri_vector_fini(&at->findings);
    tri_string_fini(&at->matrix);
}

static void ranks_examine_each_other(void **state)
{
    examined at = {.world = 3};
    spawn_config config = {.kind = SPAWN_AUTO, .world = 3};
    char folder[] = "/tmp/tri-doctor-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(at.url, sizeof at.url, "file://%s", folder);
    assert_true(spawn_ranks(&config, examine_body, &at));
    (void)tri_fs_remove(folder);
    assert_int_equal(finding_of(&at, "links")->result, TRI_RESULT_OK);
    assert_string_equal(finding_of(&at, "links")->found, "3 by shared memory, 0 by tcp");
    assert_int_equal(at.findings.count, 30 + 9); /* one machine, one job */
    assert_non_null(strstr(tri_string_text(&at.matrix), "latency"));
    examined_fini(&at);
}

/* Rank 2 never comes, and rank 0 comes late: it says who is missing after more than twice the limit of rank 1. */
static void examine_late(int rank, void *arg)
{
    examined *at = arg;

    if (rank == 0)
        tri_sleep_ns(15 * TRI_NS_PER_S);
    if (rank < 2)
        at->wrong += !examine_as(at, rank, at->store, 10);
}

static void a_rank_that_does_not_answer_is_a_finding(void **state)
{
    examined at = {.world = 3};
    tri_sim_config sim = {.seed = 5};

    (void)state;
    assert_int_equal(tri_store_memory(&at.store), TRI_OK);
    assert_int_equal(tri_sim_run(&sim, at.world, examine_late, &at), TRI_OK);
    tri_store_close(at.store);
    assert_int_equal(at.wrong, 0);
    assert_int_equal(finding_of(&at, "ranks")->result, TRI_RESULT_FAIL);
    assert_string_equal(finding_of(&at, "ranks")->found, "no answer in time from rank 2");
    assert_int_equal(at.findings.count, 30 + 9);
    examined_fini(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_are_measured_once),
        cmocka_unit_test(many_ranks_are_measured_side_by_side),
        cmocka_unit_test(ranks_examine_each_other),
        cmocka_unit_test(a_rank_that_does_not_answer_is_a_finding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
