/* SPDX-License-Identifier: Apache-2.0
 *
 * test_endpoint.c: messages between one endpoint that listens and others that dial, over each way.
 */
#include "net/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

#define LIMIT_NBYTES ((size_t)64 << 20)
#define WAIT_MS      240000

typedef struct endpoint_way {
    const char *name;
    spawn_kind kind;
    bool encrypts;
} endpoint_way;

static const endpoint_way ways[] = {
    {"tcp", SPAWN_TCP, false},
    {"tcp, encrypted", SPAWN_TCP, true},
    {"inproc", SPAWN_INPROC, false},
    {"sim", SPAWN_SIM, false},
};

/* What bodies and words are made of. */
static unsigned char byte_of(uint64_t connection, uint64_t index, size_t at)
{
    return (unsigned char)(connection * 7 + index * 31 + at + (at >> 11));
}

static void body_fill(unsigned char *body, size_t nbytes, uint64_t connection, uint64_t index)
{
    for (size_t i = 0; i < nbytes; i++)
        body[i] = byte_of(connection, index, i);
}

static bool body_is(const unsigned char *body, size_t nbytes, uint64_t connection, uint64_t index)
{
    for (size_t i = 0; i < nbytes; i++) {
        if (body[i] != byte_of(connection, index, i))
            return false;
    }
    return true;
}

/* One endpoint of a test, and what has happened to it. */
typedef struct endpoint_side {
    spawn_rank *self;
    tri_endpoint *endpoint;
    const size_t *sizes;
    size_t size_count;
    bool places;    /* says where bodies shall lie */
    bool echoes;    /* sends back what comes */
    uint64_t count; /* messages that each connection gives */
    int opened, closed, messages, sent, lost;
    uint64_t next[16]; /* of each caller */
    char why[256];
} endpoint_side;

static size_t nbytes_of(const endpoint_side *side, uint64_t index)
{
    return side->sizes[index % side->size_count];
}

static bool side_opened(void *arg, tri_connection *connection)
{
    endpoint_side *side = arg;

    (void)connection;
    side->opened++;
    return true;
}

static void *side_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    endpoint_side *side = arg;

    (void)connection;
    (void)refused;
    return side->places ? malloc((size_t)message->nbytes) : NULL;
}

static void free_sent(void *arg, tri_status status)
{
    (void)status;
    free(arg);
}

static bool side_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    endpoint_side *side = arg;
    uint64_t from = message->words[0], index = message->words[1];

    side->messages++;
    SPAWN_CHECK(side->self, from < TRI_COUNT_OF(side->next) && index == side->next[from]);
    side->next[from]++;
    SPAWN_CHECK(side->self, message->nbytes == nbytes_of(side, index) && message->kind == 3 && message->flags == 5);
    SPAWN_CHECK(side->self, message->words[4] == ~index);
    SPAWN_CHECK(side->self, body_is(body, (size_t)message->nbytes, from, index));
    SPAWN_CHECK(side->self, side->places || (uintptr_t)body % 64 == 0);
    if (side->echoes && side->places)
        SPAWN_CHECK(side->self, tri_connection_send(connection, 0, message, body, free_sent, body) == TRI_OK);
    else if (side->echoes)
        SPAWN_CHECK(side->self, tri_connection_send(connection, 0, message, body, NULL, NULL) == TRI_OK);
    else if (side->places)
        free(body);
    return true;
}

static void side_closed(void *arg, tri_connection *connection, const char *why)
{
    endpoint_side *side = arg;

    (void)connection;
    side->closed++;
    snprintf(side->why, sizeof side->why, "%s", why);
}

static tri_endpoint_setup side_setup(endpoint_side *side, spawn_rank *self, const endpoint_way *way, bool listens)
{
    side->self = self;
    self->config.encrypt = way->encrypts;
    self->config.timeout_s = 30;
    snprintf(self->config.interface, sizeof self->config.interface, "%s", self->hub ? "" : "lo");
    return (tri_endpoint_setup){
        .name = "post",
        .config = &self->config,
        .token = self->token,
        .listens = listens,
        .body_limit = LIMIT_NBYTES,
        .hub = self->hub,
        .rank = self->rank,
        .world = self->world,
        .handlers = {
            .arg = side, .opened = side_opened, .place = side_place, .message = side_message, .closed = side_closed}};
}

/* Opens, and dials rank 0 from all others. */
static bool side_open(endpoint_side *side, spawn_rank *self, const endpoint_way *way, tri_connection **connection)
{
    tri_endpoint_setup setup = side_setup(side, self, way, self->rank == 0);
    tri_status status = tri_endpoint_open(&setup, &side->endpoint);
    const char *const *addresses = spawn_exchange(self, status == TRI_OK ? tri_endpoint_address(side->endpoint) : "");

    SPAWN_CHECK(self, status == TRI_OK);
    if (status != TRI_OK || self->rank == 0)
        return status == TRI_OK;
    status = tri_endpoint_dial(side->endpoint, addresses[0], tri_deadline_after_ms(WAIT_MS), connection);
    SPAWN_CHECK(self, status == TRI_OK);
    return status == TRI_OK;
}

