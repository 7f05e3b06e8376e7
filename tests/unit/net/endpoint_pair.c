/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_pair.c: opens two endpoints over any way and notes what happens.
 */
#include "unit/net/endpoint_pair.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define TURN_NS (TRI_NS_PER_MS / 5)

const endpoint_way endpoint_ways[ENDPOINT_WAYS] = {
    {.name = "tcp"},
    {.name = "tcp, encrypted", .encrypts = true},
    {.name = "inproc", .over_hub = true},
    {.name = "sim", .over_hub = true, .in_sim = true},
};

void pair_fail(endpoint_pair *pair, const char *file, int line, const char *condition)
{
    pair->failures++;
    fprintf(stderr, "%s:%d: over %s: %s does not hold (%s)\n", file, line, pair->way->name, condition,
            tri_last_error());
}

/* ---- what happens */

static pair_event *event_note(pair_end *end, pair_what what, tri_connection *connection)
{
    pair_event *event = &end->events[end->count];

    TRI_ASSERT(end->count < PAIR_EVENTS);
    end->count++;
    *event = (pair_event){.what = what, .connection = connection};
    return event;
}

static bool event_then(pair_end *end, const pair_event *event)
{
    return !end->then || end->then(end, event);
}

static bool end_opened(void *arg, tri_connection *connection)
{
    pair_end *end = arg;

    end->connection = connection;
    return event_then(end, event_note(end, PAIR_OPENED, connection));
}

static void *end_place(void *arg, tri_connection *connection, const tri_message *message, bool *refused)
{
    pair_end *end = arg;
    pair_event *event = event_note(end, PAIR_PLACED, connection);

    event->id = message->words[0];
    event->nbytes = message->nbytes;
    *refused = !event_then(end, event);
    return end->place;
}

static bool end_message(void *arg, tri_connection *connection, const tri_message *message, void *body)
{
    pair_end *end = arg;
    pair_event *event = event_note(end, PAIR_MESSAGE, connection);

    event->id = message->words[0];
    event->nbytes = message->nbytes;
    end->body = body;
    return event_then(end, event);
}

static void end_closed(void *arg, tri_connection *connection, const char *why)
{
    pair_end *end = arg;
    pair_event *event = event_note(end, PAIR_CLOSED, connection);

    snprintf(event->why, sizeof event->why, "%s", why);
    (void)event_then(end, event);
}

typedef struct pair_mail {
    pair_end *end;
    uint64_t id;
} pair_mail;

static void end_sent(void *arg, tri_status status)
{
    pair_mail mail = *(pair_mail *)arg;
    pair_event *event = event_note(mail.end, PAIR_SENT, NULL);

    free(arg);
    event->id = mail.id;
    event->status = status;
    (void)event_then(mail.end, event);
}

void pair_send(pair_end *end, tri_connection *connection, unsigned priority, uint64_t id, const void *body,
               size_t nbytes)
{
    tri_message message = {.kind = 1, .nbytes = nbytes, .words = {id}};
    pair_mail *mail = malloc(sizeof *mail);

    *mail = (pair_mail){end, id};
    if (tri_connection_send(connection, priority, &message, body, end_sent, mail) != TRI_OK) {
        PAIR_CHECK(end->pair, false && "tri_connection_send works");
        free(mail);
    }
}

const pair_event *pair_event_of(const pair_end *end, pair_what what, int n)
{
    for (int i = 0; i < end->count; i++) {
        if (end->events[i].what == what && n-- == 0)
            return &end->events[i];
    }
    return NULL;
}

int pair_count(const pair_end *end, pair_what what)
{
    int count = 0;

    for (int i = 0; i < end->count; i++)
        count += end->events[i].what == what;
    return count;
}

/* ---- opening and turning */

