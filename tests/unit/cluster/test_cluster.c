/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cluster.c: ranks (as threads) join by the variables of a starter, exchange texts, and leave nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/launch_impl.h"

#define WORLD 8

typedef struct rank {
    char variables[8][128];
    int rank, absent; /* absent: does not exchange, -1 = nobody */
    tri_status status;
    bool ok, served, beside; /* beside: another one can listen on the same port of another address */
    char message[512], folder[128];
    char token[65];
    bool has_token;
} rank;

static const char *look(const char *name, void *arg)
{
    rank *at = arg;
    size_t nbytes = strlen(name);

    for (int i = 0; i < 8; i++) {
        if (strncmp(at->variables[i], name, nbytes) == 0 && at->variables[i][nbytes] == '=')
            return at->variables[i] + nbytes + 1;
    }
    return NULL;
}

static atomic_bool named; /* rank 2 has said who is missing */

/* All but the absent rank have come, so that the short limit of rank 2 is for that one alone; or it has been named, so
 * that the others need not wait any longer. */
static int64_t absence_begin(const rank *at, tri_cluster *cluster, int64_t deadline_ns)
{
    for (int r = 0; r < WORLD && at->rank == 2; r++) {
        char key[32], *text = NULL;
        size_t nbytes;

        snprintf(key, sizeof key, "exchange/names/%d", r);
        if (r != 2 && r != at->absent)
            (void)tri_store_wait(cluster->store, key, &text, &nbytes, deadline_ns);
        tri_free(text);
    }
    while (at->rank == at->absent && !atomic_load(&named))
        tri_sleep_ns(TRI_NS_PER_MS);
    return at->rank == 2 ? tri_deadline_after_ms(500) : deadline_ns;
}

static void live(void *arg)
{
    rank *at = arg;
    tri_cluster cluster;
    char *texts[WORLD], *big = tri_alloc_zero(1, 300001), mine[32];
    int64_t deadline_ns = tri_deadline_after_ms(60000);

    at->status = tri_cluster_join(look, at, NULL, deadline_ns, &cluster);
    if (at->status != TRI_OK) {
        snprintf(at->message, sizeof at->message, "%s", tri_last_error());
        tri_free(big);
        return;
    }
    snprintf(at->token, sizeof at->token, "%s", cluster.token);
    at->has_token = cluster.has_token;
    at->served = cluster.server != NULL;
    if (at->served) {
        tri_store_server *other = NULL;
        /* Of 127.0.0.1 another test may have that port. */
        at->beside = tri_store_server_start("127.0.0.4", tri_store_server_port(cluster.server), "b", &other) == TRI_OK;
        tri_store_server_stop(other);
    }
    if (cluster.folder)
        snprintf(at->folder, sizeof at->folder, "%s", cluster.folder);
    memset(big, 'a' + at->rank, 300000);
    snprintf(mine, sizeof mine, "rank %d", at->rank);
    at->ok = true;
    if (at->absent >= 0)
        deadline_ns = absence_begin(at, &cluster, deadline_ns);
    for (int round = 0; round < (at->absent >= 0 ? 1 : 2); round++) { /* the second needs several pieces */
        at->status = tri_cluster_exchange(&cluster, round ? "big" : "names", round ? big : mine, texts, deadline_ns);
        if (at->status != TRI_OK) {
            snprintf(at->message, sizeof at->message, "%s", tri_last_error());
            break;
        }
        for (int r = 0; r < WORLD; r++) {
            snprintf(mine, sizeof mine, "rank %d", r);
            at->ok =
                at->ok && (round ? strlen(texts[r]) == 300000 && texts[r][299999] == 'a' + r : !strcmp(texts[r], mine));
            tri_free(texts[r]);
        }
    }
    if (at->absent >= 0 && at->rank == 2)
        atomic_store(&named, true);
    tri_cluster_leave(&cluster);
    tri_free(big);
}

