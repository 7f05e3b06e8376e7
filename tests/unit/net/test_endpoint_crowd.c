/* SPDX-License-Identifier: Apache-2.0
 *
 * test_endpoint_crowd.c: a thousand simulated clients of eight servers, and endpoints for which memory is out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "unit/net/cmocka_all.h"
#include "unit/net/endpoint_pair.h"

#define SERVERS 8
#define CLIENTS 1000
#define ROUNDS  3
#define WORLD   (SERVERS + CLIENTS)

/* ---- a thousand */

typedef struct crowd {
    tri_net_config config;
    tri_hub *hub;
    uint64_t peak_nbytes;
    int64_t end_ns;
    int failures, answers;
} crowd;

#define CROWD_CHECK(all, condition)                                                                                    \
    ((condition) ? (void)0                                                                                             \
                 : (void)((all)->failures++,                                                                           \
                          fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tri_last_error())))

typedef struct member {
    crowd *all;
    int rank, opened, closed, messages;
} member;

static bool member_opened(void *arg, tri_connection *connection)
{
    (void)connection;
    ((member *)arg)->opened++;
    return true;
}

static void member_closed(void *arg, tri_connection *connection, const char *why)
{
    (void)connection;
    (void)why;
    ((member *)arg)->closed++;
}

/* Servers answer with twice the bytes. */
static bool member_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    member *self = arg;
    tri_message answer = {.kind = 2, .nbytes = 2 * message->nbytes, .words = {message->words[0], message->words[1]}};
    unsigned char *twice;

    self->messages++;
    CROWD_CHECK(self->all, message->nbytes == 0 || ((unsigned char *)body)[message->nbytes - 1] == message->words[1]);
    if (message->kind == 2)
        return true;
    twice = malloc((size_t)answer.nbytes + 1);
    memset(twice, (int)message->words[1], (size_t)answer.nbytes);
    CROWD_CHECK(self->all, tri_connection_send(connection, 0, &answer, twice, NULL, NULL) == TRI_OK);
    free(twice);
    return true;
}

static tri_endpoint *member_open(member *self)
{
    tri_endpoint *endpoint;
    tri_endpoint_setup setup = {
        .name = "member",
        .config = &self->all->config,
        .token = "token",
        .listens = self->rank < SERVERS,
        .body_limit = 1 << 20,
        .hub = self->all->hub,
        .rank = self->rank,
        .world = WORLD,
        .handlers = {.arg = self, .opened = member_opened, .message = member_message, .closed = member_closed}};

    CROWD_CHECK(self->all, tri_endpoint_open(&setup, &endpoint) == TRI_OK);
    return endpoint;
}

