/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_impl.h: what the files of the endpoint share: endpoints, connections, messages that wait, and the table of
 * ways.
 *
 * A connection is OPEN, or BROKEN (its end is known, the owner has not heard), or ENDED (nobody will hear of it again;
 * its memory goes when no call of a handler can still be using it). For endpoint*.c, their tests and the fuzz target
 * only.
 */
#ifndef TRI_NET_ENDPOINT_IMPL_H
#define TRI_NET_ENDPOINT_IMPL_H

#include <stdatomic.h>

#include "net/endpoint.h"

#define TRI_MESSAGE_MAGIC UINT32_C(0x50495254) /* "TRIP" */
/* What a connection may move in a turn before it is another's turn. */
#define TRI_ENDPOINT_POLL_NBYTES ((size_t)1 << 20)
#define TRI_ENDPOINT_WHY_NBYTES  256
#define TRI_ENDPOINT_FROM_NBYTES 64
/* Pieces of messages that go with one call. */
#define TRI_ENDPOINT_PARTS 64

/* In a ring with a head; NULL: in none. */
typedef struct endpoint_node {
    struct endpoint_node *next, *before;
} endpoint_node;

/* A message that waits. */
typedef struct queued_message {
    struct queued_message *next; /* of those under way */
    uint64_t order;              /* among all of the connection */
    unsigned priority;
    size_t nbytes, done_nbytes; /* head and body */
    tri_part body[TRI_MESSAGE_PARTS];
    tri_message_sent sent; /* NULL: `copy` is the body */
    void *arg;
    unsigned char head[TRI_MESSAGE_NBYTES];
    unsigned char copy[];
} queued_message;

/* Those of one connection. */
typedef struct endpoint_queue {
    queued_message **waiting; /* a heap: the highest priority first, of equal ones the earliest */
    size_t count, capacity;
    queued_message *first, *last; /* under way: taken out of the heap, in the order of the wire */
    size_t under_way;             /* how many */
    size_t nbytes;                /* of all, not yet taken */
    uint64_t orders;
} endpoint_queue;

/* What of a connection's stream has been read: part of a head, or a head and part of its body. */
typedef struct endpoint_inbox {
    unsigned char head[TRI_MESSAGE_NBYTES];
    size_t head_nbytes;
    bool has_message;
    bool reads_wide; /* the latest message was small: more than one may be had with one call */
    tri_message message;
    unsigned char *body; /* NULL: no place yet */
    size_t body_nbytes;
    unsigned char *own;  /* a body without a place of the owner's */
    size_t own_nbytes;   /* that there is room for */
    unsigned char *rest; /* read before the connection was paused */
    size_t rest_first, rest_upto;
} endpoint_inbox;

typedef enum connection_state { CONNECTION_OPEN, CONNECTION_BROKEN, CONNECTION_ENDED } connection_state;

/* First member of each way's connection. */
struct tri_connection {
    tri_endpoint *endpoint;
    connection_state state;
    bool dialed;  /* by this end */
    bool is_near; /* both ends are on this machine */
    bool paused;
    bool readable; /* a read may give something */
    bool full;     /* a write took less than it was given */
    bool mute;     /* a write failed: nothing is sent any more */
    bool flushing;
    uint64_t heard; /* bytes that were read */
    void *note;
    endpoint_node all;   /* of endpoint->connections, or of endpoint->ended */
    endpoint_node ready; /* of endpoint->ready: has something to be read */
    endpoint_node owing; /* of endpoint->owing: has something to be sent, and the way takes some */
    endpoint_node news;  /* of endpoint->fresh or endpoint->broken: the owner is to hear of it */
    endpoint_queue queue;
    endpoint_inbox inbox;
    char from[TRI_ENDPOINT_FROM_NBYTES];
    char why[TRI_ENDPOINT_WHY_NBYTES]; /* BROKEN */
};

/* Room for bytes that are read. */
typedef struct endpoint_room {
    unsigned char *bytes;
    size_t nbytes;
} endpoint_room;

typedef struct tri_endpoint_ops {
    const char *name;
    size_t nbytes;         /* of its struct */
    size_t scratch_nbytes; /* what one read may give of small messages */
    /* The endpoint is zeros but for what is in tri_endpoint; after a failure nothing is open. */
    tri_status (*open)(tri_endpoint *endpoint);
    const char *(*address)(const tri_endpoint *endpoint);
    /* A connection that is proven, in no list yet. */
    /* once: somebody was there before; if nobody is now, that is known at once. */
    tri_status (*dial)(tri_endpoint *endpoint, const char *address, bool once, int64_t deadline_ns,
                       tri_connection **out);
    /* Notes which connections can continue (tri_connection_readable, _writable), who has called
     * (tri_connection_accepted) and wakes; without any of them it returns at the deadline, or for no reason. Calls no
     * handler. */
    tri_status (*poll)(tri_endpoint *endpoint, int64_t deadline_ns);
    /* Reads into two rooms, one after the other, without blocking. Clears `readable` when there is no more by now.
     * TRI_EPEER: the connection has ended, and all was given before. */
    tri_status (*read)(tri_connection *connection, const endpoint_room rooms[2], size_t *given);
    /* Writes up to TRI_ENDPOINT_PARTS parts without blocking. *promised: that many bytes beyond those taken must be
     * given again unchanged. Sets `full` when it takes no more by now. TRI_EPEER: reading comes to an end too. */
    tri_status (*write)(tri_connection *connection, const tri_part *parts, size_t count, size_t *taken,
                        size_t *promised);
    void (*wake)(tri_endpoint *endpoint);
    /* Before all connections end: gives what was sent the time to arrive. NULL: it needs none. */
    void (*drain)(tri_endpoint *endpoint, int64_t deadline_ns);
    /* Closes it for the other end; and frees what there is besides tri_connection. */
    void (*connection_end)(tri_connection *connection);
    /* All that `open` opened. */
    void (*close)(tri_endpoint *endpoint);
} tri_endpoint_ops;

