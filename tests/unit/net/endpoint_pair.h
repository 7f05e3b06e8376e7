/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_pair.h: two endpoints for messages in one thread, the first of which listens, and what has happened to each.
 *
 * cmocka's asserts jump, which a fiber must not; bodies use PAIR_CHECK, and pair_holds() says whether all held.
 */
#ifndef TRI_TESTS_ENDPOINT_PAIR_H
#define TRI_TESTS_ENDPOINT_PAIR_H

#include "net/endpoint.h"

typedef struct endpoint_way {
    const char *name;
    bool over_hub, in_sim, encrypts;
} endpoint_way;
#define ENDPOINT_WAYS 4
extern const endpoint_way endpoint_ways[ENDPOINT_WAYS];

#define PAIR_WAIT_MS      120000 /* a hang */
#define PAIR_EVENTS       4096
#define PAIR_LIMIT_NBYTES ((size_t)64 << 20)

typedef struct pair_end pair_end;

typedef enum pair_what { PAIR_OPENED, PAIR_PLACED, PAIR_MESSAGE, PAIR_CLOSED, PAIR_SENT } pair_what;

typedef struct pair_event {
    pair_what what;
    tri_connection *connection; /* NULL: sent */
    uint64_t id;                /* words[0] of the message */
    uint64_t nbytes;            /* of its body */
    tri_status status;
    char why[128]; /* closed */
} pair_event;

struct pair_end {
    tri_endpoint *endpoint;
    tri_connection *connection; /* the latest one that was opened or dialed */
    struct endpoint_pair *pair;
    pair_event events[PAIR_EVENTS];
    int count;
    /* What a handler does besides noting the event; NULL: nothing. False: hang up, or refused. */
    bool (*then)(pair_end *end, const pair_event *event);
    unsigned char *place;      /* where bodies shall lie; NULL: in the endpoint's memory */
    const unsigned char *body; /* of the message that is being handled */
};

typedef struct endpoint_pair {
    const endpoint_way *way;
    tri_net_config config;
    tri_hub *hub;
    pair_end ends[2]; /* the listener, the dialer */
    void (*body)(struct endpoint_pair *pair);
    int failures;
} endpoint_pair;

/* Opens, dials, runs the body and closes, over one way. False: something did not hold. */
bool pair_holds(const endpoint_way *way, void (*body)(endpoint_pair *pair));
/* What an endpoint of the pair is opened with. */
tri_endpoint_setup pair_setup(endpoint_pair *pair, int index);
/* Dials the listener from an endpoint, while the listener turns. */
tri_status pair_dial(endpoint_pair *pair, tri_endpoint *from, const char *address, tri_connection **connection);
/* Both ends have a turn. */
void pair_turn(endpoint_pair *pair);
/* The message with an id, without words; its `sent` is noted at the end it was sent from. */
void pair_send(pair_end *end, tri_connection *connection, unsigned priority, uint64_t id, const void *body,
               size_t nbytes);
/* Events of a kind so far, or the n-th of them (NULL: not yet). */
int pair_count(const pair_end *end, pair_what what);
const pair_event *pair_event_of(const pair_end *end, pair_what what, int n);
void pair_fail(endpoint_pair *pair, const char *file, int line, const char *condition);

#define PAIR_CHECK(pair, condition) ((condition) ? (void)0 : pair_fail((pair), __FILE__, __LINE__, #condition))
/* Turns both until it holds. */
#define PAIR_UNTIL(pair, condition)                                                                                    \
    do {                                                                                                               \
        int64_t until_ns_ = tri_deadline_after_ms(PAIR_WAIT_MS);                                                       \
        while (!(condition) && tri_now_ns() < until_ns_)                                                               \
            pair_turn(pair);                                                                                           \
        PAIR_CHECK(pair, condition);                                                                                   \
    } while (0)

#endif
