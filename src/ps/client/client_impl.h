/* SPDX-License-Identifier: Apache-2.0
 *
 * client_impl.h: what a worker's client is made of: connections and the thread that turns them (client/connections.c),
 * questions to servers (client/requests.c), and the blocks of a dense table (client/dense.c).
 */
#ifndef TRI_PS_CLIENT_IMPL_H
#define TRI_PS_CLIENT_IMPL_H

#include <stdatomic.h>

#include "ps/client/client.h"
#include "ps/rpc/protocol.h"

/* A message to be sent by the client's thread. */
typedef struct ps_command {
    int server;
    unsigned priority;
    ps_head head;
    const void *body; /* is still until it is answered */
} ps_command;

typedef struct ps_link {
    tri_connection *connection; /* NULL: not there at present */
    bool opened;                /* it has sent its number of the table */
    bool cut;                   /* to be closed: it is in the middle of what another server sends now */
    bool empty;                 /* it has lost what it held, and needs it again */
    bool refilled;              /* and has been */
    bool refused;    /* it has not taken in what was another's in its view: to be said again once that is known here */
    int64_t lost_ns; /* when it was lost */
    int64_t dial_ns; /* not again before this */
    uint64_t question, answered; /* numbers of the latest one it was asked, and of its latest answer */
    int64_t clock;               /* of that */
    double extra;
    int64_t heard_ns;  /* when it was heard, */
    tri_string events; /* and what it said it did */
    uint32_t table;
    char why[160];
} ps_link;

struct tri_ps_client {
    tri_ps_client_setup setup;
    ps_view view;
    tri_endpoint *endpoint;
    tri_thread *thread;
    tri_mutex mutex;
    tri_cond moved;
    /* under the mutex: */
    tri_vector commands;  /* of ps_command */
    ps_link *links;       /* [servers] */
    bool look;            /* a newer view may be in the store */
    const ps_head *asked; /* a question to all servers, until all have answered */
    const void *asked_body;
    const double *asked_extras;   /* [servers] `extra` of that question to each; NULL: the same to all */
    uint64_t question;            /* number of the latest */
    tri_ps_dense *dense;          /* NULL: none */
    struct ps_kv_connections *kv; /* calls about rows (client/kv.h), NULL: none */
    tri_string stats;             /* of: */
    tri_string save_why;          /* of the first server that does not save */
    atomic_bool *save_lost;       /* becomes true when a server is lost, NULL: no save is under way */
    int home;                     /* the server of the first block that moves: it chooses and deals; 0: there is none */
    tri_ps_refill refill;         /* NULL: not this client's to do */
    void *refill_arg;
    int64_t era;  /* of the run, when this client was made */
    bool is_past; /* a server has said that another one has begun */
    bool closing, leaving;
    int64_t leave_ns;  /* leaving: until when all are waited for, where there are backups */
    tri_status status; /* the first failure: every call returns it */
    char message[TRI_ERROR_NBYTES];
};

typedef struct dense_block {
    int server;
    bool moves;
    int64_t asked;   /* clock of the values that are awaited, -1: none */
    int64_t arrived; /* of those that are here */
    int filling;     /* server that they are coming from just now, -1: none */
    bool squared;    /* squares of the step under way are here */
    bool stated;     /* so is the array of the optimizer that was asked for */
    int64_t pushed;  /* step of the latest push, -1: none */
    void **staged;   /* [TRI_TREE_MAX_PARTS] bodies with ties, or coded; or NULL */
    void *encoded;   /* where coded values arrive; NULL: they are not coded */
    const void **bodies;
} dense_block;

