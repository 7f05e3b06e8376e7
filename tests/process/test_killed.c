/* SPDX-License-Identifier: Apache-2.0
 *
 * test_killed.c: ranks as processes over each transport; one is killed or stopped in the middle, and the others must
 * say which, in time, whether they wait for it, send to it, or wait for somebody else.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "net/net.h"

#define WORLD  3
#define VICTIM 1
#define LARGE  ((size_t)64 << 20)

typedef enum scene { RECEIVE_FROM_IT, SEND_TO_IT, EXCHANGE_WITH_IT, WAIT_FOR_ANOTHER, SCENE_COUNT } scene;

/* What the processes share. */
typedef struct stage {
    volatile int opened, linked, skipped;
    char addresses[WORLD][TRI_NET_ADDRESS_NBYTES];
    volatile int64_t hit_ns, ended_ns[WORLD];
    volatile int status[WORLD];
    char said[WORLD][TRI_ERROR_NBYTES];
} stage;

static tri_status link_all(stage *on, const char *transport, int rank, double timeout_s, tri_net **net)
{
    tri_net_config config;
    const char *views[WORLD];
    tri_options_defaults(&tri_net_options, &config);
    (void)tri_options_set(&tri_net_options, &config, "transport", transport);
    config.timeout_s = timeout_s;
    TRI_TRY(tri_net_open(&config, rank, WORLD, "the token", NULL, net));
    snprintf(on->addresses[rank], sizeof(on->addresses[rank]), "%s", tri_net_address(*net));
    __atomic_add_fetch(&on->opened, 1, __ATOMIC_SEQ_CST);
    while (on->opened < WORLD)
        tri_sleep_ns(TRI_NS_PER_MS);
    for (int r = 0; r < WORLD; r++)
        views[r] = on->addresses[r];
    TRI_TRY(tri_net_connect(*net, views, tri_deadline_after_ms(20000)));
    __atomic_add_fetch(&on->linked, 1, __ATOMIC_SEQ_CST);
    while (on->linked < WORLD)
        tri_sleep_ns(TRI_NS_PER_MS);
    return TRI_OK;
}

static tri_move move_of(int peer, bool send, char *bytes)
{
    return (tri_move){.peer = peer,
                      .send = send,
                      .frame = {.kind = TRI_FRAME_DATA, .op = 1, .sequence = 1, .count = LARGE, .nbytes = LARGE},
                      .bytes = bytes};
}

static tri_status play(tri_net *net, scene what, int rank, double timeout_s, char *bytes)
{
    int64_t deadline_ns = tri_deadline_after_ms((int64_t)(timeout_s * 1000));
    int other = what == WAIT_FOR_ANOTHER ? 2 - rank : VICTIM;
    tri_move moves[2] = {move_of(other, what == SEND_TO_IT, bytes), move_of(other, true, bytes + LARGE)};
    return tri_net_move(net, moves, what == EXCHANGE_WITH_IT && rank == 0 ? 2 : 1, deadline_ns, NULL, NULL);
}

static void be_rank(stage *on, const char *transport, scene what, int rank, double timeout_s)
{
    tri_net *net = NULL;
    char *bytes = tri_alloc_zero(2, LARGE);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tri_status status = link_all(on, transport, rank, 20, &net);
    while (status == TRI_OK && rank == VICTIM)
        pause(); /* it takes nothing, so that no send to it ends before the test kills or stops it */
    if (status == TRI_OK)
        status = play(net, what, rank, timeout_s, bytes);
    on->ended_ns[rank] = tri_now_ns();
    on->status[rank] = (int)status;
    snprintf(on->said[rank], sizeof(on->said[rank]), "%s", tri_last_error());
    /* Nobody leaves before the other survivor has found its own cause. */
    for (int i = 0; i < 30000 && on->ended_ns[2 - rank] == 0; i++)
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_net_close(net);
    tri_free(bytes);
    _exit(0);
}

static stage *run_scene(const char *transport, scene what, int signal_number, double timeout_s)
{
    pid_t pids[WORLD];
    stage *on = mmap(NULL, sizeof(*on), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(on, MAP_FAILED);
    for (int r = 0; r < WORLD; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            be_rank(on, transport, what, r, timeout_s);
    }
    for (int i = 0; i < 30000 && on->linked < WORLD; i++)
        tri_sleep_ns(TRI_NS_PER_MS);
    assert_int_equal(on->linked, WORLD);
    tri_sleep_ns(150 * TRI_NS_PER_MS);
    on->hit_ns = tri_now_ns();
    kill(pids[VICTIM], signal_number);
    for (int r = 0; r < WORLD; r++) {
        if (r != VICTIM)
            assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
    }
    kill(pids[VICTIM], SIGKILL);
    waitpid(pids[VICTIM], NULL, 0);
    return on;
}

static bool is_here(const char *transport)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        tri_net_config config;
        tri_net *net = NULL;
        tri_options_defaults(&tri_net_options, &config);
        (void)tri_options_set(&tri_net_options, &config, "transport", transport);
        tri_status opened = tri_net_open(&config, 0, 2, "the token", NULL, &net);
        _exit(opened == TRI_ENOTFOUND || strstr(tri_last_error(), "this build has none") ? 1 : 0);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void check_killed(const char *transport, const char *over)
{
    if (!is_here(transport)) {
        fprintf(stderr, "skipped over %s: it is not here\n", transport);
        return;
    }
    if (over)
        setenv("UCX_TLS", over, 1);
    for (int what = 0; what < SCENE_COUNT; what++) {
        stage *on = run_scene(transport, (scene)what, SIGKILL, 20);
        for (int r = 0; r < WORLD; r += 2) {
            int64_t took_ns = on->ended_ns[r] - on->hit_ns;
            fprintf(stderr, "%s %s scene %d: rank %d after %.1f ms: %s\n", transport, over ? over : "", what, r,
                    (double)took_ns * 1e-6, on->said[r]);
            assert_int_equal(on->status[r], TRI_EPEER);
            assert_non_null(strstr(on->said[r], "rank 1 is gone"));
        }
        munmap(on, sizeof(*on));
    }
    stage *on = run_scene(transport, RECEIVE_FROM_IT, SIGSTOP, 20);
    assert_int_equal(on->status[0], TRI_EPEER); /* its watch is silent */
    assert_non_null(strstr(on->said[0], "rank 1 is stopped"));
    munmap(on, sizeof(*on));
}

static void a_killed_peer_is_named_over_shm(void **state)
{
    (void)state;
    check_killed("shm", NULL);
}

static void a_killed_peer_is_named_over_tcp(void **state)
{
    (void)state;
    check_killed("tcp", NULL);
}

static void a_killed_peer_is_named_over_ucx_by_shared_memory(void **state)
{
    (void)state;
    check_killed("ucx", "sm");
}

static void a_killed_peer_is_named_over_ucx_by_tcp(void **state)
{
    (void)state;
    check_killed("ucx", "tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_named_over_shm),
        cmocka_unit_test(a_killed_peer_is_named_over_tcp),
        cmocka_unit_test(a_killed_peer_is_named_over_ucx_by_shared_memory),
        cmocka_unit_test(a_killed_peer_is_named_over_ucx_by_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