static void client_run(member *self, tri_endpoint *endpoint)
{
    tri_connection *connections[SERVERS];
    unsigned char body[1000];
    char address[16];

    for (int server = 0; server < SERVERS; server++) {
        snprintf(address, sizeof address, "%d", server);
        CROWD_CHECK(self->all, tri_endpoint_dial(endpoint, address, TRI_FOREVER, &connections[server]) == TRI_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        memset(body, round + self->rank % 100, sizeof body);
        for (int server = 0; server < SERVERS; server++) {
            tri_message message = {.kind = 1, .nbytes = 1000, .words = {(uint64_t)server, body[0]}};

            CROWD_CHECK(self->all, tri_connection_send(connections[server], 0, &message, body, NULL, NULL) == TRI_OK);
        }
        while (self->messages < (round + 1) * SERVERS && self->closed == 0)
            CROWD_CHECK(self->all, tri_endpoint_poll(endpoint, TRI_FOREVER) == TRI_OK);
    }
    CROWD_CHECK(self->all, self->messages == ROUNDS * SERVERS && self->closed == 0);
    self->all->answers += self->messages;
}

static void member_main(int rank, void *arg)
{
    member self = {.all = arg, .rank = rank};
    tri_endpoint *endpoint = member_open(&self);

    if (rank < SERVERS) {
        while (self.closed < CLIENTS)
            CROWD_CHECK(self.all, tri_endpoint_poll(endpoint, TRI_FOREVER) == TRI_OK);
        CROWD_CHECK(self.all, self.opened == CLIENTS && self.messages == CLIENTS * ROUNDS);
        self.all->end_ns = tri_now_ns();
    } else {
        client_run(&self, endpoint);
    }
    tri_endpoint_close(endpoint);
}

static void eight_servers_have_a_thousand_clients(void **state)
{
    tri_hub_config hub = {.world = WORLD, .fabric = {.latency_us = 20, .bandwidth = 1200000000, .jitter_us = 3}};
    tri_sim_config sim = {.seed = 5, .stack_nbytes = (size_t)64 << 10};
    uint64_t before = tri_memory_now().live_nbytes, live = tri_memory_now().live;
    int64_t end_ns = 0;

    (void)state;
    for (int again = 0; again < 2; again++) {
        crowd all = {.failures = 0};

        tri_options_defaults(&tri_net_options, &all.config);
        assert_int_equal(tri_hub_create(&hub, &all.hub), TRI_OK);
        assert_int_equal(tri_sim_run(&sim, WORLD, member_main, &all), TRI_OK);
        tri_hub_destroy(all.hub);
        assert_int_equal(all.failures, 0);
        assert_int_equal(all.answers, CLIENTS * ROUNDS * SERVERS);
        /* The same seed, the same run. */
        assert_true(again == 0 || all.end_ns == end_ns);
        end_ns = all.end_ns;
    }
    print_message("%.2f MiB at most, %.3f ms\n", (double)(tri_memory_now().peak_nbytes - before) / 1048576,
                  (double)end_ns * 1e-6);
    assert_int_equal(tri_memory_now().live, live);
}

/* ---- memory is out */

static uint64_t fail_at;
static int told, queued;

static void count_sent(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
    told++;
}

/* Everything works or something has ended; nothing hangs, nothing is told twice. */
static void full_body(endpoint_pair *pair)
{
    static const size_t sizes[] = {100, 20000, 300000, 0};
    static unsigned char body[300000];
    pair_end *to = &pair->ends[0], *from = &pair->ends[1];
    tri_connection *connection = NULL;
    tri_status status = TRI_OK;
    int sent = 0, closed = pair_count(to, PAIR_CLOSED) + pair_count(from, PAIR_CLOSED);

    told = queued = 0;
    tri_memory_fail_at(fail_at);
    if (!pair->way->over_hub) {
        status = pair_dial(pair, from->endpoint, tri_endpoint_address(to->endpoint), &connection);
        /* The other end may have hung up in the midst of the encryption. */
        PAIR_CHECK(pair, status == TRI_OK || status == TRI_ENOMEM || (pair->way->encrypts && status == TRI_EPEER));
    }
    connection = status == TRI_OK && connection ? connection : from->connection;
    for (size_t i = 0; i < TRI_COUNT_OF(sizes); i++) {
        tri_message message = {.kind = 1, .nbytes = sizes[i], .words = {i}};

        status = tri_connection_send(connection, 0, &message, body, i % 2 ? count_sent : NULL, NULL);
        PAIR_CHECK(pair, status == TRI_OK || status == TRI_ENOMEM);
        sent += status == TRI_OK;
        queued += status == TRI_OK && i % 2;
    }
    PAIR_UNTIL(pair, pair_count(to, PAIR_MESSAGE) == sent ||
                         pair_count(to, PAIR_CLOSED) + pair_count(from, PAIR_CLOSED) > closed);
    tri_memory_fail_at(0);
}

static void opening_body(const endpoint_way *way)
{
    tri_net_config config;
    tri_hub_config hub_config = {.world = 4};
    uint64_t live = tri_memory_now().live;
    tri_status status = TRI_ENOMEM;

    tri_options_defaults(&tri_net_options, &config);
    config.encrypt = way->encrypts;
    config.slot_kib = 64;
    for (uint64_t n = 1; status != TRI_OK; n++) {
        tri_endpoint_setup setup = {.name = "full", .config = &config, .token = "t", .listens = true, .world = 4};
        tri_endpoint *endpoint;

        assert_true(n < 100);
        if (way->over_hub)
            assert_int_equal(tri_hub_create(&hub_config, &setup.hub), TRI_OK);
        setup.handlers = (tri_endpoint_handlers){.message = member_message, .closed = member_closed};
        tri_memory_fail_at(n);
        status = tri_endpoint_open(&setup, &endpoint);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || (status == TRI_ENOMEM && !endpoint));
        tri_endpoint_close(endpoint);
        tri_hub_destroy(setup.hub);
        assert_int_equal(tri_memory_now().live, live);
    }
}

static void a_full_memory_breaks_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < ENDPOINT_WAYS; i++) {
        if (!endpoint_ways[i].in_sim)
            opening_body(&endpoint_ways[i]);
        for (fail_at = 1; fail_at <= 40; fail_at++) {
            assert_true(pair_holds(&endpoint_ways[i], full_body));
            assert_int_equal(told, queued);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_servers_have_a_thousand_clients),
        cmocka_unit_test(a_full_memory_breaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