tri_endpoint_setup pair_setup(endpoint_pair *pair, int index)
{
    return (tri_endpoint_setup){.name = index == 0 ? "listener" : "dialer",
                                .config = &pair->config,
                                .token = "0123456789abcdef",
                                .listens = index == 0,
                                .body_limit = PAIR_LIMIT_NBYTES,
                                .hub = pair->hub,
                                .rank = index,
                                .world = 4,
                                .handlers = {.arg = &pair->ends[index],
                                             .opened = end_opened,
                                             .place = end_place,
                                             .message = end_message,
                                             .closed = end_closed}};
}

typedef struct pair_turner {
    tri_endpoint *endpoint;
    atomic_bool stop;
} pair_turner;

static void turner_main(void *arg)
{
    pair_turner *turner = arg;

    while (!atomic_load(&turner->stop))
        (void)tri_endpoint_poll(turner->endpoint, tri_deadline_after_ms(1000));
}

tri_status pair_dial(endpoint_pair *pair, tri_endpoint *from, const char *address, tri_connection **connection)
{
    pair_turner turner = {.endpoint = pair->ends[0].endpoint};
    tri_thread *thread;
    tri_status status;

    if (pair->way->over_hub)
        return tri_endpoint_dial(from, address, tri_deadline_after_ms(PAIR_WAIT_MS), connection);
    *connection = NULL;
    TRI_TRY(tri_thread_start(&thread, "turner", turner_main, &turner));
    status = tri_endpoint_dial(from, address, tri_deadline_after_ms(PAIR_WAIT_MS), connection);
    atomic_store(&turner.stop, true);
    tri_endpoint_wake(turner.endpoint);
    tri_thread_join(thread);
    return status;
}

void pair_turn(endpoint_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->ends[i].endpoint)
            PAIR_CHECK(pair, tri_endpoint_poll(pair->ends[i].endpoint, tri_now_ns() + TURN_NS) == TRI_OK);
    }
}

static void pair_run(endpoint_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        tri_endpoint_setup setup = pair_setup(pair, i);

        pair->ends[i].pair = pair;
        PAIR_CHECK(pair, tri_endpoint_open(&setup, &pair->ends[i].endpoint) == TRI_OK);
    }
    if (pair->ends[0].endpoint && pair->ends[1].endpoint) {
        pair_end *dialer = &pair->ends[1];

        PAIR_CHECK(pair, pair_dial(pair, dialer->endpoint, tri_endpoint_address(pair->ends[0].endpoint),
                                   &dialer->connection) == TRI_OK);
        PAIR_UNTIL(pair, pair->ends[0].connection);
        if (pair->failures == 0)
            pair->body(pair);
    }
    for (int i = 1; i >= 0; i--)
        tri_endpoint_close(pair->ends[i].endpoint);
}

static void pair_fiber(int index, void *arg)
{
    (void)index;
    pair_run(arg);
}

bool pair_holds(const endpoint_way *way, void (*body)(endpoint_pair *pair))
{
    uint64_t live = tri_memory_now().live;
    endpoint_pair *pair = tri_alloc_zero(1, sizeof *pair);
    tri_hub_config hub = {.world = 4, .fabric = {.latency_us = 5, .bandwidth = 10000000000}};
    int failures;

    TRI_ASSERT(pair);
    pair->way = way;
    pair->body = body;
    tri_options_defaults(&tri_net_options, &pair->config);
    pair->config.encrypt = way->encrypts;
    pair->config.slot_kib = 64;
    snprintf(pair->config.interface, sizeof pair->config.interface, "lo");
    if (way->over_hub)
        TRI_ASSERT(tri_hub_create(&hub, &pair->hub) == TRI_OK);
    if (!way->in_sim)
        pair_run(pair);
    else
        PAIR_CHECK(pair, tri_sim_run(&(tri_sim_config){.seed = 7}, 1, pair_fiber, pair) == TRI_OK);
    tri_hub_destroy(pair->hub);
    failures = pair->failures;
    tri_free(pair);
    if (tri_memory_now().live != live) {
        fprintf(stderr, "over %s: %d pieces of memory are left\n", way->name, (int)(tri_memory_now().live - live));
        return false;
    }
    return failures == 0;
}
