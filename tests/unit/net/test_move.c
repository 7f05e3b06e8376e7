/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

static const size_t payloads[] = {0, 1, 63, 64, 65, 1000, (1 << 20) + 3};
static const int worlds[] = {1, 2, 3, 5, 8};

static unsigned char byte_of(int from, int to, int part, size_t index)
{
    return (unsigned char)(index * 31 + (size_t)(from * 7 + to * 13 + part * 5));
}

static tri_frame frame_of(size_t nbytes, int part)
{
    return (tri_frame){
        .kind = TRI_FRAME_DATA, .op = 1, .sequence = 5, .count = nbytes, .nbytes = nbytes, .part = (uint32_t)part};
}

/* Checks what a consumer is promised, and collects. */
typedef struct collector {
    spawn_rank *self;
    unsigned char *bytes;
    size_t nbytes, next;
} collector;

static void collect(void *arg, size_t first, const void *bytes, size_t nbytes)
{
    collector *to = arg;

    SPAWN_CHECK(to->self, first == to->next && first % 64 == 0);
    SPAWN_CHECK(to->self, (uintptr_t)bytes % 64 == 0);
    SPAWN_CHECK(to->self, nbytes > 0 && nbytes <= to->nbytes - first);
    memcpy(to->bytes + first, bytes, nbytes);
    to->next = first + nbytes;
}

typedef struct exchange {
    size_t nbytes;
    int parts;
    bool consumes;
} exchange;

/* Every rank sends `parts` frames to every other and checks what it gets. */
static void all_pairs(spawn_rank *self, tri_net *net, const exchange *what)
{
    size_t pairs = (size_t)(self->world - 1) * (size_t)what->parts, count = 0;
    tri_move *moves = calloc(2 * pairs + 1, sizeof *moves);
    collector *collectors = calloc(pairs + 1, sizeof *collectors);
    unsigned char *bytes = malloc(2 * pairs * what->nbytes + 1), *at = bytes;
    uint64_t calls;

    for (int part = 0; part < what->parts; part++) {
        for (int peer = 0; peer < self->world; peer++) {
            size_t pair = count / 2;

            if (peer == self->rank)
                continue;
            for (size_t i = 0; i < what->nbytes; i++)
                at[i] = byte_of(self->rank, peer, part, i);
            moves[count++] = (tri_move){.peer = peer, .send = true, .frame = frame_of(what->nbytes, part), .bytes = at};
            at += what->nbytes;
            memset(at, 0xee, what->nbytes);
            collectors[pair] = (collector){.self = self, .bytes = at, .nbytes = what->nbytes};
            moves[count++] = (tri_move){.peer = peer,
                                        .frame = frame_of(what->nbytes, part),
                                        .bytes = what->consumes ? NULL : at,
                                        .consumer = what->consumes ? collect : NULL,
                                        .consumer_arg = &collectors[pair]};
            if (what->nbytes == 0)
                moves[count - 1].bytes = bytes;
            at += what->nbytes;
        }
    }
    spawn_barrier(self);
    calls = tri_memory_now().calls;
    SPAWN_CHECK(self, tri_net_move(net, moves, count, tri_deadline_after_ms(60000), NULL, NULL) == TRI_OK);
    spawn_barrier(self);
    /* A simulated network keeps what is under way. */
    if (!self->hub || self->config.transport != TRI_TRANSPORT_SIM)
        SPAWN_CHECK(self, tri_memory_now().calls == calls);
    for (size_t i = 1; i < count; i += 2) {
        const unsigned char *got = collectors[i / 2].bytes;
        bool same = true;

        SPAWN_CHECK(self, moves[i].done_nbytes == TRI_FRAME_NBYTES + what->nbytes);
        for (size_t k = 0; k < what->nbytes; k++)
            same &= got[k] == byte_of(moves[i].peer, self->rank, (int)moves[i].frame.part, k);
        SPAWN_CHECK(self, same);
    }
    spawn_barrier(self);
    free(bytes);
    free(collectors);
    free(moves);
}

static void all_payloads(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    for (size_t i = 0; i < TRI_COUNT_OF(payloads); i++) {
        for (int consumes = 0; consumes < 2; consumes++) {
            /* The largest once: eight ranks move 58 MB then. */
            exchange what = {.nbytes = payloads[i], .parts = payloads[i] > 1000 ? 1 : 3, .consumes = consumes};

            all_pairs(self, net, &what);
        }
    }
    tri_net_close(net);
}

static void pairs_over(spawn_kind kind)
{
    for (size_t i = 0; i < TRI_COUNT_OF(worlds); i++) {
        spawn_config config = {.kind = kind, .world = worlds[i], .seed = 11 + i};

        assert_true(spawn_ranks(&config, all_payloads, NULL));
    }
}

#define PAIRS_OVER(name, kind)                                                                                         \
    static void all_pairs_get_their_bytes_over_##name(void **state)                                                    \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        pairs_over(kind);                                                                                              \
    }