static void run(rank *ranks, const char *format, int absent, int port)
{
    tri_thread *threads[WORLD];

    for (int r = 0; r < WORLD; r++) {
        ranks[r].rank = r;
        ranks[r].absent = absent;
        if (strcmp(format, "torchrun") == 0) {
            snprintf(ranks[r].variables[0], 96, "RANK=%d", r);
            snprintf(ranks[r].variables[1], 96, "WORLD_SIZE=%d", WORLD);
            snprintf(ranks[r].variables[2], 96, "MASTER_ADDR=127.0.0.3");
            snprintf(ranks[r].variables[3], 96, "MASTER_PORT=%d", port);
            snprintf(ranks[r].variables[4], 96, "TORCHELASTIC_USE_AGENT_STORE=True");
        } else {
            snprintf(ranks[r].variables[0], 96, "OMPI_COMM_WORLD_RANK=%d", r);
            snprintf(ranks[r].variables[1], 96, "OMPI_COMM_WORLD_SIZE=%d", WORLD);
            snprintf(ranks[r].variables[2], 96, "OMPI_COMM_WORLD_LOCAL_RANK=%d", r);
            snprintf(ranks[r].variables[3], 96, "OMPI_COMM_WORLD_LOCAL_SIZE=%d", WORLD);
            snprintf(ranks[r].variables[4], 96, "PMIX_NAMESPACE=%d-test", port);
        }
        assert_int_equal(tri_thread_start(&threads[r], "rank", live, &ranks[r]), TRI_OK);
    }
    for (int r = 0; r < WORLD; r++)
        tri_thread_join(threads[r]);
}

static void all_check(const rank *ranks)
{
    for (int r = 0; r < WORLD; r++) {
        if (ranks[r].status != TRI_OK || !ranks[r].ok)
            fail_msg("rank %d: %s", r, ranks[r].message);
    }
}

static void ranks_of_torchrun_meet_beside_the_agents_port(void **state)
{
    rank *ranks = calloc(WORLD, sizeof *ranks);
    int port;

    (void)state;
    assert_int_equal(tri_launch_free_port(&port), TRI_OK);
    run(ranks, "torchrun", -1, port);
    all_check(ranks);
    assert_true(ranks[0].served && !ranks[1].served);
    assert_false(ranks[0].has_token);
    assert_true(ranks[0].beside); /* it listens where they look alone */
    free(ranks);
}

static void ranks_of_mpirun_meet_in_a_folder_and_remove_it(void **state)
{
    rank *ranks = calloc(WORLD, sizeof *ranks);
    int port;

    (void)state;
    assert_int_equal(tri_launch_free_port(&port), TRI_OK);
    run(ranks, "openmpi", -1, port);
    all_check(ranks);
    assert_true(ranks[0].folder[0] == '/');
    assert_false(tri_fs_exists(ranks[0].folder));
    /* Its token is a secret that they found in the folder, not one made of what the environment says. */
    tri_cluster_place place;
    assert_int_equal(tri_cluster_detect(look, &ranks[0], &place), TRI_OK);
    for (int r = 0; r < WORLD; r++) {
        assert_true(ranks[r].has_token && strlen(ranks[r].token) == 64);
        assert_string_equal(ranks[r].token, ranks[0].token);
        assert_string_not_equal(ranks[r].token, place.token);
    }
    free(ranks);
}

static void an_exchange_names_the_rank_that_is_missing(void **state)
{
    rank *ranks = calloc(WORLD, sizeof *ranks);
    int port;

    (void)state;
    assert_int_equal(tri_launch_free_port(&port), TRI_OK);
    run(ranks, "torchrun", 5, port);
    assert_int_equal(ranks[2].status, TRI_ETIMEOUT);
    if (!strstr(ranks[2].message, "rank 5 did not join within ") ||
        !strstr(ranks[2].message, " s (rendezvous at 127.0.0.3:"))
        fail_msg("%s", ranks[2].message);
    for (int r = 0; r < WORLD; r++)
        assert_true(r == 2 || (ranks[r].status == TRI_OK && ranks[r].ok));
    free(ranks);
}

static void one_process_needs_no_store(void **state)
{
    rank alone = {.absent = -1};
    tri_cluster cluster;
    char *text;

    (void)state;
    assert_int_equal(tri_cluster_join(look, &alone, NULL, 0, &cluster), TRI_OK);
    assert_null(cluster.store);
    assert_int_equal(tri_cluster_exchange(&cluster, "x", "hello", &text, 0), TRI_OK);
    assert_string_equal(text, "hello");
    tri_free(text);
    tri_cluster_leave(&cluster);
}