struct tri_ps_dense {
    tri_ps_client *client;
    const ps_spec *spec;
    bool coded;      /* ps.values is not f32 */
    tri_string text; /* of the table */
    ps_consistency consistency;
    float *values;
    dense_block *blocks; /* [spec->cut_count] */
    bool *moving;        /* [servers] has blocks that move: these hear of tails, moves and clocks */
    /* of the latest pushes: */
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int part_count;
    double weight;
    float tails[TRI_TREE_MAX_PARTS][TRI_PARAMS_TAIL];
    int64_t tail_clock; /* of the latest tail that was said, -1: none */
    int64_t tail_known; /* of the latest sum that came */
    float tail_sums[TRI_PARAMS_TAIL];
    char *reported_tail;  /* with backup workers: where an answer is, its sums and a byte for each worker; else NULL */
    uint8_t *chosen;      /* [workers] of the latest step that was chosen for */
    int64_t chosen_clock; /* that step, -1: none */
    bool counted;       /* the latest answer was of the step that was asked for, and this worker is among the chosen */
    int64_t next_clock; /* as it says */
    int64_t deal_asked; /* with ps.schedule dynamic: parts before this one are done, -1: nothing is asked */
    int64_t dealt;      /* the latest part */
    int64_t move_clock; /* of the latest move, -1: none */
    float move_scale;
    bool of_all;           /* ssp: the pulls under way wait for all workers */
    bool exact;            /* they are of values that are not coded */
    int64_t pull_number;   /* of the latest ones */
    int64_t encoded_clock; /* ssp: of the latest PS_CLOCK, -1: none */
    double *squares;       /* [block_count] */
    const float *given;    /* first values that are being given, by cut and array; NULL: none are */
    int given_arrays;
    int64_t given_clock;
    float *state; /* where states arrive */
    int state_index;
};

/* --- client/requests.c; the mutex is held --- */
void tri_ps_queue(tri_ps_client *client, int server, unsigned priority, const ps_head *head, const void *body);
/* Waits for `done`; the mutex is held, and given up meanwhile. */
tri_status tri_ps_await(tri_ps_client *client, bool (*done)(void *arg), void *arg, const char *what);
void tri_ps_client_fail(tri_ps_client *client, tri_status status);
/* A request to each server, and its answer. */
tri_status tri_ps_ask_all(tri_ps_client *client, ps_head head, const void *body, const char *what);
/* The request that is under way, once more to a server that has not answered it; what it answered before does not
 * count. */
void tri_ps_ask_again(tri_ps_client *client, int server);
/* The same, also to one that has. */
void tri_ps_ask_server(tri_ps_client *client, int server);

/* --- client/trace.c; the mutex is held --- */
/* The clocks of all servers, into of[servers]. */
tri_status tri_ps_clocks_ask(tri_ps_client *client, tri_ps_operations *of);

/* --- client/connections.c --- */
/* Dials all servers, and starts the thread. */
tri_status tri_ps_connections_open(tri_ps_client *client);
/* The mutex is held: the server's connection has ended. */
void tri_ps_link_lost(tri_ps_client *client, int server, const char *why);

/* --- client/dense_send.c; the mutex is held --- */
void tri_ps_dense_choice_say(tri_ps_dense *dense, int server);
void tri_ps_dense_deal_say(tri_ps_dense *dense);
void tri_ps_dense_state_say(tri_ps_dense *dense, int b);
/* Block b of what is being given, to its server. */
void tri_ps_dense_block_give(tri_ps_dense *dense, int b);
/* Everything that a server has not answered, again. */
void tri_ps_dense_resend(tri_ps_dense *dense, int server);
/* The client's view has changed: blocks belong to other servers now; the client sends these what the old ones have not
 * answered. */
void tri_ps_dense_reown(tri_ps_dense *dense);

/* --- client/dense_receive.c; the mutex is held --- */
/* Where the body of a message shall be; NULL: *refused, or nowhere. */
void *tri_ps_dense_place(tri_ps_dense *dense, int server, const ps_head *head, bool *refused);
void tri_ps_dense_take(tri_ps_dense *dense, int server, const ps_head *head, const void *body);
/* The server's connection has ended, in the middle of a message perhaps. */
void tri_ps_dense_lost(tri_ps_dense *dense, int server);

static inline void ps_dense_lock(tri_ps_dense *dense)
{
    tri_mutex_lock(&dense->client->mutex);
}

static inline void ps_dense_unlock(tri_ps_dense *dense)
{
    tri_mutex_unlock(&dense->client->mutex);
}

#endif
