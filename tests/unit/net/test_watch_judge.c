/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "net/watch_impl.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

#define MS     TRI_NS_PER_MS
#define ASKED  12345 /* no socket: the test answers for its kernel */
#define SOME_S (1000 * TRI_NS_PER_S)

/* ---- a watch without a thread, of a rank of another host; the times are given */

static int64_t acknowledged_ns; /* when the host last did */
static int64_t at_ns;

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *nbytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *nbytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *nbytes)
{
    if (fd != ASKED)
        return __real_getsockopt(fd, level, name, value, nbytes);
    *(struct tcp_info *)value = (struct tcp_info){.tcpi_last_ack_recv = (uint32_t)((at_ns - acknowledged_ns) / MS)};
    return 0;
}

static void nobody_wakes(void *arg)
{
    (void)arg;
}

typedef struct far {
    tri_watch watch;
    watch_peer peers[2];
} far;

/* The other rank has beaten at SOME_S. */
static void far_make(far *one, int64_t beat_ns)
{
    *one = (far){.watch = {.world = 2, .beat_ns = beat_ns, .wake = nobody_wakes, .remote_count = 1}};
    one->watch.peers = one->peers;
    one->watch.looked_ns = at_ns = acknowledged_ns = SOME_S;
    one->peers[0].fd = -1;
    one->peers[1] = (watch_peer){.fd = ASKED, .closed = true, .heard_ns = SOME_S, .beat_count = 1};
    atomic_store(&one->peers[1].state, TRI_WATCH_ALIVE);
}

/* Judges each beat until then; acknowledges: its host does all the time. False: it is lost. */
static bool far_lives_until(far *one, int64_t until_ns, bool acknowledges)
{
    while (at_ns < until_ns && tri_watch_is(&one->peers[1], TRI_WATCH_ALIVE)) {
        at_ns = at_ns + one->watch.beat_ns < until_ns ? at_ns + one->watch.beat_ns : until_ns;
        if (acknowledges)
            acknowledged_ns = at_ns;
        (void)tri_watch_judge(&one->watch, at_ns);
    }
    return tri_watch_is(&one->peers[1], TRI_WATCH_ALIVE);
}

static void far_is_lost_at(far *one, int64_t end_ns, bool acknowledges)
{
    assert_true(far_lives_until(one, end_ns - MS, acknowledges));
    assert_false(far_lives_until(one, end_ns, acknowledges));
}

static tri_verdict verdict_of(const far *one)
{
    return (tri_verdict)atomic_load(&one->peers[1].verdict);
}

static void a_rank_of_another_host_has_three_beats_and_six_if_its_host_answers(void **state)
{
    static far one;

    (void)state;
    for (int acknowledges = 0; acknowledges < 2; acknowledges++) {
        int64_t end_ns = SOME_S + (acknowledges ? 600 : 300) * MS;

        far_make(&one, 100 * MS);
        far_is_lost_at(&one, end_ns, acknowledges);
        assert_int_equal(verdict_of(&one), acknowledges ? TRI_VERDICT_STOPPED : TRI_VERDICT_UNREACHABLE);
        assert_non_null(strstr(one.watch.text, acknowledges ? "though its host answers" : "it or its host for 0.30 s"));
    }
}

static void one_that_beat_late_has_twice_that_time(void **state)
{
    static far one;

    (void)state;
    far_make(&one, 100 * MS);
    assert_true(far_lives_until(&one, SOME_S + 500 * MS, true));
    tri_watch_beat_heard(&one.peers[1], at_ns);
    far_is_lost_at(&one, SOME_S + 1500 * MS, false);
}

static void nobody_is_lost_before_three_beats_are_due(void **state)
{
    static far one;

    (void)state;
    far_make(&one, 10000 * MS);
    far_is_lost_at(&one, SOME_S + 30000 * MS, false);
}

static void an_excuse_lasts_as_long_as_the_silence_that_makes_a_rank_lost(void **state)
{
    static far one;

    (void)state;
    far_make(&one, 100 * MS);
    assert_true(far_lives_until(&one, SOME_S + 550 * MS, true));
    one.peers[1].excused_ns = at_ns;
    far_is_lost_at(&one, SOME_S + 850 * MS, true);
    /* Without an answer of its host it does not count. */
    far_make(&one, 100 * MS);
    assert_true(far_lives_until(&one, SOME_S + 250 * MS, false));
    one.peers[1].excused_ns = at_ns;
    assert_false(far_lives_until(&one, SOME_S + 300 * MS, false));
}

static void the_lateness_of_the_watcher_uses_up_neither(void **state)
{
    static far one;

    (void)state;
    for (int excused = 0; excused < 2; excused++) {
        int64_t end_ns = SOME_S + (excused ? 700 : 600) * MS + 7000 * MS;

        far_make(&one, 100 * MS);
        assert_true(far_lives_until(&one, SOME_S + 400 * MS, true));
        one.peers[1].excused_ns = excused ? at_ns : 0;
        at_ns = acknowledged_ns = at_ns + 7100 * MS; /* a beat was due in 100 ms */
        (void)tri_watch_judge(&one.watch, at_ns);
        far_is_lost_at(&one, end_ns, true);
    }
}

/* ---- who excuses: rank 0 computes, rank 1 is of its host, rank 2 is not */

static size_t note_compute(void *arg, unsigned char *bytes)
{
    const atomic_bool *excused = arg;

    (void)bytes;
    while (!atomic_load(excused)) {
    }
    return 0;
}

static void excused_await(tri_net *net, int rank)
{
    tri_watch *watch = tri_net_watch(net);

    for (int64_t at = 0; at == 0; tri_sleep_ns(MS)) {
        tri_mutex_lock(&watch->mutex);
        at = watch->peers[rank].excused_ns;
        tri_mutex_unlock(&watch->mutex);
    }
}

static void late_and_excused(spawn_rank *self, void *arg)
{
    atomic_bool *excused = arg;
    tri_watch_client client = {.note = note_compute, .arg = excused};
    tri_net *net = NULL;

    self->config.heartbeat_ms = 2000; /* the excuse comes seconds before its time is over */
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 0)
        tri_watch_client_set(tri_net_watch(net), &client);
    if (self->rank == 2) {
        excused_await(net, 0);
        atomic_store(excused, true);
    }
    spawn_barrier(self);
    if (self->rank == 0)
        tri_watch_client_set(tri_net_watch(net), NULL);
    SPAWN_CHECK(self, !tri_net_trouble(net));
    spawn_barrier(self);
    tri_net_close(net);
}

static void a_late_rank_is_excused_to_other_hosts_by_its_neighbour(void **state)
{
    static const int hosts[] = {0, 0, 1};
    spawn_config config = {.kind = SPAWN_AUTO, .world = 3, .hosts = hosts};
    atomic_bool excused = false;

    (void)state;
    assert_true(spawn_ranks(&config, late_and_excused, &excused));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_of_another_host_has_three_beats_and_six_if_its_host_answers),
        cmocka_unit_test(one_that_beat_late_has_twice_that_time),
        cmocka_unit_test(nobody_is_lost_before_three_beats_are_due),
        cmocka_unit_test(an_excuse_lasts_as_long_as_the_silence_that_makes_a_rank_lost),
        cmocka_unit_test(the_lateness_of_the_watcher_uses_up_neither),
        cmocka_unit_test(a_late_rank_is_excused_to_other_hosts_by_its_neighbour),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
