/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.h: messages between endpoints that come and go: one that listens, any number that dial, each over a
 * connection on which both ends have proven the job's token.
 *
 * Where ranks of a group know each other before the first byte (net.h), here nobody is counted: a server has as many
 * connections as clients have dialed, and a connection that ends is an event, not a failure. One thread turns an
 * endpoint (tri_endpoint_poll) and all handlers run in it; tri_endpoint_wake() alone may come from elsewhere. A message
 * is a head of 64 bytes and a body; the receiver says where the body shall be, so it is read where it is used. Two
 * rows: sockets (TCP, epoll; TLS with comm.encrypt) and a hub (threads of a process, fibers of a simulation).
 * docs/formats/wire.md.
 */
#ifndef TRI_NET_ENDPOINT_H
#define TRI_NET_ENDPOINT_H

#include "net/transport.h"

#define TRI_MESSAGE_NBYTES 64
#define TRI_MESSAGE_WORDS  5
#define TRI_MESSAGE_PARTS  3 /* places that a body may be in */

/* The head of a message; on the wire little endian with a magic and a check. Words mean what the two ends agree on. */
typedef struct tri_message {
    uint16_t kind, flags;
    uint64_t nbytes; /* of the body */
    uint64_t words[TRI_MESSAGE_WORDS];
} tri_message;

typedef struct tri_endpoint tri_endpoint;
typedef struct tri_connection tri_connection;

/* All are called inside tri_endpoint_poll(), `closed` also inside tri_endpoint_close(). They may send, pause, dial and
 * hang up, on any connection, but not turn. */
typedef struct tri_endpoint_handlers {
    void *arg;
    /* Somebody has dialed and knows the token. NULL: fine. False: hang up. */
    bool (*opened)(void *arg, tri_connection *connection);
    /* The head of a message with a body has come: where the body shall be, at least nbytes, until `message` or
     * `closed`. NULL slot or NULL: in memory of the endpoint's own, 64-byte aligned, valid while `message` runs.
     * *refused: hang up instead (a body that nobody asked for). */
    void *(*place)(void *arg, tri_connection *connection, const tri_message *message, bool *refused);
    /* A message is whole; body NULL: it has none. False: hang up; tri_last_error() says why. */
    bool (*message)(void *arg, tri_connection *connection, const tri_message *message, void *body);
    /* The connection is gone, with all messages that were not sent; it is freed after this call. why: for people. All
     * messages that came before have been handled; a body that was being placed will not come. Not called for
     * connections that this end hangs up on; of a connection that is paused when it is read again. */
    void (*closed)(void *arg, tri_connection *connection, const char *why);
} tri_endpoint_handlers;

typedef struct tri_endpoint_setup {
    const char *name;             /* what messages call this endpoint */
    const tri_net_config *config; /* interface, encrypt, timeout_s */
    const char *token;
    bool listens;
    size_t body_limit;    /* a message with a longer body ends its connection */
    int connection_limit; /* connections that others dial at most (further ones are refused), 0: as many as descriptors
                             allow */
    tri_hub *hub;         /* NULL: sockets. Else the place of this endpoint in it, and how many it has: */
    int rank, world;
    tri_endpoint_handlers handlers;
} tri_endpoint_setup;

tri_status tri_endpoint_open(const tri_endpoint_setup *setup, tri_endpoint **out);
/* What others dial; "" where it does not listen. Valid while open; at most TRI_ENDPOINT_ADDRESS_NBYTES with its 0. */
#define TRI_ENDPOINT_ADDRESS_NBYTES 512
const char *tri_endpoint_address(const tri_endpoint *endpoint);
/* Tries the places that the address names, again and again, until one proves to know the token, or the deadline.
 * TRI_EPEER: nobody is there, or somebody who does not know the token; TRI_ECONFIG: comm.encrypt differs. Turns
 * nothing: no handler runs meanwhile; who calls this end is answered, so that two may dial each other. Over a hub two
 * ends have one connection at a time: a second one is TRI_EINVAL, and when both dial at once it is the same. */
tri_status tri_endpoint_dial(tri_endpoint *endpoint, const char *address, int64_t deadline_ns, tri_connection **out);
/* The same for one that was there before: gives up as soon as nobody listens at any of its places. */
tri_status tri_endpoint_redial(tri_endpoint *endpoint, const char *address, int64_t deadline_ns, tri_connection **out);
/* Queues a message; messages of a higher priority (a larger number) overtake those that wait (not the one under way),
 * equal ones keep their order. It goes with the turn that is under way or the next one, therefore many that are queued
 * together go with few calls of the system, and none is made here. The body stays untouched until `sent` is called,
 * inside a turn: with TRI_OK when all bytes are with the kernel, with TRI_EPEER when the connection is gone (before
 * `closed`), TRI_ECANCELED when this end hangs up. sent NULL: the body is copied. TRI_ENOMEM: nothing has happened.
 * Never fails for a connection that is going down: its `closed` comes. */
typedef void (*tri_message_sent)(void *arg, tri_status status);
tri_status tri_connection_send(tri_connection *connection, unsigned priority, const tri_message *message,
                               const void *body, tri_message_sent sent, void *arg);
/* The same with a body that is in several places. */
tri_status tri_connection_send_parts(tri_connection *connection, unsigned priority, const tri_message *message,
                                     const tri_part body[TRI_MESSAGE_PARTS], tri_message_sent sent, void *arg);
/* Sends what the way takes of it now: before this end is busy for long. */
void tri_connection_flush(tri_connection *connection);
/* Bytes that have come on the connection. */
uint64_t tri_connection_received(const tri_connection *connection);
/* Bytes of messages that wait to be sent. */
size_t tri_connection_queued(const tri_connection *connection);
/* Reads nothing more from a connection until it is called with false: the sender waits then, by the transport's own
 * means. That the other end has left is noticed then too. */
void tri_connection_pause(tri_connection *connection, bool paused);
/* The owner's word for a connection; NULL at first. */
void tri_connection_data_set(tri_connection *connection, void *note);
void *tri_connection_data(const tri_connection *connection);
/* Where the other end is, for people. */
const char *tri_connection_peer(const tri_connection *connection);
/* Both ends are on this machine, over its loopback. */
bool tri_connection_is_local(const tri_connection *connection);
/* Ends a connection at once; what waits is dropped (sent: TRI_ECANCELED), and the connection is not to be used any
 * more. */
void tri_connection_close(tri_connection *connection);
/* Moves bytes and calls handlers until something was handled, or the deadline, or a wake. TRI_OK in all three cases. */
tri_status tri_endpoint_poll(tri_endpoint *endpoint, int64_t deadline_ns);
/* From any thread: ends the turn that is under way or the next one. */
void tri_endpoint_wake(tri_endpoint *endpoint);
/* Sends what is queued for at most a second, then ends all connections (`sent` with TRI_EPEER for the rest, then
 * `closed`). NULL does nothing. */
void tri_endpoint_close(tri_endpoint *endpoint);

#endif
