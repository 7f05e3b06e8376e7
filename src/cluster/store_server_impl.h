/* SPDX-License-Identifier: Apache-2.0
 *
 * store_server_impl.h: what the store's server is made of: store_table.c reads requests and answers them out of the
 * table, store_server.c moves the bytes.
 *
 * For these two files, their tests and the fuzz target only.
 */
#ifndef TRI_CLUSTER_STORE_SERVER_IMPL_H
#define TRI_CLUSTER_STORE_SERVER_IMPL_H

#include <stdatomic.h>

#include "cluster/journal.h"
#include "cluster/store_impl.h"
#include "net/crowd.h"
#include "net/tls.h"

typedef struct store_value {
    int refs;
    uint32_t nbytes;
    char bytes[];
} store_value;

typedef struct store_entry {
    store_value *value;               /* NULL: only waited for */
    struct store_client *waiters;     /* by next_waiter */
    struct store_entry *next, **link; /* of its bucket */
    char key[];
} store_entry;

typedef enum client_state { CLIENT_HEADER, CLIENT_BODY, CLIENT_WAITS, CLIENT_REPLY } client_state;

typedef struct store_client {
    int fd;
    client_state state;
    bool proven;
    bool ending;         /* close once the reply is out */
    int64_t deadline_ns; /* unproven: to show the token, to encrypt; CLIENT_WAITS: of the wait */
    unsigned char nonce[TRI_STORE_NONCE_NBYTES];
    unsigned char secret[TRI_AUTH_NBYTES]; /* proven: key of the connection */
    tri_tls *tls;                          /* NULL: not proven yet */
    bool shakes;                           /* begins to encrypt, until the deadline */
    unsigned char header[TRI_STORE_HEADER_NBYTES];
    tri_store_message request;
    char key[TRI_STORE_KEY_NBYTES + 1];
    store_value *body; /* of the request; NULL while the table has no room: its bytes are skipped */
    size_t at;         /* bytes of the present part read or written */
    char skipped[512]; /* where bytes without room go */
    store_value *reply;
    store_entry *entry; /* CLIENT_WAITS */
    struct store_client *next_waiter;
    struct store_client *next, **link;           /* all clients, oldest first */
    struct store_client *next_owed, **owed_link; /* owed_link NULL: not among those */
    bool is_writing;                             /* what is polled for: room to write, else bytes to read */
    bool has_spoken;                             /* some byte came */
    tri_caller caller;                           /* of server->unproven, until it is proven */
    char from[48];                               /* its address */
} store_client;

struct tri_store_server {
    tri_thread *thread;
    int listener, wake, port;
    atomic_bool stop;
    atomic_int connected; /* proven clients */
    char token[65];
    tri_tls_context *tls;
    store_entry **buckets; /* [bucket_count], a power of two: by the hash of the key */
    size_t bucket_count, entry_count;
    size_t held_nbytes;
    tri_journal *journal; /* borrowed; NULL: the table goes with the server */
    store_client *clients, **clients_end;
    store_client *owed; /* by next_owed: whose wait somebody else has ended */
    int64_t sweep_ns;   /* no client has an earlier deadline */
    int epoll;
    tri_crowd unproven;
    int64_t accept_after_ns; /* out of descriptors: not before this */
    int64_t refused_ns;      /* when a stranger was named last */
    uint64_t refused;        /* of those that were not named since */
};

/* --- store_table.c --- */

/* Owes the new client the greeting; its nonce is there. */
void tri_store_client_greet(tri_store_server *server, store_client *client);
/* Room for the next bytes of the client's request, at most *nbytes; NULL while it is owed an answer. */
char *tri_store_client_room(store_client *client, size_t *nbytes);
/* nbytes of that room were filled: a request that is whole is answered. False: drop the client. */
bool tri_store_client_take(tri_store_server *server, store_client *client, size_t nbytes);
/* The next bytes to send of the reply; NULL when all are out. */
const char *tri_store_client_reply(const store_client *client, size_t *nbytes);
/* The reply is out: the next request may come. False: drop the client. */
bool tri_store_client_next(tri_store_server *server, store_client *client);
/* Ends a wait without the value. */
void tri_store_client_give_up(tri_store_server *server, store_client *client);
/* All of the client but its descriptor. */
void tri_store_client_destroy(tri_store_server *server, store_client *client);
/* Begins with what the journal holds. */
tri_status tri_store_table_restore(tri_store_server *server);
void tri_store_table_fini(tri_store_server *server);

#endif
