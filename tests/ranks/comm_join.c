/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_join.c: ranks that meet through a cluster's store, and a process that is alone.
 */
#include "ranks/comm_spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/cluster.h"

static void meets_through_a_store(spawn_rank *self, void *arg)
{
    int64_t deadline_ns = tri_deadline_after_ms(20000);
    tri_cluster cluster = {
        .started_by = "test", .rank = self->rank, .world = self->world, .local_rank = self->rank / 2, .local_world = 2};
    snprintf(cluster.token, sizeof(cluster.token), "%s", self->token);
    tri_status status = tri_store_open(arg, self->token, deadline_ns, &cluster.store);
    SPAWN_CHECK(self, status == TRI_OK);
    if (status != TRI_OK)
        return;
    tri_comm_config config;
    tri_options_defaults(&tri_comm_options, &config);
    tri_comm *comm = NULL;
    SPAWN_CHECK(self, tri_comm_open(&cluster, &config, &self->config, deadline_ns, &comm) == TRI_OK);
    if (comm) {
        float data[100], want[100];
        comm_spawn_fill(data, TRI_F32, self->rank, 0, 100);
        comm_spawn_expect(want, TRI_F32, TRI_REDUCE_SUM, self->world, 0, 100);
        SPAWN_CHECK(self, tri_comm_local_rank(comm) == self->rank / 2 && tri_comm_local_count(comm) == 2);
        SPAWN_CHECK(self,
                    tri_all_reduce(tri_comm_world(comm), data, data, 100, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_OK);
        SPAWN_CHECK(self, memcmp(data, want, sizeof(data)) == 0);
    }
    tri_comm_leave(comm);
    spawn_barrier(self); /* the store's server is still there for all */
    tri_cluster_leave(&cluster);
}

static void ranks_meet_through_a_store(void **state)
{
    (void)state;
    static const char token[] = "0123456789abcdef0123456789abcdef";
    const spawn_kind kinds[] = {SPAWN_AUTO, SPAWN_TCP};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        tri_store_server *server = NULL;
        assert_int_equal(tri_store_server_start("127.0.0.1", 0, token, &server), TRI_OK);
        char url[64];
        snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", tri_store_server_port(server));
        spawn_config config = {.kind = kinds[k], .world = 4, .tokens = {token, token, token, token}};
        bool held = spawn_ranks(&config, meets_through_a_store, url);
        tri_store_server_stop(server);
        assert_true(held);
    }
}

/* Somebody else's table. */
typedef struct table {
    tri_mutex mutex;
    int count;
    char *names[64], *texts[64];
    bool deaf; /* forgets what rank 0 says of all */
    bool tcp;  /* TRIREME_COMM asks for it */
} table;

static tri_status table_set(void *arg, const char *name, const char *text)
{
    table *t = arg;
    tri_mutex_lock(&t->mutex);
    if (!t->deaf || strcmp(name, "trireme.addresses") != 0) {
        t->names[t->count] = strdup(name);
        t->texts[t->count++] = strdup(text);
    }
    tri_mutex_unlock(&t->mutex);
    return TRI_OK;
}

static const char *table_wait(void *arg, const char *name, double timeout_s)
{
    table *t = arg;
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000));
    const char *text = NULL;
    while (!text && tri_now_ns() < deadline_ns) {
        tri_mutex_lock(&t->mutex);
        for (int i = 0; i < t->count; i++)
            text = strcmp(t->names[i], name) == 0 ? t->texts[i] : text;
        tri_mutex_unlock(&t->mutex);
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    return text;
}

static uint64_t sent_to_all(const tri_comm *comm, int world)
{
    uint64_t sent = 0;
    for (int r = 0; r < world; r++)
        sent += tri_comm_sent_to(comm, r);
    return sent;
}

static void meets_through_a_table(spawn_rank *self, void *arg)
{
    table *t = arg;
    tri_meeting meeting = {.arg = arg, .set = table_set, .wait = table_wait};
    tri_comm *comm = NULL;
    tri_status status = tri_comm_join_by(&meeting, self->rank, self->world, t->deaf ? 0.2 : 20, &comm);
    SPAWN_CHECK(self, status == (t->deaf ? TRI_ETIMEOUT : TRI_OK));
    if (!comm)
        return;
    SPAWN_CHECK(self, tri_comm_local_rank(comm) == self->rank && tri_comm_local_count(comm) == self->world);
    int64_t sum = self->rank;
    uint64_t before = sent_to_all(comm, self->world);
    SPAWN_CHECK(self, tri_all_reduce(tri_comm_world(comm), &sum, &sum, 1, TRI_I64, TRI_REDUCE_SUM, NULL) == TRI_OK);
    SPAWN_CHECK(self, sum == self->world * (self->world - 1) / 2);
    SPAWN_CHECK(self, (sent_to_all(comm, self->world) > before) == t->tcp); /* by lanes nothing is sent */
    tri_comm_leave(comm);
}