static void message_send(endpoint_side *side, tri_connection *connection, uint64_t index)
{
    size_t nbytes = nbytes_of(side, index);
    unsigned char *body = malloc(nbytes + 1);
    tri_message message = {
        .kind = 3, .flags = 5, .nbytes = nbytes, .words = {(uint64_t)side->self->rank, index, 0, 0, ~index}};

    body_fill(body, nbytes, (uint64_t)side->self->rank, index);
    tri_message_sent sent = index % 2 == 0 ? free_sent : NULL;
    if (index % 3 == 0) {
        size_t first = nbytes * (index % 5) / 4; /* none, some or all of it */
        size_t second = (nbytes - first) * (index % 4) / 3;
        const tri_part parts[TRI_MESSAGE_PARTS] = {
            {body, first}, {body + first, second}, {body + first + second, nbytes - first - second}};

        SPAWN_CHECK(side->self, tri_connection_send_parts(connection, 0, &message, parts, sent, body) == TRI_OK);
    } else
        SPAWN_CHECK(side->self, tri_connection_send(connection, 0, &message, body, sent, body) == TRI_OK);
    if (!sent)
        free(body);
}

#define TURN_UNTIL(side, condition)                                                                                    \
    do {                                                                                                               \
        int64_t until_ns_ = tri_deadline_after_ms(WAIT_MS);                                                            \
        while (!(condition) && tri_now_ns() < until_ns_)                                                               \
            SPAWN_CHECK((side)->self, tri_endpoint_poll((side)->endpoint, until_ns_) == TRI_OK);                       \
        SPAWN_CHECK((side)->self, condition);                                                                          \
    } while (0)

typedef struct echo_test {
    const endpoint_way *way;
    const size_t *sizes;
    size_t size_count;
    int count;
    bool places;
} echo_test;

static void echo_body(spawn_rank *self, void *arg)
{
    const echo_test *test = arg;
    endpoint_side side = {
        .sizes = test->sizes, .size_count = test->size_count, .places = test->places, .echoes = self->rank == 0};
    tri_connection *connection = NULL;

    if (side_open(&side, self, test->way, &connection)) {
        if (self->rank == 0) {
            TURN_UNTIL(&side, side.closed == self->world - 1);
            SPAWN_CHECK(self, side.opened == self->world - 1 && side.messages == (self->world - 1) * test->count);
        } else {
            for (int i = 0; i < test->count; i++)
                message_send(&side, connection, (uint64_t)i);
            TURN_UNTIL(&side, side.messages == test->count || side.closed);
            SPAWN_CHECK(self, side.messages == test->count);
            SPAWN_CHECK(self, side.closed || tri_connection_queued(connection) == 0); /* a closed connection is gone */
        }
    }
    tri_endpoint_close(side.endpoint);
}

static void echo_over_all(const size_t *sizes, size_t size_count, int count, int world)
{
    for (size_t i = 0; i < TRI_COUNT_OF(ways); i++) {
        for (int places = 0; places < 2; places++) {
            echo_test test = {
                .way = &ways[i], .sizes = sizes, .size_count = size_count, .count = count, .places = places};

            print_message("over %s, %s places\n", ways[i].name, places ? "with" : "without");
            assert_true(spawn_ranks(&(spawn_config){.kind = ways[i].kind, .world = world}, echo_body, &test));
        }
    }
}

static void messages_of_all_lengths_come_whole_and_in_order(void **state)
{
    static const size_t sizes[] = {0,    1,     63,    64,         65,     1000,     4096,
                                   8191, 65536, 65537, 16384 - 64, 300000, 1u << 20, 3000001};

    (void)state;
    echo_over_all(sizes, TRI_COUNT_OF(sizes), 28, 4);
}

static void thousands_of_small_messages_go_both_ways_at_once(void **state)
{
    static const size_t sizes[] = {0, 8, 100, 0, 700};

    (void)state;
    echo_over_all(sizes, TRI_COUNT_OF(sizes), 5000, 4);
}

static void the_longest_bodies_come_whole(void **state)
{
    static const size_t sizes[] = {LIMIT_NBYTES};

    (void)state;
    echo_over_all(sizes, 1, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_lengths_come_whole_and_in_order),
        cmocka_unit_test(thousands_of_small_messages_go_both_ways_at_once),
        cmocka_unit_test(the_longest_bodies_come_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