static void a_token_is_there_and_short(void **state)
{
    static const struct {
        const char *given, *says;
    } cases[] = {
        {"TRIREME_TOKEN=", "got an empty text"},
        {"TRIREME_TOKENS=p4ss", "got nothing"},
        {"TRIREME_TOKEN=p4345678901234567890123456789012345678901234567890123456789012345",
         "want 16 to 64 bytes, got 65"},
        {"TRIREME_TOKEN=p43456789012345", "want 16 to 64 bytes, got 15"},
    };
    char token[65];

    (void)state;
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        rank at = {0};
        snprintf(at.variables[0], sizeof at.variables[0], "%s", cases[c].given);
        assert_int_equal(tri_cluster_token(look, &at, token), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), cases[c].says));
        assert_null(strstr(tri_last_error(), "p4"));
    }
    rank at = {.variables = {"TRIREME_TOKEN=p4 ss/+=\n12345678"}};
    assert_int_equal(tri_cluster_token(look, &at, token), TRI_OK);
    assert_string_equal(token, "p4 ss/+=\n12345678");
}

static void note(tri_log_level level, const char *line, void *arg)
{
    (void)level;
    snprintf(arg, 512, "%s", line);
}

/* By each starter that gives no secret: refused if one is needed, else one warning, by rank 0. */
static void a_job_without_a_token_is_refused_or_warned_of(void **state)
{
    static const char *const starters[][5] = {
        {"RANK=%d", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
        {"SLURM_PROCID=%d", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=a", "SLURM_LOCALID=0", "SLURM_JOB_ID=7"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"worker\",\"index\":%d}}"},
        {"PET_NODE_RANK=%d", "PET_NNODES=2", "PET_MASTER_ADDR=a", "PET_MASTER_PORT=1"},
    };
    tri_cluster cluster;
    tri_net_config config;
    char said[512];

    (void)state;
    tri_options_defaults(&tri_net_options, &config);
    assert_false(config.require_token);
    tri_log_sink_set(note, said);
    for (size_t s = 0; s < TRI_COUNT_OF(starters); s++) {
        for (int r = 0; r < 2; r++) {
            rank at = {.rank = r};
            tri_cluster_place place;

            for (int i = 0; i < 5 && starters[s][i]; i++)
                snprintf(at.variables[i], sizeof at.variables[i], starters[s][i], r);
            assert_int_equal(tri_cluster_detect(look, &at, &place), TRI_OK);
            assert_false(place.has_token);
            said[0] = 0;
            assert_int_equal(tri_cluster_token_check(place.has_token, place.started_by, r, place.world, &config),
                             TRI_OK);
            assert_int_equal(strstr(said, "TRIREME_TOKEN is not set (started by ") != NULL, r == 0);
            config.require_token = true;
            assert_int_equal(tri_cluster_join(look, &at, &config, 0, &cluster), TRI_ECONFIG);
            assert_non_null(strstr(tri_last_error(), "comm.require_token = on: want a secret token"));
            config.require_token = false;
            config.encrypt = true;
            assert_int_equal(tri_cluster_join(look, &at, &config, 0, &cluster), TRI_ECONFIG);
            assert_non_null(strstr(tri_last_error(), "comm.encrypt = on: want a secret token"));
            config.encrypt = false;
            snprintf(at.variables[7], sizeof at.variables[7], "TRIREME_TOKEN=0123456789abcdef");
            assert_int_equal(tri_cluster_detect(look, &at, &place), TRI_OK);
            assert_true(place.has_token);
            said[0] = 0;
            config.require_token = config.encrypt = true;
            assert_int_equal(tri_cluster_token_check(place.has_token, place.started_by, r, place.world, &config),
                             TRI_OK);
            assert_string_equal(said, "");
            config.require_token = config.encrypt = false;
        }
    }
    tri_log_sink_set(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_torchrun_meet_beside_the_agents_port),
        cmocka_unit_test(ranks_of_mpirun_meet_in_a_folder_and_remove_it),
        cmocka_unit_test(an_exchange_names_the_rank_that_is_missing),
        cmocka_unit_test(one_process_needs_no_store),
        cmocka_unit_test(a_token_is_there_and_short),
        cmocka_unit_test(a_job_without_a_token_is_refused_or_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