static void ranks_meet_through_a_table_of_somebody_else(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++) {
        table t = {.deaf = world == 2, .tcp = world >= 3};
        if (world == 4)
            setenv("TRIREME_COMM", "comm.transport=tcp", 1);
        if (world == 3) { /* who reads the table does not know what links are made by */
            setenv("TRIREME_COMM", "comm.transport=tcp comm.encrypt=on comm.require_token=on", 1);
            setenv("TRIREME_TOKEN", "0123456789abcdef", 1);
        }
        tri_mutex_init(&t.mutex);
        spawn_config config = {.kind = SPAWN_AUTO, .world = world};
        bool held = spawn_ranks(&config, meets_through_a_table, &t);
        for (int i = 0; i < t.count; i++) {
            free(t.names[i]);
            free(t.texts[i]);
        }
        tri_mutex_fini(&t.mutex);
        unsetenv("TRIREME_COMM");
        unsetenv("TRIREME_TOKEN");
        assert_true(held);
    }
    tri_meeting meeting = {.set = table_set, .wait = table_wait};
    tri_comm *comm = NULL;
    assert_int_equal(tri_comm_join_by(&meeting, 2, 2, 1, &comm), TRI_EINVAL);
    assert_string_equal(tri_last_error(), "join: want a rank below the number of ranks, got rank 2 of 2");
    assert_int_equal(tri_comm_join_by(&meeting, 0, 1, -1, &comm), TRI_EINVAL);
    setenv("TRIREME_COMM", "comm.encrypt=on", 1);
    assert_int_equal(tri_comm_join_by(&meeting, 0, 2, 1, &comm), TRI_ECONFIG);
    assert_string_equal(tri_last_error(),
                        "comm.encrypt = on: want a secret token for the job (TRIREME_TOKEN), got none "
                        "(started by another library)");
    setenv("TRIREME_TOKEN", "0123456789abcdef", 1);
    setenv("TRIREME_COMM", "comm.encrypt=on comm.engine=mpi", 1);
    assert_int_equal(tri_comm_join_by(&meeting, 0, 2, 1, &comm), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want comm.engine = host, got mpi"));
    unsetenv("TRIREME_COMM");
    unsetenv("TRIREME_TOKEN");
}

static void a_process_started_by_nobody_is_one_rank(void **state)
{
    (void)state;
    tri_comm *comm = NULL;
    assert_int_equal(tri_comm_join(10, &comm), TRI_OK);
    tri_group *world = tri_comm_world(comm);
    assert_int_equal(tri_group_count(world), 1);
    float data[3] = {1, 2, 3}, out[3] = {0};
    float *parts[1] = {data};
    assert_int_equal(tri_all_reduce(world, data, data, 3, TRI_F32, TRI_REDUCE_AVERAGE, NULL), TRI_OK);
    assert_int_equal(tri_all_gather(world, data, out, 3, TRI_F32, NULL), TRI_OK);
    assert_memory_equal(data, out, sizeof(data));
    assert_int_equal(tri_all_reduce_tree(world, 8, parts, 1, 3, NULL), TRI_OK);
    assert_true(data[1] == 2);
    tri_group *half = NULL;
    assert_int_equal(tri_group_split(world, 0, 0, &half), TRI_OK);
    assert_int_equal(tri_group_count(half), 1);
    tri_group_destroy(half);
    tri_work *work = NULL;
    assert_int_equal(tri_barrier(world, &work), TRI_OK);
    assert_int_equal(tri_work_wait(work), TRI_OK);
    tri_comm_leave(comm);
    assert_int_equal(tri_comm_join(0, &comm), TRI_EINVAL);
    setenv("TRIREME_COMM", "comm.encript=on", 1);
    assert_int_equal(tri_comm_join(10, &comm), TRI_ECONFIG);
    unsetenv("TRIREME_COMM");
}

static void nothing_leaves_and_nothing_is_waited_for(void **state)
{
    (void)state;
    tri_comm_leave(NULL);
    tri_group_destroy(NULL);
    assert_int_equal(tri_work_wait(NULL), TRI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_through_a_store),
        cmocka_unit_test(ranks_meet_through_a_table_of_somebody_else),
        cmocka_unit_test(a_process_started_by_nobody_is_one_rank),
        cmocka_unit_test(nothing_leaves_and_nothing_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
