/* SPDX-License-Identifier: Apache-2.0
 *
 * test_environment.c: what each starter's variables mean, and that contradictions are told by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/environment.h"

typedef struct row {
    const char *variables[16]; /* "NAME=value" */
    const char *started_by;    /* NULL: refused */
    int rank, world, local_rank, local_world;
    bool serves;
    const char *says; /* part of the url, or of the message */
} row;

static const char *look(const char *name, void *arg)
{
    const char *const *variables = arg;
    size_t nbytes = strlen(name);

    for (; *variables; variables++) {
        if (strncmp(*variables, name, nbytes) == 0 && (*variables)[nbytes] == '=')
            return *variables + nbytes + 1;
    }
    return NULL;
}

static void rows_check(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const row *want = &rows[i];
        tri_cluster_place place;
        tri_status status = tri_cluster_detect(look, (void *)(uintptr_t)want->variables, &place);

        if (!want->started_by) {
            if (status != TRI_ECONFIG || !strstr(tri_last_error(), want->says))
                fail_msg("row %zu: status %d, message: %s", i, status, tri_last_error());
            continue;
        }
        if (status != TRI_OK)
            fail_msg("row %zu: %s", i, tri_last_error());
        assert_string_equal(place.started_by, want->started_by);
        if (place.rank != want->rank || place.world != want->world || place.local_rank != want->local_rank ||
            place.local_world != want->local_world || place.serves != want->serves ||
            !strstr(place.store_url, want->says))
            fail_msg("row %zu: rank %d/%d local %d/%d serves %d url %s", i, place.rank, place.world, place.local_rank,
                     place.local_world, place.serves, place.store_url);
    }
}

#define CHECK(rows) rows_check(rows, TRI_COUNT_OF(rows))
#define T4          "TRIREME_RANK=1", "TRIREME_WORLD_SIZE=4", "TRIREME_LOCAL_RANK=1", "TRIREME_LOCAL_WORLD_SIZE=2"

static void trireme_and_alone_are_understood(void **state)
{
    const row rows[] = {
        {{NULL}, "alone", 0, 1, 0, 1, false, ""},
        {{"PATH=/bin", "SLURM_PROCID=0", "SLURM_NTASKS=8"}, "alone", 0, 1, 0, 1, false, ""}, /* a batch script without
                                                                                                srun */
        {{T4, "TRIREME_STORE=tcp://h:1"}, "trireme", 1, 4, 1, 2, false, "tcp://h:1"},
        {{T4, "TRIREME_STORE=tcp://h:1", "RANK=7", "WORLD_SIZE=3"}, "trireme", 1, 4, 1, 2, false, "tcp://h:1"},
        {{T4}, NULL, .says = "TRIREME_STORE: want"},
        {{T4, "TRIREME_STORE=http://x"}, NULL, .says = "'http://x'"},
        {{"TRIREME_RANK=1"}, NULL, .says = "TRIREME_WORLD_SIZE: want"},
        {{"TRIREME_RANK=4", "TRIREME_WORLD_SIZE=4"},
         NULL,
         .says = "TRIREME_RANK: want less than TRIREME_WORLD_SIZE (4), got 4"},
        {{"TRIREME_RANK=one", "TRIREME_WORLD_SIZE=4"}, NULL, .says = "got 'one'"},
        {{"TRIREME_RANK= 1", "TRIREME_WORLD_SIZE=4"}, NULL, .says = "got ' 1'"},
        {{"TRIREME_RANK=0", "TRIREME_WORLD_SIZE=2", "TRIREME_LOCAL_RANK=0", "TRIREME_LOCAL_WORLD_SIZE=3",
          "TRIREME_STORE=tcp://h:1"},
         NULL,
         .says = "local world"},
    };
    (void)state;
    CHECK(rows);
}

static void without_a_table_the_environment_of_the_process_counts(void **state)
{
    tri_cluster_place place;

    (void)state;
    setenv("TRIREME_RANK", "2", 1);
    setenv("TRIREME_WORLD_SIZE", "2", 1);
    assert_int_equal(tri_cluster_detect(NULL, NULL, &place), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "TRIREME_RANK: want less than TRIREME_WORLD_SIZE (2), got 2"));
    unsetenv("TRIREME_RANK");
    unsetenv("TRIREME_WORLD_SIZE");
    assert_int_equal(tri_cluster_detect(NULL, NULL, &place), TRI_OK);
    assert_string_equal(place.started_by, "alone");
}