PAIRS_OVER(inproc, SPAWN_INPROC)
PAIRS_OVER(shm, SPAWN_SHM)
PAIRS_OVER(tcp, SPAWN_TCP)
PAIRS_OVER(ucx, SPAWN_UCX)
PAIRS_OVER(sim, SPAWN_SIM)
PAIRS_OVER(fibers, SPAWN_INPROC_FIBERS)

static void names_the_transport(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    SPAWN_CHECK(self, strcmp(tri_net_transport_name(net, 1 - self->rank), "shm") == 0);
    SPAWN_CHECK(self, strcmp(tri_net_transport_name(net, self->rank), "self") == 0);
    SPAWN_CHECK(self, tri_net_rank(net) == self->rank && tri_net_world(net) == 2);
    spawn_barrier(self);
    tri_net_close(net);
}

static void auto_takes_shared_memory_inside_a_host(void **state)
{
    spawn_config config = {.kind = SPAWN_AUTO, .world = 2};

    (void)state;
    assert_true(spawn_ranks(&config, names_the_transport, NULL));
}

/* Rank 2 claims to be on another host: shm between 0 and 1, tcp to 2. */
static void mixed_hosts(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    const char *const *addresses;
    char own[TRI_NET_ADDRESS_NBYTES];
    exchange what = {.nbytes = 300001, .parts = 2, .consumes = true};

    (void)arg;
    self->config.heartbeat_ms = 0;
    SPAWN_CHECK(self, tri_net_open(&self->config, self->rank, self->world, self->token, NULL, &net) == TRI_OK);
    snprintf(own, sizeof own, "%s", tri_net_address(net));
    if (self->rank == 2)
        own[5] = own[5] == 'x' ? 'y' : 'x';
    addresses = spawn_exchange(self, own);
    if (self->rank == 2) {
        /* From its side too nobody else is on its host. */
        char others[3][TRI_NET_ADDRESS_NBYTES];
        const char *views[3] = {others[0], others[1], others[2]};

        for (int r = 0; r < 3; r++) {
            snprintf(others[r], sizeof others[r], "%s", addresses[r]);
            if (r < 2)
                others[r][5] = others[r][5] == 'x' ? 'y' : 'x';
        }
        SPAWN_CHECK(self, tri_net_connect(net, views, tri_deadline_after_ms(10000)) == TRI_OK);
    } else {
        SPAWN_CHECK(self, tri_net_connect(net, addresses, tri_deadline_after_ms(10000)) == TRI_OK);
    }
    for (int peer = 0; peer < 3; peer++) {
        if (peer != self->rank)
            SPAWN_CHECK(self,
                        strcmp(tri_net_transport_name(net, peer), peer == 2 || self->rank == 2 ? "tcp" : "shm") == 0);
    }
    all_pairs(self, net, &what);
    tri_net_close(net);
}

static void ranks_on_two_hosts_mix_shm_and_tcp(void **state)
{
    spawn_config config = {.kind = SPAWN_AUTO, .world = 3};

    (void)state;
    assert_true(spawn_ranks(&config, mixed_hosts, NULL));
}

/* A frame of the next call comes before this call is over. */
static void early_frames(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    char a = 'a', b = 'b', got = 0;
    tri_move send[2] = {{.peer = 1, .send = true, .frame = frame_of(1, 0), .bytes = &a},
                        {.peer = 1, .send = true, .frame = frame_of(1, 1), .bytes = &b}};
    tri_move receive = {.peer = 0, .frame = frame_of(1, 0), .bytes = &got};

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 0) {
        SPAWN_CHECK(self, tri_net_move(net, send, 2, tri_deadline_after_ms(5000), NULL, NULL) == TRI_OK);
    } else {
        SPAWN_CHECK(self, tri_net_move(net, &receive, 1, tri_deadline_after_ms(5000), NULL, NULL) == TRI_OK);
        SPAWN_CHECK(self, got == 'a');
        receive.frame = frame_of(1, 1);
        SPAWN_CHECK(self, tri_net_move(net, &receive, 1, tri_deadline_after_ms(5000), NULL, NULL) == TRI_OK);
        SPAWN_CHECK(self, got == 'b');
    }
    spawn_barrier(self);
    tri_net_close(net);
}

static void early_frames_wait_for_their_call(void **state)
{
    (void)state;
    for (spawn_kind kind = 0; kind < SPAWN_KIND_COUNT; kind++) {
        spawn_config config = {.kind = kind, .world = 2};

        assert_true(spawn_ranks(&config, early_frames, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_get_their_bytes_over_inproc),
        cmocka_unit_test(all_pairs_get_their_bytes_over_shm),
        cmocka_unit_test(all_pairs_get_their_bytes_over_tcp),
        cmocka_unit_test(all_pairs_get_their_bytes_over_ucx),
        cmocka_unit_test(all_pairs_get_their_bytes_over_sim),
        cmocka_unit_test(all_pairs_get_their_bytes_over_fibers),
        cmocka_unit_test(auto_takes_shared_memory_inside_a_host),
        cmocka_unit_test(ranks_on_two_hosts_mix_shm_and_tcp),
        cmocka_unit_test(early_frames_wait_for_their_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