extern const tri_endpoint_ops tri_endpoint_tcp, tri_endpoint_hub;

/* First member of each way's endpoint. */
struct tri_endpoint {
    const tri_endpoint_ops *ops;
    tri_endpoint_setup setup;
    char *name, *token;
    tri_net_config config;
    endpoint_node connections, ready, owing, fresh, broken, ended; /* heads */
    int called_count;                                              /* connections that others dialed */
    bool is_polling;
    bool is_woken;
    uint64_t handled;       /* calls of handlers */
    unsigned char *scratch; /* [ops->scratch_nbytes]: what was read and is no body with a place of its own */
    unsigned char *spare;   /* of the latest body of the endpoint's own, for the next one: the cache has it; or NULL */
    size_t spare_nbytes;
    /* What went wrong is said once a second. */
    int64_t noted_ns;
    uint64_t unnoted;
};

/* ---- lists */
void tri_endpoint_node_head(endpoint_node *head);
void tri_endpoint_node_append(endpoint_node *head, endpoint_node *node);
/* Also of one that is in no list. */
void tri_endpoint_node_remove(endpoint_node *node);
static inline bool tri_endpoint_is_empty(const endpoint_node *head)
{
    return head->next == head;
}

/* ---- endpoint_message.c: heads, and messages that wait */
void tri_message_encode(const tri_message *message, unsigned char bytes[TRI_MESSAGE_NBYTES]);
/* TRI_EFORMAT when magic or check are wrong, or the body is longer than the limit. */
tri_status tri_message_decode(const unsigned char bytes[TRI_MESSAGE_NBYTES], size_t body_limit, tri_message *message);
/* TRI_ENOMEM: nothing has changed. */
tri_status tri_endpoint_queue_push(endpoint_queue *queue, unsigned priority, const tri_message *message,
                                   const tri_part body[TRI_MESSAGE_PARTS], tri_message_sent sent, void *arg);
/* What shall be written next; those messages are under way then. */
size_t tri_endpoint_queue_offer(endpoint_queue *queue, tri_part parts[TRI_ENDPOINT_PARTS], size_t *nbytes);
/* Of what was offered `taken` bytes have gone. Those that are neither begun nor promised wait again. */
void tri_endpoint_queue_taken(endpoint_queue *queue, size_t taken, size_t promised);
/* A message that has gone as a whole, no longer in the queue; NULL: none. */
queued_message *tri_endpoint_queue_sent(endpoint_queue *queue);
/* Any message, no longer in the queue; NULL: none is left. */
queued_message *tri_endpoint_queue_pop(endpoint_queue *queue);
static inline bool tri_endpoint_queue_is_empty(const endpoint_queue *queue)
{
    return queue->count == 0 && !queue->first;
}

/* ---- endpoint_connection.c: what one connection can do, what it sends, and its end */
/* In the state OPEN, in endpoint->connections; nbytes: of the way's struct, zeros but for the connection. */
tri_status tri_connection_create(tri_endpoint *endpoint, size_t nbytes, tri_connection **out);
/* As a result of a poll. */
void tri_connection_readable(tri_connection *connection);
void tri_connection_writable(tri_connection *connection);
/* Puts it into the lists of those that can continue, or takes it out. */
void tri_connection_arm(tri_connection *connection);
static inline bool tri_connection_reads(const tri_connection *connection)
{
    return connection->state == CONNECTION_OPEN && !connection->paused;
}
/* Others dialed: the owner hears of it in the next turn. */
void tri_connection_accepted(tri_connection *connection);
/* Sends what the way takes. */
void tri_connection_send_queued(tri_connection *connection);
/* It has come to an end that the owner must hear of. */
void tri_connection_break(tri_connection *connection, const char *why);
/* Ends it: no handler is called for it any more but `sent`. */
void tri_connection_end(tri_connection *connection, tri_status status);
/* The memory of a connection that has ended. */
void tri_connection_destroy(tri_connection *connection);
/* Says what somebody else did wrong, once a second. */
void tri_endpoint_warn(tri_endpoint *endpoint, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- endpoint_read.c: reads and handles messages, up to TRI_ENDPOINT_POLL_NBYTES */
void tri_connection_receive(tri_connection *connection);

#endif