#define TORCH(rank) "RANK=" rank, "WORLD_SIZE=2", "LOCAL_RANK=" rank, "LOCAL_WORLD_SIZE=2"
#define MASTER      "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"

static void torchrun_is_understood(void **state)
{
    const row rows[] = {
        {{TORCH("0"), MASTER}, "torchrun", 0, 2, 0, 2, true, "tcp://10.0.0.1:29500"},
        {{TORCH("1"), MASTER}, "torchrun", 1, 2, 1, 2, false, "tcp://10.0.0.1:29500"},
        {{TORCH("0"), MASTER, "TORCHELASTIC_USE_AGENT_STORE=True"}, "torchrun", 0, 2, 0, 2, true, ":29501-29516"},
        {{TORCH("0"), "MASTER_ADDR=::1", "MASTER_PORT=65535", "TORCHELASTIC_USE_AGENT_STORE=True"},
         "torchrun",
         0,
         2,
         0,
         2,
         true,
         "tcp://[::1]:65519-65534"},
        {{"RANK=1", "WORLD_SIZE=2", MASTER}, "torchrun", 1, 2, 0, 1, false, "10.0.0.1"}, /* Kubeflow */
        {{"RANK=0", "WORLD_SIZE=1"}, "torchrun", 0, 1, 0, 1, false, ""},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", MASTER}, "torchrun", 1, 2, 1, 2, false, "10.0.0.1"}, /* env:// */
        {{"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0"}, "torchrun", 0, 1, 0, 1, false, ""},
        {{"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "MASTER_ADDR="}, "alone", 0, 1, 0, 1, false, ""},
        {{"RANK=", "TRIREME_STORE="}, "alone", 0, 1, 0, 1, false, ""},
        {{TORCH("0"), "TRIREME_STORE=file:///shared/x"}, "torchrun", 0, 2, 0, 2, false, "file:///shared/x"},
        {{TORCH("0"), "TRIREME_STORE=tcp://h:1"}, "torchrun", 0, 2, 0, 2, true, "tcp://h:1"},
        {{"RANK=0"}, NULL, .says = "WORLD_SIZE: want"},
        {{"WORLD_SIZE=2"}, NULL, .says = "RANK: want"},
        {{TORCH("0"), "MASTER_PORT=1"}, NULL, .says = "MASTER_ADDR: want"},
        {{TORCH("0"), "MASTER_ADDR=h"}, NULL, .says = "MASTER_PORT: want"},
        {{TORCH("0"), "MASTER_ADDR=h", "MASTER_PORT=70000"}, NULL, .says = "got '70000'"},
        {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2", MASTER}, NULL, .says = "LOCAL_RANK: want a whole number of 0 to 1"},
        {{"RANK=", "WORLD_SIZE=2", MASTER}, NULL, .says = "RANK: want a whole number"},
        {{"RANK=-1", "WORLD_SIZE=2", MASTER}, NULL, .says = "got '-1'"},
    };
    (void)state;
    CHECK(rows);
}

#define OMPI(rank, local)                                                                                              \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",                            \
        "OMPI_COMM_WORLD_LOCAL_SIZE=" local

#define PET(rank, world) "PET_NODE_RANK=" rank, "PET_NNODES=" world

static void pods_and_hosts_are_understood(void **state)
{
    char path[] = "/tmp/trireme-hosts-XXXXXX", variable[64];
    const char text[] = "# the launcher works too\nrun-launcher.run slots=1\n\n run-worker-0.run:1\nrun-worker-1.run\n";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    snprintf(variable, sizeof variable, "TRIREME_HOSTFILE=%s", path);
    const row rows[] = {
        {{PET("0", "2"), "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=a-node-0-0.a", "PET_MASTER_PORT=29400"},
         "trainjob",
         0,
         2,
         0,
         1,
         true,
         "tcp://a-node-0-0.a:29400"},
        {{PET("1", "2"), "PET_MASTER_ADDR=a", "PET_MASTER_PORT=29400"}, "trainjob", 1, 2, 0, 1, false, "tcp://a:29400"},
        {{PET("0", "1")}, "trainjob", 0, 1, 0, 1, false, ""},
        {{PET("1", "2")}, NULL, .says = "PET_MASTER_ADDR: want"},
        {{PET("0", "2"), "PET_NPROC_PER_NODE=auto"}, NULL, .says = "PET_NPROC_PER_NODE: want 1"},
        {{"PET_NNODES=2"}, NULL, .says = "PET_NODE_RANK: want"},
        {{variable, "TRIREME_HOST=run-launcher"}, "hosts", 0, 3, 0, 1, true, "tcp://run-launcher.run:29400"},
        {{variable, "TRIREME_HOST=run-worker-1", "TRIREME_PORT=7"},
         "hosts",
         2,
         3,
         0,
         1,
         false,
         "tcp://run-launcher.run:7"},
        {{variable, "TRIREME_HOST=run-worker"}, NULL, .says = "want a line with this host (run-worker), got 3 others"},
    };
    (void)state;
    CHECK(rows);
    unlink(path);
}

static void mpi_starters_are_understood(void **state)
{
    const row rows[] = {
        {{OMPI("3", "4"), "PMIX_NAMESPACE=17", "WORLD_SIZE=4", "TMPDIR=/var/tmp"},
         "openmpi",
         3,
         4,
         1,
         4,
         false,
         "file:///var/tmp/trireme-"},
        {{OMPI("0", "2"), "PMIX_NAMESPACE=17"}, NULL, .says = "TRIREME_STORE: want"},
        {{OMPI("0", "2"), "TRIREME_STORE=tcp://node0:2950"}, "openmpi", 0, 4, 1, 2, true, "tcp://node0:2950"},
        {{"OMPI_COMM_WORLD_RANK=0"}, NULL, .says = "OMPI_COMM_WORLD_SIZE: want"},
        {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
         "mpich",
         1,
         2,
         1,
         2,
         false,
         "file:///tmp/trireme-"},
        {{"PMI_RANK=1", "PMI_SIZE=2"}, NULL, .says = "MPI_LOCALNRANKS: want"},
        {{"PMI_RANK=0", "PMI_SIZE=1"}, "mpich", 0, 1, 0, 1, false, ""},
        {{"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"}, NULL, .says = "several hosts"},
    };
    (void)state;
    CHECK(rows);
}

static void jobs_of_one_host_meet_and_others_do_not(void **state)
{
    const char *const first[] = {OMPI("0", "4"), "PMIX_NAMESPACE=17", NULL},
                      *const same[] = {OMPI("3", "4"), "PMIX_NAMESPACE=17", NULL},
                      *const other[] = {OMPI("0", "4"), "PMIX_NAMESPACE=18", NULL};
    tri_cluster_place a, b, c;

    (void)state;
    assert_int_equal(tri_cluster_detect(look, (void *)(uintptr_t)first, &a), TRI_OK);
    assert_int_equal(tri_cluster_detect(look, (void *)(uintptr_t)same, &b), TRI_OK);
    assert_int_equal(tri_cluster_detect(look, (void *)(uintptr_t)other, &c), TRI_OK);
    assert_true(a.private_folder);
    assert_string_equal(a.store_url, b.store_url);
    assert_string_not_equal(a.store_url, c.store_url);
}

#define SLURM(rank, local)                                                                                             \
    "SLURM_PROCID=" rank, "SLURM_NTASKS=5", "SLURM_LOCALID=" local, "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"

static void slurm_is_understood(void **state)
{
    const row rows[] = {
        {{SLURM("0", "0"), "SLURM_STEP_NODELIST=n[07-08],x", "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2(x2),1"},
         "slurm",
         0,
         5,
         0,
         2,
         true,
         "tcp://n07:"},
        {{SLURM("4", "0"), "SLURM_STEP_NODELIST=n[07-08],x", "SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=2(x2),1"},
         "slurm",
         4,
         5,
         0,
         1,
         false,
         "tcp://n07:"},
        {{SLURM("4", "4"), "SLURM_STEP_NODELIST=n07", "PMI_RANK=4", "PMI_SIZE=5"},
         "slurm",
         4,
         5,
         4,
         5,
         false,
         "tcp://127.0.0.1:"},
        {{SLURM("4", "5"), "SLURM_STEP_NODELIST=n07"}, NULL, .says = "SLURM_LOCALID: want"},
        {{SLURM("4", "0"), "SLURM_STEP_NODELIST=n[07-08"}, NULL, .says = "SLURM_STEP_NODELIST"},
        {{SLURM("4", "0"), "SLURM_STEP_NODELIST=n[1-2]"}, NULL, .says = "SLURM_STEP_TASKS_PER_NODE: want"},
        {{SLURM("4", "0")}, NULL, .says = "SLURM_STEP_NODELIST: want"},
        {{"SLURM_PROCID=5", "SLURM_NTASKS=5", "SLURM_STEP_ID=0"},
         NULL,
         .says = "SLURM_PROCID: want less than SLURM_NTASKS"},
    };
    (void)state;
    CHECK(rows);
}

#define TF(task)                                                                                                       \
    "TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"b:2\",\"a:3\"],\"chief\":[\"a:9\"],\"ps\":[\"p:1\"]}," task "}"

static void tf_config_is_understood(void **state)
{
    const row rows[] = {
        {{TF("\"task\":{\"type\":\"chief\",\"index\":0}")}, "tf_config", 0, 5, 0, 3, true, "tcp://a:9"},
        {{TF("\"task\":{\"type\":\"worker\",\"index\":1}")}, "tf_config", 2, 5, 0, 1, false, "tcp://a:9"},
        {{TF("\"task\":{\"type\":\"worker\",\"index\":2}")}, "tf_config", 3, 5, 2, 3, false, "tcp://a:9"},
        {{TF("\"task\":{\"type\":\"worker\",\"index\":3}")}, NULL, .says = "got worker 3 of 3"},
        {{TF("\"task\":{\"type\":\"ps\",\"index\":0}")}, "tf_config", 4, 5, 0, 1, false, "tcp://a:9"},
        {{TF("\"task\":{\"type\":\"evaluator\",\"index\":0}")}, NULL, .says = "got 'evaluator'"},
        {{TF("\"task\":{\"index\":0}")}, NULL, .says = "task.type"},
        {{TF("\"task\":{\"type\":\"worker\",\"index\":\"0\"}")}, NULL, .says = "task.index"},
        {{"TF_CONFIG={}"}, "tf_config", 0, 1, 0, 1, false, ""},
        {{"TF_CONFIG={"}, NULL, .says = "want JSON"},
        {{"TF_CONFIG=[]"}, NULL, .says = "TF_CONFIG"},
        {{"TF_CONFIG={\"cluster\":{\"worker\":[\"a\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"},
         NULL,
         .says = "cluster.worker[0]"},
        {{"TF_CONFIG={\"cluster\":{\"worker\":[\"[]:1\",\"b:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"},
         NULL,
         .says = "TF_CONFIG: cluster: store url: want a host"},
        {{"TF_CONFIG={\"cluster\":{\"worker\":\"a:1\"},\"task\":{\"type\":\"worker\",\"index\":0}}"},
         NULL,
         .says = "want a list"},
    };
    (void)state;
    CHECK(rows);
}

static void servers_are_the_last_ranks(void **state)
{
    static const struct {
        const char *variables[10];
        int servers; /* -1: refused, */
        const char *says;
    } rows[] = {
        {{TF("\"task\":{\"type\":\"ps\",\"index\":0}")}, 1, NULL},
        {{TF("\"task\":{\"type\":\"worker\",\"index\":0}")}, 1, NULL},
        {{"PMI_RANK=0", "PMI_SIZE=1"}, 0, NULL},
        {{TORCH("1"), MASTER, "TRIREME_SERVERS=1"}, 1, NULL},
        {{TORCH("1"), MASTER, "TRIREME_SERVERS=2"}, -1, "TRIREME_SERVERS: want a whole number of 0 to 1, got '2'"},
        {{TORCH("1"), MASTER, "TRIREME_SERVERS=x"}, -1, "got 'x'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tri_cluster_place place;
        tri_status status = tri_cluster_detect(look, (void *)(uintptr_t)rows[i].variables, &place);
        assert_int_equal(status, rows[i].servers < 0 ? TRI_ECONFIG : TRI_OK);
        if (status == TRI_OK)
            assert_int_equal(place.servers, rows[i].servers);
        else
            assert_non_null(strstr(tri_last_error(), rows[i].says));
    }
}

static void node_lists_are_read(void **state)
{
    static const struct {
        const char *list;
        int index, count;
        const char *host;
    } rows[] = {
        {"a", 0, 1, "a"},
        {"n[01-03,7],x", 0, 5, "n01"},
        {"n[01-03,7],x", 2, 5, "n03"},
        {"n[01-03,7],x", 3, 5, "n7"},
        {"n[01-03,7],x", 4, 5, "x"},
        {"r[1-2]-ib,b", 1, 3, "r2-ib"},
        {"n[098-101]", 3, 4, "n101"},
        {"a,b.c,d_e-f", 1, 3, "b.c"},
    };
    static const char *const wrong[] = {
        "",    ",",       "a,", "n[", "n[]",  "n[1",     "n[2-1]",       "n[1-]", "n[1]]", "n[0-999999999]",
        "a b", "n[1][2]", "n]", "[",  "$(x)", "n[1-2,]", "n[1234567890]"};
    char host[256];
    int count;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        assert_int_equal(tri_environment_node(rows[i].list, rows[i].index, host, &count), TRI_OK);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(count, rows[i].count);
    }
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        if (tri_environment_node(wrong[i], 0, host, &count) != TRI_ECONFIG)
            fail_msg("took '%s'", wrong[i]);
    }
    assert_int_equal(tri_environment_node("a,b", 2, host, &count), TRI_ENOTFOUND);
    assert_int_equal(count, 2);
}

static void task_lists_are_read(void **state)
{
    static const char *const wrong[] = {"", "x", "2(x", "2(x3", "2(x0)", "0", "2,", "2 ,3", "2(x3)1"};
    int tasks;

    (void)state;
    assert_int_equal(tri_environment_tasks("2(x3),1", 2, &tasks), TRI_OK);
    assert_int_equal(tasks, 2);
    assert_int_equal(tri_environment_tasks("2(x3),1", 3, &tasks), TRI_OK);
    assert_int_equal(tasks, 1);
    assert_int_equal(tri_environment_tasks("2(x3),1", 4, &tasks), TRI_ECONFIG);
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        if (tri_environment_tasks(wrong[i], 5, &tasks) != TRI_ECONFIG)
            fail_msg("took '%s'", wrong[i]);
    }
}

static bool evaluates(const char *variable)
{
    const char *variables[] = {variable, NULL};
    return tri_cluster_is_evaluator(look, (void *)(uintptr_t)variables);
}

static void an_evaluator_is_known_and_no_rank(void **state)
{
    (void)state;
    assert_true(evaluates(TF("\"task\":{\"type\":\"evaluator\",\"index\":0}")));
    assert_false(evaluates(TF("\"task\":{\"type\":\"worker\",\"index\":0}")));
    assert_false(evaluates("TF_CONFIG={\"task\":{\"type\":[\"evaluator\"]}}"));
    assert_false(evaluates("TF_CONFIG={"));
    assert_false(evaluates("PATH=evaluator"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trireme_and_alone_are_understood),
        cmocka_unit_test(without_a_table_the_environment_of_the_process_counts),
        cmocka_unit_test(torchrun_is_understood),
        cmocka_unit_test(pods_and_hosts_are_understood),
        cmocka_unit_test(mpi_starters_are_understood),
        cmocka_unit_test(jobs_of_one_host_meet_and_others_do_not),
        cmocka_unit_test(slurm_is_understood),
        cmocka_unit_test(tf_config_is_understood),
        cmocka_unit_test(an_evaluator_is_known_and_no_rank),
        cmocka_unit_test(servers_are_the_last_ranks),
        cmocka_unit_test(node_lists_are_read),
        cmocka_unit_test(task_lists_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
